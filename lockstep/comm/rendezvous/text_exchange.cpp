#include <lockstep/comm/rendezvous/text_exchange.h>

#include <algorithm>
#include <exception>
#include <numeric>
#include <thread>
#include <utility>

#include <c10/util/Exception.h>

#include <lockstep/comm/store/connection.h>
#include <lockstep/comm/store/protocol.h>
#include <lockstep/comm/store/reader.h>
#include <lockstep/comm/waiting/store_waits.h>
#include <lockstep/comm/waiting/wait_notice.h>
#include <lockstep/core/clock.h>
#include <lockstep/core/error.h>

namespace lockstep::comm {
namespace {

constexpr const char* kRefusedKey = "refused";
constexpr const char* kToldKey = "refused/told";  // how many ranks have read the reason
constexpr std::chrono::milliseconds kTimeToTell{500};
// A wait wakes up regularly to see whether a rank has refused, and to call its check. With a check
// it wakes up more often, but all ranks together at most a few thousand times per second.
constexpr std::chrono::milliseconds kTextLook{500};
constexpr std::chrono::milliseconds kTimeToRead = 2 * kTextLook;  // for waits in other topics
constexpr std::chrono::milliseconds kRefusalLook{100};
constexpr std::chrono::milliseconds kLookWithCheck{5};
constexpr std::chrono::microseconds kLookWithCheckPerRank{250};

// The value of a topic's kAllKey is either the texts of all ranks or the reason of a refusal.
constexpr const char* kAllKey = "/all";
constexpr char kTexts = 't';
constexpr char kRefusal = 'r';

std::string joined(const std::vector<std::string>& texts) {
  return kTexts + tcp_store::Message().add_texts(texts).bytes();
}

// Splits the texts of `size` ranks that joined() has combined.
std::vector<std::string> separated(const std::string& all, int size) {
  try {
    if (!all.empty() && all[0] == kTexts) {
      tcp_store::Reader reader(std::string_view(all).substr(1));
      auto texts = reader.read_texts();
      if (std::ssize(texts) == size && reader.position() + 1 == all.size()) return texts;
    }
  } catch (const tcp_store::Incomplete&) {
  } catch (const tcp_store::Malformed&) {
  }
  throw CommError("another program has written into the store of this job");
}

std::chrono::milliseconds time_to_next_look(bool with_check, int size) {
  if (!with_check) return kTextLook;
  return std::max(kLookWithCheck,
                  std::chrono::ceil<std::chrono::milliseconds>(size * kLookWithCheckPerRank));
}

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
  const std::string all = topic + kAllKey;
  const std::string count = topic + "/count";
  const Deadline deadline(limit);
  const tcp_store::AnswerLimit answers(deadline);
  try {
    auto given = keys_of("/");
    auto read = keys_of("/read/");
    store_->set(given[rank_], store_bytes(text));
    if (store_->add(count, 1) == size_) publish(all, given);
    await({all}, given, topic, check, limit);
    const std::string result = store_->get_to_str(all);
    if (result.starts_with(kRefusal)) leave_with(result.substr(1));
    auto texts = separated(result, size_);
    store_->set(read[rank_], store_bytes(""));
    if (rank_ == 0) {
      await(read, read, topic, check, limit);
      forget(given);
      forget(read);
      forget({all, count});
    }
    return texts;
  } catch (const Error&) {
    throw;
  } catch (const std::exception& error) {
    throw CommError(lockstep::str("rank ", world_rank(), " lost the store of rank 0 during the ",
                                  topic, " (did rank 0 end?): ", first_line(error)));
  }
}

// The last rank to arrive collects the texts for all. Otherwise the store would have to serve a
// number of texts quadratic in the number of ranks.
void TextExchange::publish(const std::string& all, const std::vector<std::string>& given) {
  std::vector<std::string> texts;
  for (const auto& bytes : store_->multiGet(given)) texts.push_back(store_text(bytes));
  store_->compareSet(all, store_bytes(""), store_bytes(joined(texts)));
}

void TextExchange::refuse(const std::string& topic, const std::string& reason) {
  publish_refusal(topic, reason);
  leave_with(reason);
}

// Returns the reason of the rank that refused first.
std::string TextExchange::publish_refusal(const std::string& topic, const std::string& reason) {
  try {
    const std::string first =
        store_text(store_->compareSet(kRefusedKey, store_bytes(""), store_bytes(reason)));
    store_->compareSet(topic + kAllKey, store_bytes(""), store_bytes(kRefusal + first));
    return first;
  } catch (const std::exception&) {
    return reason;  // the store is gone, and with it any way to inform the other ranks
  }
}

void TextExchange::tell_failure(const std::string& topic, const std::exception& error) {
  const std::string text = first_line(error);
  const bool names_its_rank = text.starts_with("rank ");
  const std::string first = publish_refusal(
      topic, names_its_rank ? text : lockstep::str("rank ", world_rank(), ": ", text));
  leave();
  if (!first.ends_with(text)) throw CommError(first);
}

std::optional<std::string> TextExchange::refusal() const {
  if (!store_->check({kRefusedKey})) return std::nullopt;
  return store_->get_to_str(kRefusedKey);
}

TextExchange::Check TextExchange::refusal_check() const {
  return [this, next = Clock::now()]() mutable {
    if (Clock::now() < next) return;
    if (const auto reason = refusal()) throw CommError(*reason);
    next = Clock::now() + kRefusalLook;
  };
}

// The store ends with rank 0, so rank 0 waits until the others have read the reason.
void TextExchange::leave() {
  if (std::exchange(has_left_, true)) return;
  const Deadline deadline(kTimeToRead);
  try {
    store_->add(kToldKey, 1);
    while (rank_ == 0 && store_->add(kToldKey, 0) < size_ && !deadline.expired()) {
      std::this_thread::sleep_for(StorePauses::kLongest);
    }
  } catch (const std::exception&) {
    // The store is gone: no rank can be informed any more.
  }
}

void TextExchange::leave_with(const std::string& reason) {
  leave();
  throw CommError(reason);
}

void TextExchange::await(const std::vector<std::string>& keys,
                         const std::vector<std::string>& of_ranks, const std::string& topic,
                         const Check& check, std::chrono::milliseconds timeout) {
  Deadline deadline(timeout);
  const tcp_store::AnswerLimit answers(deadline);
  std::exception_ptr lost;
  WaitNotice notice;
  const auto look = time_to_next_look(static_cast<bool>(check), size_);
  while (
      !come_within(std::min(look, std::chrono::ceil<Milliseconds>(deadline.remaining())), keys)) {
    if (const auto reason = refusal()) leave_with(*reason);
    try {
      if (check && !lost) check();
    } catch (const CommError&) {
      // The peer may have finished its part before it left, and other ranks may be about to finish
      // their parts.
      lost = std::current_exception();
      deadline = Deadline(std::min(kTimeToTell, timeout));
    }
    if (announces_waits_ && rank_ == 0) {
      notice.look(timeout, [&] {
        return lockstep::str("rank ", world_rank(), " waits for ", missing_ranks(of_ranks), " of ",
                             size_, " in the ", topic);
      });
    }
    if (deadline.expired()) {
      if (lost) std::rethrow_exception(lost);
      throw TimeoutError(lockstep::str("rank ", world_rank(), " waited ",
                                       static_cast<double>(timeout.count()) / 1e3, " s for ",
                                       missing_ranks(of_ranks), " of ", size_, " in the ", topic));
    }
  }
}

bool TextExchange::come_within(std::chrono::milliseconds limit,
                               const std::vector<std::string>& keys) {
  const Deadline deadline(limit);
  try {
    // LibTorch's stores interpret zero as no limit.
    store_->wait(keys, std::max(limit, std::chrono::milliseconds(1)));
    return true;
  } catch (const TimeoutError&) {
  } catch (const c10::DistStoreError&) {
  } catch (const c10::Error&) {
    // FileStore has no separate error type for a wait that timed out.
    if (!deadline.expired()) throw;
  }
  return false;
}

// Stores that do not support deletion keep these few bytes.
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
  if (missing.empty()) return "the last";  // it has sent its text but not yet collected all
  return lockstep::str(own_name_ ? "the group's own " : "",
                       missing.size() == 1 ? "rank " : "ranks ", join(missing));
}

}  // namespace lockstep::comm
