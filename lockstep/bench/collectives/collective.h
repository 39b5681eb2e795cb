// The collectives that `lockstep bench comm` times, and how their figures are counted.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace lockstep {

enum class BenchCollective : std::uint8_t {
  kAllReduce,
  kBroadcast,
  kReduce,
  kAllGather,
  kGather,
  kScatter,
  kReduceScatter,
  kAllToAll,
  kSendRecv,  ///< rank 0 to rank 1
  kBarrier,
};

/// "all_reduce", ..., "send_recv", "barrier".
const char* bench_collective_name(BenchCollective collective);
std::optional<BenchCollective> bench_collective_from_name(const std::string& name);
const std::vector<BenchCollective>& all_bench_collectives();

/// Whether a rank gives or gets only its share of the larger buffer.
bool is_divided(BenchCollective collective);

/// Whether the result replaces what was given.
bool is_in_place(BenchCollective collective);

/// What the algorithm bandwidth (bytes of the larger buffer over time) is multiplied with to get
/// the bus bandwidth, which the wires of a rank carry whatever the number of ranks; as in
/// nccl-tests' PERFORMANCE.md. 0 of a barrier.
double bus_factor(BenchCollective collective, int ranks);

}  // namespace lockstep
