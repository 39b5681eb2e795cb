// The key of a sample, on which the random choices of its augmentation depend.
#pragma once

#include <cstdint>

#include <lockstep/core/export.h>
#include <lockstep/core/philox.h>

namespace lockstep {

/// A sample and its epoch. Random choices depend only on this key and the list of operators.
struct LOCKSTEP_API SampleKey {
  std::uint64_t seed = 0;
  std::uint32_t epoch = 0;
  std::uint64_t sample = 0;
  /// How often the sample has already occurred in the epoch, on any rank: an image that is drawn
  /// several times is augmented anew each time.
  std::uint32_t occurrence = 0;

  /// The random numbers for the choices. Two keys can share them only in a data set of more than
  /// 2^32 images.
  PhiloxStream stream() const {
    return PhiloxStream(seed, epoch, sample ^ (std::uint64_t{occurrence} << 32));
  }
};

}  // namespace lockstep
