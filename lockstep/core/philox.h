// Philox4x32-10: random numbers as a function of (key, counter), not as a state.
//
// Salmon, Moraes, Dror, Shaw: "Parallel random numbers: as easy as 1, 2, 3", SC 2011. The numbers
// of a sample follow from (seed, epoch, sample index), so they can be computed in any order and on
// any thread.
#pragma once

#include <array>
#include <cstdint>

#include <lockstep/core/export.h>

namespace lockstep {

/// Ten rounds of Philox over `counter` with `key`: four independent 32-bit words.
constexpr std::array<std::uint32_t, 4> philox4x32(std::array<std::uint32_t, 4> counter,
                                                  std::array<std::uint32_t, 2> key) {
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t product0 = std::uint64_t{0xD2511F53} * counter[0];
    const std::uint64_t product1 = std::uint64_t{0xCD9E8D57} * counter[2];
    counter = {static_cast<std::uint32_t>(product1 >> 32) ^ counter[1] ^ key[0],
               static_cast<std::uint32_t>(product1),
               static_cast<std::uint32_t>(product0 >> 32) ^ counter[3] ^ key[1],
               static_cast<std::uint32_t>(product0)};
    key[0] += 0x9E3779B9;
    key[1] += 0xBB67AE85;
  }
  return counter;
}

/// A stream of numbers that belongs to one (seed, stream, item): for instance (seed, epoch,
/// sample). A value type; copying it copies the position.
class LOCKSTEP_API PhiloxStream {
 public:
  PhiloxStream(std::uint64_t seed, std::uint32_t stream, std::uint64_t item)
      : key_{static_cast<std::uint32_t>(seed), static_cast<std::uint32_t>(seed >> 32)},
        counter_{0, stream, static_cast<std::uint32_t>(item),
                 static_cast<std::uint32_t>(item >> 32)} {}

  /// 32 random bits.
  std::uint32_t next() {
    if (used_ == 4) {
      block_ = philox4x32(counter_, key_);
      ++counter_[0];
      used_ = 0;
    }
    return block_[used_++];
  }
  /// Uniform in [0, 1), with 24 bits.
  float uniform() { return static_cast<float>(next() >> 8) * 0x1.0p-24F; }
  /// Uniform in [low, high).
  float uniform(float low, float high) { return low + (high - low) * uniform(); }
  /// Uniform integer in [0, bound): the high half of a product (Lemire), bias below bound / 2^32.
  std::uint32_t below(std::uint32_t bound) {
    return static_cast<std::uint32_t>((std::uint64_t{next()} * bound) >> 32);
  }

 private:
  std::array<std::uint32_t, 2> key_;
  std::array<std::uint32_t, 4> counter_;
  std::array<std::uint32_t, 4> block_{};
  int used_ = 4;
};

}  // namespace lockstep
