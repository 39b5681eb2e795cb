#include <lockstep/comm/diagnostics/fingerprints.h>

#include <algorithm>

#include <lockstep/comm/waiting/store_waits.h>
#include <lockstep/core/clock.h>
#include <lockstep/core/environment.h>
#include <lockstep/core/error.h>

namespace lockstep::comm {
namespace {

// A text that is equal on all ranks only if they make the same call; also used in error messages.
std::string fingerprint(std::uint64_t number, const CallDescription& call) {
  return lockstep::str(describe(call), " as number ", number);
}

}  // namespace

bool fingerprints_wanted() {
  const auto value = environment_string("LOCKSTEP_DEBUG");
  if (value && *value != "detail" && *value != "off") {
    throw ConfigError("LOCKSTEP_DEBUG must be off or detail, got " + *value);
  }
  return value == "detail";
}

Fingerprints::Fingerprints(const TextExchange& exchange, std::chrono::milliseconds timeout)
    : store_(exchange.store_pointer()),
      rank_(exchange.rank()),
      world_ranks_(exchange.world_ranks()),
      timeout_(timeout) {}

std::string Fingerprints::key(std::uint64_t number, int rank) const {
  return lockstep::str("fingerprint/", number, "/", rank);
}

void Fingerprints::compare(std::uint64_t number, const CallDescription& call,
                           const std::function<void()>& check) {
  const std::scoped_lock lock(mutex_);
  const std::string mine = fingerprint(number, call);
  std::vector<std::string> texts;
  try {
    texts = gather(number, mine, check);
  } catch (const Error&) {
    throw;
  } catch (const std::exception& error) {
    throw CommError(lockstep::str("rank ", world_ranks_[static_cast<std::size_t>(rank_)],
                                  " lost the store of rank 0 before ", mine,
                                  " (did rank 0 end?): ", first_line(error)));
  }
  const auto other = std::find_if(texts.begin(), texts.end(),
                                  [&](const std::string& text) { return text != texts[0]; });
  if (other == texts.end()) return;
  const std::string first = texts[0].substr(0, texts[0].rfind(" as number "));
  throw CommError(lockstep::str("the ranks call different operations: rank ",
                                world_ranks_[static_cast<std::size_t>(other - texts.begin())],
                                " called ", *other, ", rank ", world_ranks_[0], " called ", first));
}

std::vector<std::string> Fingerprints::gather(std::uint64_t number, const std::string& mine,
                                              const std::function<void()>& check) {
  std::vector<std::string> keys;
  for (std::size_t rank = 0; rank < world_ranks_.size(); ++rank) {
    keys.push_back(key(number, static_cast<int>(rank)));
  }
  store_->set(keys[static_cast<std::size_t>(rank_)], store_bytes(mine));
  const Deadline deadline(timeout_);
  for (StorePauses pauses; !store_->check(keys); pauses.sleep()) {
    if (check) check();
    if (deadline.expired()) time_out(number, mine);
  }
  std::vector<std::string> texts;
  for (const auto& bytes : store_->multiGet(keys)) texts.push_back(store_text(bytes));
  // A rank that has reached this collective has read all earlier keys.
  if (number > 0) store_->deleteKey(key(number - 1, rank_));
  return texts;
}

void Fingerprints::time_out(std::uint64_t number, const std::string& mine) {
  std::vector<int> missing;
  for (std::size_t rank = 0; rank < world_ranks_.size(); ++rank) {
    if (!store_->check({key(number, static_cast<int>(rank))}))
      missing.push_back(world_ranks_[rank]);
  }
  throw TimeoutError(lockstep::str(
      "rank ", world_ranks_[static_cast<std::size_t>(rank_)], " called ", mine, " and waited ",
      static_cast<double>(timeout_.count()) / 1e3, " s for ",
      missing.size() == 1 ? "rank " : "ranks ", join(missing), ", which called nothing"));
}

}  // namespace lockstep::comm
