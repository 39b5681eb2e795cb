#include <lockstep/comm/algorithms/choice.h>

#include <algorithm>

namespace lockstep::comm {
namespace {

constexpr std::size_t kKiB = 1024;
constexpr std::size_t kMiB = 1024 * kKiB;

}  // namespace

// While the gathered data is small, gathering is faster than the algorithms over point-to-point.
// For reductions that a backend supports, its own algorithm works in smaller pieces than they do.
Algorithm choose_algorithm(bool gathers, int ranks, std::size_t bytes) {
  if (!gathers) return Algorithm::kNative;
  if (bytes <= kMiB / static_cast<std::size_t>(std::max(ranks, 1))) return Algorithm::kNative;
  return ranks == 2 ? Algorithm::kAllToAll : Algorithm::kRing;
}

std::size_t default_chunk(Algorithm algorithm, const BackendTraits& backend, int size,
                          std::size_t element_bytes) {
  const auto peers = static_cast<std::size_t>(std::max(size - 1, 1));
  switch (algorithm) {
    // Limits the data received from all peers together to 8 MiB, which fits into a cache.
    case Algorithm::kAllToAll:
      return std::max(8 * kMiB / peers, 256 * kKiB) / element_bytes;
    case Algorithm::kTree:
      return (backend.slow_messages ? 4 * kMiB : 256 * kKiB) / element_bytes;
    default:
      return 0;
  }
}

}  // namespace lockstep::comm
