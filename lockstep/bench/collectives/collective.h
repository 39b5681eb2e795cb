// The collectives that `lockstep bench comm` times, and the definitions of their figures.
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
/// The names of all_bench_collectives().
std::vector<std::string> bench_collective_names();

/// Whether a rank's input or output is only its share of the larger buffer.
bool is_divided(BenchCollective collective);

/// Whether the result replaces the input.
bool is_in_place(BenchCollective collective);

/// The factor from algorithm bandwidth (bytes of the larger buffer over time) to bus bandwidth,
/// which is the traffic on a rank's links and independent of the number of ranks; as in nccl-tests'
/// PERFORMANCE.md. 0 for a barrier.
double bus_factor(BenchCollective collective, int ranks);

}  // namespace lockstep
