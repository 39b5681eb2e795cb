// The samples of one batch.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include <lockstep/core/export.h>
#include <lockstep/data/augment/sample_key.h>

namespace lockstep {

/// The samples that a batch must hold, and the keys of their random choices. Valid only during the
/// call that receives it.
struct LOCKSTEP_API BatchRequest {
  std::uint64_t seed = 0;  ///< LoaderOptions::seed
  std::int64_t epoch = 0;
  std::span<const std::int64_t>
      indices{};  ///< the samples' indices in the data set, in batch order
  std::span<const std::uint32_t> occurrences{};  ///< as in EpochShare; empty: all are 0

  /// The number of samples.
  std::int64_t size() const { return static_cast<std::int64_t>(indices.size()); }

  /// The key for the random choices of sample number `i` of the batch.
  SampleKey key(std::size_t i) const {
    return {.seed = seed,
            .epoch = static_cast<std::uint32_t>(epoch),
            .sample = static_cast<std::uint64_t>(indices[i]),
            .occurrence = occurrences.empty() ? 0 : occurrences[i]};
  }
};

}  // namespace lockstep
