#include <lockstep/comm/text_exchange.h>

#include <algorithm>
#include <exception>
#include <numeric>
#include <thread>
#include <utility>

#include <lockstep/comm/store_waits.h>
#include <lockstep/core/clock.h>
#include <lockstep/core/error.h>

namespace lockstep {
namespace {

constexpr const char* kRefusedKey = "refused";
constexpr const char* kToldKey = "refused/told";  // how many ranks know
constexpr std::chrono::milliseconds kTimeToTell{500};

}  // namespace

TextExchange::TextExchange(c10::intrusive_ptr<c10d::Store> store, int rank, int size,
                           std::chrono::milliseconds timeout, std::vector<int> world_ranks)
    : store_(std::move(store)),
      rank_(rank),
      size_(size),
      timeout_(timeout),
      world_ranks_(std::move(world_ranks)) {
  if (!world_ranks_.empty()) return;
  world_ranks_.resize(static_cast<std::size_t>(size));
  std::iota(world_ranks_.begin(), world_ranks_.end(), 0);
}

std::vector<std::string> TextExchange::exchange(const std::string& topic, const std::string& text,
                                                const Check& given_check,
                                                std::optional<std::chrono::milliseconds> timeout) {
  const auto limit = timeout.value_or(timeout_);
  const Check& check = given_check ? given_check : meanwhile_;
  const auto keys_of = [&](const char* kind) {
    std::vector<std::string> keys;
    for (int rank = 0; rank < size_; ++rank) keys.push_back(lockstep::str(topic, kind, rank));
    return keys;
  };
  try {
    const auto given = keys_of("/");
    const auto read = keys_of("/read/");
    store_->set(given[rank_], store_bytes(text));
    await(given, topic, check, limit);
    std::vector<std::string> texts;
    for (const auto& bytes : store_->multiGet(given))
      texts.emplace_back(bytes.begin(), bytes.end());
    store_->set(read[rank_], store_bytes(""));
    if (rank_ == 0) {
      await(read, topic, check, limit);
      forget(given);
      forget(read);
    }
    return texts;
  } catch (const Error&) {
    throw;
  } catch (const std::exception& error) {
    throw CommError(lockstep::str("rank ", world_rank(), " lost the store of rank 0 during the ",
                                  topic, " (did rank 0 end?): ", first_line(error)));
  }
}

void TextExchange::refuse(const std::string& reason) {
  try {
    store_->compareSet(kRefusedKey, store_bytes(""), store_bytes(reason));
  } catch (const std::exception&) {
    // The store is gone, and everybody with it who could be told.
  }
  leave_with(reason);
}

// Rank 0 takes the store along when it goes: not before the others have read why.
void TextExchange::leave_with(const std::string& reason) {
  const Deadline deadline(kTimeToTell);
  try {
    store_->add(kToldKey, 1);
    while (rank_ == 0 && store_->add(kToldKey, 0) < size_ && !deadline.expired()) {
      std::this_thread::sleep_for(StorePauses::kLongest);
    }
  } catch (const std::exception&) {
    // The store is gone: nobody is left to be told.
  }
  throw CommError(reason);
}

void TextExchange::await(const std::vector<std::string>& keys, const std::string& topic,
                         const Check& check, std::chrono::milliseconds timeout) {
  Deadline deadline(timeout);
  std::exception_ptr lost;
  for (StorePauses pauses; !store_->check(keys); pauses.sleep()) {
    if (store_->check({kRefusedKey})) leave_with(store_->get_to_str(kRefusedKey));
    try {
      if (check && !lost) check();
    } catch (const CommError&) {
      // The peer may have done its part before it went, while others are about to do theirs.
      lost = std::current_exception();
      deadline = Deadline(std::min(kTimeToTell, timeout));
    }
    if (deadline.expired()) {
      if (lost) std::rethrow_exception(lost);
      throw TimeoutError(lockstep::str("rank ", world_rank(), " waited ",
                                       static_cast<double>(timeout.count()) / 1e3, " s for ",
                                       missing_ranks(keys), " of ", size_, " in the ", topic));
    }
  }
}

// Stores that cannot delete keep the few bytes.
void TextExchange::forget(const std::vector<std::string>& keys) {
  try {
    for (const auto& key : keys) store_->deleteKey(key);
  } catch (const c10::NotImplementedError&) {
  }
}

std::string TextExchange::missing_ranks(const std::vector<std::string>& keys) {
  std::vector<int> missing;
  for (int rank = 0; rank < size_; ++rank) {
    const auto place = static_cast<std::size_t>(rank);
    if (!store_->check({keys[place]})) missing.push_back(world_ranks_[place]);
  }
  return lockstep::str(own_name_ ? "the group's own " : "",
                       missing.size() == 1 ? "rank " : "ranks ", join(missing));
}

}  // namespace lockstep
