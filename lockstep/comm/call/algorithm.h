// The all-reduce algorithms by name.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace lockstep {

/// kAuto and kNative leave the choice to the backend; the others run over its point-to-point alone,
/// on every backend but NCCL (a ConfigError there), and are explained in docs/algorithms.md.
enum class Algorithm : std::uint8_t {
  kAuto,             ///< what was measured to be fastest on this backend for this size
  kNative,           ///< the backend's own
  kReduceBroadcast,  ///< everybody sends to rank 0, which adds and sends back
  kAllToAll,         ///< everybody sends everything to everybody, and adds by itself
  kRing,             ///< reduce-scatter, then all-gather, around a ring
  kHalvingDoubling,  ///< recursive halving, then doubling (Rabenseifner)
  kTree,             ///< up and down a binary tree
};

/// "auto", "native", "reduce-broadcast", "all-to-all", "ring", "halving-doubling", "tree".
const char* algorithm_name(Algorithm algorithm);
std::optional<Algorithm> algorithm_from_name(const std::string& name);
const std::vector<Algorithm>& all_algorithms();

}  // namespace lockstep
