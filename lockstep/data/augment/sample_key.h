// What the random choices of an augmented image depend on.
#pragma once

#include <cstdint>

#include <lockstep/core/philox.h>

namespace lockstep {

/// Which image of which pass: all that random choices depend on, beside the list of operators
/// itself.
struct SampleKey {
  std::uint64_t seed = 0;
  std::uint32_t epoch = 0;
  std::uint64_t sample = 0;
  /// How often the sample came before in the epoch, on whatever rank: an image that is drawn
  /// several times is augmented anew each time.
  std::uint32_t occurrence = 0;

  /// The numbers that the choices are made of. Two keys share them only where a data set has more
  /// than 2^32 images.
  PhiloxStream stream() const {
    return PhiloxStream(seed, epoch, sample ^ (std::uint64_t{occurrence} << 32));
  }
};

}  // namespace lockstep
