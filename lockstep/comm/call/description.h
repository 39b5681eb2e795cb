// What a rank calls, as plain data: it lies in shared memory, where peers compare it with what they
// call, and in the flight recorder.
#pragma once

#include <array>
#include <cstdint>
#include <string>

#include <lockstep/comm/call/algorithm.h>
#include <lockstep/comm/call/data_type.h>
#include <lockstep/comm/call/reduce_op.h>

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

/// "all_reduce", "send", ...: the name of the call in our API and in PyTorch's.
const char* call_name(CallKind kind);

/// Shape of a tensor, for messages and for comparison; sizes beyond the last place are left out.
struct Shape {
  static constexpr std::size_t kPlaces = 6;
  std::uint8_t dimensions = 0;
  std::array<std::uint32_t, kPlaces> sizes{};
  bool channels_last = false;  ///< in memory the channels come last; `sizes` are in that order
  bool operator==(const Shape&) const = default;
};

/// Equal on all ranks of a correct program (of kSend and kRecv: each names its peer).
struct CallDescription {
  CallKind kind = CallKind::kBarrier;
  DataType type = DataType::kByte;
  ReduceOp op;  ///< of reductions
  /// Instead of a root, of an all_to_all whose pieces differ from pair to pair.
  static constexpr std::int32_t kWithSplits = -2;

  std::int32_t root = -1;  ///< of rooted collectives; the peer of kSend and kRecv (-1: any source)
  std::uint64_t count =
      0;        ///< elements of one rank's piece: what it gives, or of a scatter what it gets
  Shape shape;  ///< of that piece
  Algorithm algorithm = Algorithm::kNative;  ///< of an all_reduce by messages, once it is chosen
  bool operator==(const CallDescription&) const = default;
};

/// "all_reduce[float32, 4]", "broadcast[float32, 2x3, root 1]", "barrier", "send[int64, 10, to rank
/// 3]", "all_reduce[float32, 4, by ring]".
std::string describe(const CallDescription& call);

/// A hash of a text that describes a call (FNV-1a, 32 bits): equal in every process that runs the
/// same program, and almost certainly different for another text.
std::uint32_t fingerprint(const std::string& text);

}  // namespace lockstep
