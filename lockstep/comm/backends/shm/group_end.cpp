#include <lockstep/comm/backends/shm/group_end.h>

#include <algorithm>
#include <cstring>

#include <lockstep/comm/call/outcome.h>
#include <lockstep/core/error.h>

namespace lockstep::shm {
namespace {

// The values of AbortState::state.
constexpr std::uint32_t kRunning = 0;
constexpr std::uint32_t kAborting = 1;
constexpr std::uint32_t kAborted = 2;

}  // namespace

GroupEnd::GroupEnd(const Control& control, int rank, const std::vector<int>& world_ranks)
    : control_(control), rank_(rank), world_ranks_(world_ranks) {}

void GroupEnd::leave() {
  control_.state(rank_).left.store(1, std::memory_order_seq_cst);
  wake_all(rank_);
}

void GroupEnd::abort(const std::string& reason, bool late) {
  const std::string text = comm::abort_reason(reason);
  AbortState& shared = control_.header().abort;
  std::uint32_t expected = kRunning;
  if (!shared.state.compare_exchange_strong(expected, kAborting)) return;
  shared.rank = static_cast<std::uint32_t>(rank_);
  shared.late = late ? 1 : 0;
  const std::size_t length = std::min(text.size(), sizeof(shared.reason) - 1);
  std::memcpy(shared.reason, text.data(), length);
  shared.reason[length] = '\0';
  shared.state.store(kAborted, std::memory_order_seq_cst);
  for (int peer = 0; peer < control_.size(); ++peer) wake_all(peer);
}

// Wakes all threads that sleep on a word of `rank`.
void GroupEnd::wake_all(int rank) const {
  RankState& state = control_.state(rank);
  if (state.sleepers.load(std::memory_order_seq_cst) != 0) {
    for (Word* word : {&state.worked, &state.released}) futex_wake_all(*word);
    for (Arrival& arrival : state.arrivals) futex_wake_all(arrival.count);
  }
  for (int peer = 0; peer < control_.size(); ++peer) {
    Channel& out = control_.channel(rank, peer);
    Channel& in = control_.channel(peer, rank);
    if (out.written_sleepers.load(std::memory_order_seq_cst) != 0) futex_wake_all(out.written);
    if (in.read_sleepers.load(std::memory_order_seq_cst) != 0) futex_wake_all(in.read);
  }
}

void GroupEnd::fail(const std::string& reason, bool late) {
  stop();
  abort(reason, late);
  if (late) throw TimeoutError(reason);
  throw CommError(reason);
}

void GroupEnd::throw_if_aborted() {
  const AbortState& shared = control_.header().abort;
  if (shared.state.load(std::memory_order_acquire) != kAborted) [[likely]] {
    // Another rank may be writing its reason, or may have died while writing it.
    if (stopped_.load(std::memory_order_relaxed)) throw CommError("the group has ended");
    return;
  }
  stop();
  const int rank = static_cast<int>(shared.rank);
  const std::string reason =
      rank == rank_ ? shared.reason : str(name(rank), " ended the group: ", shared.reason);
  if (shared.late != 0) throw TimeoutError(reason);
  throw CommError(reason);
}

// The order of the two questions matters: a dead rank can no longer leave.
bool GroupEnd::died(int rank) const {
  return liveness_ && liveness_->is_dead(rank) && !has_left(rank);
}

std::vector<int> GroupEnd::dead_peers() const {
  std::vector<int> dead;
  if (!liveness_) return dead;
  for (const int rank : liveness_->dead_ranks()) {
    if (rank != rank_ && died(rank)) dead.push_back(rank);
  }
  return dead;
}

bool GroupEnd::has_left(int rank) const {
  return control_.state(rank).left.load(std::memory_order_acquire) != 0;
}

std::string GroupEnd::why_gone(int rank) const {
  if (died(rank)) return name_and_process(rank) + " died";
  return has_left(rank) ? name(rank) + " left the group" : "";
}

std::string GroupEnd::stopped_peers() const {
  std::vector<std::string> names;
  for (int rank = 0; rank < control_.size(); ++rank) {
    if (rank == rank_ || !liveness_ || !liveness_->is_stopped(rank)) continue;
    names.push_back(name_and_process(rank));
  }
  if (names.empty()) return "";
  return str(join(names), names.size() == 1 ? ", which is stopped" : ", which are stopped");
}

std::string GroupEnd::name(int rank) const {
  return str("rank ", world_ranks_.empty() ? rank : world_ranks_[static_cast<std::size_t>(rank)]);
}

std::string GroupEnd::name_and_process(int rank) const {
  return str(name(rank), " (process ", control_.state(rank).pid.load(), ")");
}

}  // namespace lockstep::shm
