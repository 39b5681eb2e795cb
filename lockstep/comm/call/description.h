// Describes a rank's call as plain data. It is stored in shared memory, where peers compare it with
// their own calls, and in the flight recorder.
#pragma once

#include <array>
#include <cstdint>
#include <string>

#include <lockstep/comm/call/algorithm.h>
#include <lockstep/comm/call/data_type.h>
#include <lockstep/comm/call/reduce_op.h>
#include <lockstep/core/export.h>

namespace lockstep {

enum class CallKind : std::uint8_t {
  kBarrier,
  kBroadcast,
  kReduce,
  kAllReduce,
  kGather,
  kAllGather,
  kScatter,
  kReduceScatter,
  kAllToAll,
  kSend,
  kRecv,
};

/// Returns the name of the call in this API and in PyTorch's: "all_reduce", "send", ...
LOCKSTEP_API const char* call_name(CallKind kind);

/// The shape of a tensor, for messages and for comparison. Sizes beyond the first kPlaces are left
/// out.
struct LOCKSTEP_API Shape {
  static constexpr std::size_t kPlaces = 6;
  std::uint8_t dimensions = 0;
  std::array<std::uint32_t, kPlaces> sizes{};
  bool channels_last = false;  ///< in channels_last memory; `sizes` are in memory order
  bool operator==(const Shape&) const = default;
};

/// Describes one call. Equal on all ranks of a correct program, except that kSend and kRecv each
/// name their peer.
struct LOCKSTEP_API CallDescription {
  CallKind kind = CallKind::kBarrier;
  detail::DataType type = detail::DataType::kByte;
  ReduceOp op;  ///< for reductions
  /// Value of `root` for an all_to_all with pieces of different sizes.
  static constexpr std::int32_t kWithSplits = -2;

  std::int32_t root = -1;   ///< the root, or for kSend and kRecv the peer (-1: any source)
  std::uint64_t count = 0;  ///< elements of one rank's piece: its input, or its output in a scatter
  Shape shape;              ///< shape of that piece
  Algorithm algorithm = Algorithm::kNative;  ///< set once chosen; kNative if not point-to-point
  bool operator==(const CallDescription&) const = default;
};

/// Describes a call in one line: "all_reduce[float32, 4]", "broadcast[float32, 2x3, root 1]",
/// "barrier", "send[int64, 10, to rank 3]", "all_reduce[float32, 4, by ring]".
LOCKSTEP_API std::string describe(const CallDescription& call);

}  // namespace lockstep
