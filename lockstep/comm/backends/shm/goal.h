// What a wait waits for, and why it may wait in vain.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

#include <lockstep/comm/backends/shm/engine_state.h>
#include <lockstep/core/clock.h>

namespace lockstep::shm {

/// A message, or all chunks before `ticket`.
struct Goal {
  const Transfer* transfer = nullptr;  ///< null: wait for `ticket`
  std::uint32_t ticket = 0;
};

/// Why a wait for `goal` should end with an error: a peer is gone, or the deadline, `timeout` after
/// the wait began, has passed. The text says what this rank waited for, for whom, and what the
/// others called last. It is empty while the goal can still be reached. Sets `late` to whether the
/// reason is the deadline. Requires the engine's lock.
std::string reason_to_give_up(const EngineState& state, const Goal& goal, const Deadline& deadline,
                              std::chrono::milliseconds timeout, bool& late);

}  // namespace lockstep::shm
