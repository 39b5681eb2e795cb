// A collective or message that has ended, as the flight recorder remembers it.
#pragma once

#include <cstdint>
#include <string>

#include <lockstep/comm/call/description.h>
#include <lockstep/core/clock.h>

namespace lockstep {

struct RecordedCall {
  std::string group{};  ///< the same name on all its ranks
  CallDescription call{};
  /// Counts the group's collectives, alike on all ranks, and its messages apart, on each rank
  /// alone.
  std::uint64_t number = 0;
  /// The name of a message, the same at both of its ends and of no other message of the group.
  /// Empty for collectives.
  std::string message{};
  Clock::time_point begin{};  ///< when it was called
  Clock::time_point end{};    ///< when this rank saw that it had ended
};

/// Whether the call is a message between two ranks.
inline bool is_message(const CallDescription& call) {
  return call.kind == CallKind::kSend || call.kind == CallKind::kRecv;
}

}  // namespace lockstep
