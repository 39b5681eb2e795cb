#include <lockstep/comm/backends/shm/goal.h>

#include <lockstep/core/strings.h>

namespace lockstep::shm {
namespace {

// A timeout reports the last operation of at most this number of ranks.
constexpr int kMostRanksReported = 16;

std::string text_of(const EngineState& state, const Goal& goal) {
  return goal.transfer != nullptr ? describe(goal.transfer->call) : state.chunks.oldest();
}

// The death of any rank ends the group. A rank that left has done its part of everything that it
// could do, and stands in the way only if its word is the one that is missing.
std::string why_chunks_stop(const EngineState& state) {
  if (const auto blocked = state.chunks.blocker()) {
    std::string reason = state.end.why_gone(blocked->rank);
    // The rank may have done its part just before it left.
    const bool still = blocked->word->load(std::memory_order_acquire) == blocked->seen;
    if (still && !reason.empty()) return reason;
  }
  const std::vector<int> dead = state.end.dead_peers();
  return dead.empty() ? "" : state.end.why_gone(dead[0]);
}

// A death ends the group even if a receive from any rank could take another rank's message.
std::string why_message_stops(const EngineState& state, const Transfer& transfer) {
  std::string reason;
  bool all_left = true;
  for (int peer = 0; peer < state.size; ++peer) {
    if (peer == state.rank || !Channels::needs(transfer, peer)) continue;
    const std::string gone = state.end.why_gone(peer);
    if (!gone.empty() && !state.end.has_left(peer)) return gone;
    if (gone.empty()) all_left = false;
    reason = gone.empty() ? reason : gone;
  }
  return all_left ? reason : "";
}

std::string why_gone(const EngineState& state, const Goal& goal) {
  return goal.transfer == nullptr ? why_chunks_stop(state)
                                  : why_message_stops(state, *goal.transfer);
}

std::string last_call(const EngineState& state, int rank) {
  const RankState& theirs = state.control.state(rank);
  const std::uint32_t arrived = theirs.arrived.load(std::memory_order_acquire);
  const auto transfer = theirs.last_transfer.read();
  if (arrived == 0 && !transfer) return "has called nothing yet";
  std::string text = "last called ";
  if (arrived != 0) text += describe(theirs.chunks[(arrived - 1) % kRing]);
  if (transfer) text += str(arrived != 0 ? " and " : "", describe(*transfer));
  return text;
}

// Such as " for rank 1 (process 4711) to arrive at it; rank 1 last called barrier (operation 3)".
std::string awaited_ranks(const EngineState& state, const Goal& goal) {
  std::string text;
  int first = -1;  // the rank that is waited for, which is reported first
  if (goal.transfer == nullptr) {
    const auto blocked = state.chunks.blocker();
    if (!blocked) return "";
    first = blocked->rank;
    text = str(" for ", state.end.name_and_process(first), " to ", blocked->verb, " it; ");
  } else {
    // A message waits for one rank, which may itself wait for another.
    const std::string stopped = state.end.stopped_peers();
    text = stopped.empty() ? "; " : str(" for ", stopped, "; ");
  }
  int reported = 0;
  const char* separator = "";
  for (int peer = -1; peer < state.size && reported < kMostRanksReported; ++peer) {
    const int rank = peer < 0 ? first : peer;
    if (rank < 0 || rank == state.rank || (peer == first && peer >= 0)) continue;
    text += str(separator, state.end.name(rank), " ", last_call(state, rank));
    separator = "; ";
    ++reported;
  }
  return text;
}

}  // namespace

std::string reason_to_give_up(const EngineState& state, const Goal& goal, const Deadline& deadline,
                              std::chrono::milliseconds timeout, bool& late) {
  const std::string gone = why_gone(state, goal);
  const std::string own = state.end.name(state.rank);
  late = gone.empty() && deadline.expired();
  if (!gone.empty()) return str(gone, " while ", own, " was in ", text_of(state, goal));
  if (!late) return "";
  return str(own, " waited ", static_cast<double>(timeout.count()) / 1e3, " s in ",
             text_of(state, goal), awaited_ranks(state, goal));
}

}  // namespace lockstep::shm
