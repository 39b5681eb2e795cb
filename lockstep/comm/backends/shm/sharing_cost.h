// The cost of reading data that another processor has just written.
//
// Some 30 ns where the two share a cache, several times that where they do not (and a virtual
// machine's processors may move apart while it runs). Where it is dear, data for others is better
// written past the caches and read from memory, which prefetching hides, than handed over line by
// line: that was measured as 3 to 4 times as fast, and half as fast where it is cheap.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include <lockstep/comm/waiting/futex.h>
#include <lockstep/core/clock.h>

namespace lockstep::shm {

/// An average that follows what is read now and then. Readers notice it, writers act on it: it lies
/// in shared memory, written by its rank alone.
class SharingCost {
 public:
  explicit SharingCost(Word& shared) : shared_(shared) {}

  /// Data in pieces smaller than this is handed over through the caches in any case.
  static constexpr std::size_t kLeastBytes = std::size_t{16} << 10;

  /// Reads the line at `written`, which a peer has just written, and notes how long that takes.
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

  /// Whether what a rank with this average reads should be written past the caches.
  static bool is_dear(const Word& of_reader) {
    return of_reader.load(std::memory_order_relaxed) > kDearNanoseconds * kScale;
  }

 private:
  static constexpr std::uint32_t kDearNanoseconds = 100;  // the clock's 20 to 25 ns included
  static constexpr std::int64_t kMostNanoseconds = 2000;  // an interruption is not a cost
  static constexpr std::uint32_t kWeight = 8;
  static constexpr std::uint32_t kScale = 1024;

  Word& shared_;
};

}  // namespace lockstep::shm
