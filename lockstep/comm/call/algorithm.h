// The names of the all-reduce algorithms.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <lockstep/core/export.h>

namespace lockstep {

/// How an all_reduce works. All but kAuto and kNative use only point-to-point messages. They run on
/// every backend but NCCL, which throws ConfigError. See docs/algorithms.md.
enum class Algorithm : std::uint8_t {
  kAuto,             ///< the fastest in measurements on this backend at this size
  kNative,           ///< the backend's own algorithm
  kReduceBroadcast,  ///< all ranks send to rank 0, which reduces and sends the result back
  kAllToAll,         ///< every rank sends everything to every rank, and each reduces
  kRing,             ///< reduce-scatter, then all-gather, around a ring
  kHalvingDoubling,  ///< recursive halving, then doubling (Rabenseifner)
  kTree,             ///< up and down a binary tree
};

/// Returns "auto", "native", "reduce-broadcast", "all-to-all", "ring", "halving-doubling" or
/// "tree".
LOCKSTEP_API const char* algorithm_name(Algorithm algorithm);
/// Returns the algorithm of this name; empty if there is none.
LOCKSTEP_API std::optional<Algorithm> algorithm_from_name(const std::string& name);
/// Every algorithm, in the order of the enumeration.
LOCKSTEP_API const std::vector<Algorithm>& all_algorithms();
/// The names of all_algorithms().
LOCKSTEP_API std::vector<std::string> algorithm_names();

}  // namespace lockstep
