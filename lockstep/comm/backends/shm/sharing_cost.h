// The cost of reading data that another processor has just written.
//
// The cost is about 30 ns if the two processors share a cache and several times that if they do
// not. It can change while a virtual machine runs, because its processors may be moved. If the cost
// is high, data for peers is better written with streaming stores and read from memory, where
// prefetching hides the latency, than transferred line by line between caches. In measurements,
// streaming was 3 to 4 times as fast where the cost is high, and half as fast where it is low.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include <lockstep/comm/waiting/futex.h>
#include <lockstep/core/clock.h>

namespace lockstep::shm {

/// A moving average of one rank's cost, sampled occasionally. The reading rank measures it; peers
/// that write data for that rank act on it. It lies in shared memory and only its rank writes it.
class SharingCost {
 public:
  explicit SharingCost(Word& shared) : shared_(shared) {}

  /// Pieces smaller than this are always written through the caches.
  static constexpr std::size_t kLeastBytes = std::size_t{16} << 10;

  /// Reads the line at `written`, which a peer has just written, and adds the time to the average.
  void note(const void* written) {
    const auto start = Clock::now();
    (void)*static_cast<const volatile std::byte*>(written);
    const auto took =
        std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now() - start).count();
    const auto bounded = static_cast<std::uint32_t>(std::min<std::int64_t>(took, kMostNanoseconds));
    const std::uint32_t before = shared_.load(std::memory_order_relaxed);
    shared_.store(before - before / kWeight + bounded * kScale / kWeight,
                  std::memory_order_relaxed);
  }

  /// Whether data for a rank with this average should be written with streaming stores.
  static bool is_dear(const Word& of_reader) {
    return of_reader.load(std::memory_order_relaxed) > kDearNanoseconds * kScale;
  }

 private:
  static constexpr std::uint32_t kDearNanoseconds = 100;  // includes 20 to 25 ns for the clock
  static constexpr std::int64_t kMostNanoseconds = 2000;  // caps samples that were interrupted
  static constexpr std::uint32_t kWeight = 8;
  static constexpr std::uint32_t kScale = 1024;

  Word& shared_;
};

}  // namespace lockstep::shm
