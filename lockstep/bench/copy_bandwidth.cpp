#include <lockstep/bench/copy_bandwidth.h>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <numeric>
#include <thread>
#include <vector>

#include <lockstep/core/clock.h>

namespace lockstep::bench {
namespace {

// Total bytes over all threads: larger than the caches, and bounded.
constexpr std::size_t kAllBytes = 256 << 20;
constexpr std::size_t kPiece = 1 << 20;

double copy(const std::vector<std::byte>& from, std::vector<std::byte>& to, double seconds) {
  std::size_t copied = 0;
  const Clock::time_point begin = Clock::now();
  for (std::size_t at = 0; seconds_since(begin) < seconds; at = (at + kPiece) % from.size()) {
    std::memcpy(to.data() + at, from.data() + at, kPiece);
    copied += kPiece;
  }
  return 2 * static_cast<double>(copied) / seconds_since(begin);
}

}  // namespace

double copy_bandwidth(int threads, double seconds) {
  std::vector<double> rates(std::max(threads, 1));
  const std::size_t bytes = std::max(kAllBytes / rates.size() / kPiece, std::size_t{1}) * kPiece;
  std::vector<std::jthread> copiers;
  for (double& rate : rates) {
    copiers.emplace_back([&rate, seconds, bytes] {
      const std::vector<std::byte> from(bytes, std::byte{1});
      std::vector<std::byte> to(bytes, std::byte{2});
      rate = copy(from, to, seconds);
    });
  }
  copiers.clear();
  return std::accumulate(rates.begin(), rates.end(), 0.0);
}

}  // namespace lockstep::bench
