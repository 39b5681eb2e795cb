// The all-reduce algorithms by name.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace lockstep {

/// kAuto and kNative leave the choice to the backend. The others run over point-to-point alone, on
/// every backend but NCCL (ConfigError there), and are explained in docs/algorithms.md.
enum class Algorithm : std::uint8_t {
  kAuto,             ///< the fastest in measurements on this backend at this size
  kNative,           ///< the backend's own algorithm
  kReduceBroadcast,  ///< all ranks send to rank 0, which reduces and sends the result back
  kAllToAll,         ///< every rank sends everything to every rank, and each reduces
  kRing,             ///< reduce-scatter, then all-gather, around a ring
  kHalvingDoubling,  ///< recursive halving, then doubling (Rabenseifner)
  kTree,             ///< up and down a binary tree
};

/// "auto", "native", "reduce-broadcast", "all-to-all", "ring", "halving-doubling", "tree".
const char* algorithm_name(Algorithm algorithm);
std::optional<Algorithm> algorithm_from_name(const std::string& name);
const std::vector<Algorithm>& all_algorithms();

}  // namespace lockstep
