// A completed or failed collective or message, as stored in the flight recorder.
#pragma once

#include <cstdint>
#include <string>

#include <lockstep/comm/call/description.h>
#include <lockstep/core/clock.h>
#include <lockstep/core/export.h>

namespace lockstep {

struct LOCKSTEP_API RecordedCall {
  std::string group{};  ///< equal on all ranks of the group
  CallDescription call{};
  /// Sequence number in the group. The number of a collective is equal on all ranks. Each rank
  /// numbers its messages separately.
  std::uint64_t number = 0;
  /// Identifies a message: equal at both of its ends and different from all other messages of the
  /// group. Empty for collectives.
  std::string message{};
  Clock::time_point begin{};  ///< time of the call
  Clock::time_point end{};    ///< when this rank noticed that the call had ended
};

}  // namespace lockstep

namespace lockstep::detail {

/// Whether the call is a message between two ranks.
inline bool is_message(const CallDescription& call) {
  return call.kind == CallKind::kSend || call.kind == CallKind::kRecv;
}

}  // namespace lockstep::detail
