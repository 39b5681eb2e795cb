// The samples of one batch.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include <lockstep/data/augment/sample_key.h>

namespace lockstep {

/// The samples that a batch shall hold, and what their random choices depend on. Valid during the
/// call that gets it.
struct BatchRequest {
  std::uint64_t seed = 0;  ///< LoaderOptions::seed
  std::int64_t epoch = 0;
  std::span<const std::int64_t> indices{};       ///< in the data set, in the batch's order
  std::span<const std::uint32_t> occurrences{};  ///< as in EpochShare; empty: each is the first

  /// The number of samples.
  std::int64_t size() const { return static_cast<std::int64_t>(indices.size()); }

  /// What the random choices of sample number `i` of the batch depend on.
  SampleKey key(std::size_t i) const {
    return {.seed = seed,
            .epoch = static_cast<std::uint32_t>(epoch),
            .sample = static_cast<std::uint64_t>(indices[i]),
            .occurrence = occurrences.empty() ? 0 : occurrences[i]};
  }
};

}  // namespace lockstep
