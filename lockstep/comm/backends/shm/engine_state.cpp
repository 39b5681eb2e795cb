#include <lockstep/comm/backends/shm/engine_state.h>

#include <string>
#include <utility>

namespace lockstep::shm {

EngineState::EngineState(std::shared_ptr<Segment> segment, int own_rank, int ranks,
                         EngineOptions given)
    : options(std::move(given)),
      memory(std::move(segment)),
      control(memory->data(), ranks, options.slot_bytes),
      rank(own_rank),
      size(ranks),
      end(control, rank, options.world_ranks),
      sharing_cost(control.state(rank).sharing_cost),
      chunks(control, rank, options.small_bytes, sharing_cost, end),
      channels(control, rank, sharing_cost, options.world_ranks) {}

bool EngineState::advance() {
  bool moved = false;
  for (bool again = true; again;) {
    again = chunks.advance();
    if (!channels.idle()) {
      std::string mismatch;
      again = channels.advance(mismatch) || again;
      if (!mismatch.empty()) end.fail(mismatch);
    }
    moved = moved || again;
  }
  return moved;
}

bool EngineState::advance_and_wake() {
  end.throw_if_aborted();
  const bool moved = advance();
  if (chunks.has_sleepers_to_wake()) chunks.wake_sleepers();
  return moved;
}

void EngineState::throw_if_ended() {
  end.throw_if_aborted();
  for (int peer = 0; peer < size; ++peer) {
    if (peer == rank || !end.died(peer)) continue;
    {
      const std::scoped_lock lock(mutex);
      end.stop();
    }
    end.fail(end.why_gone(peer));
  }
}

}  // namespace lockstep::shm
