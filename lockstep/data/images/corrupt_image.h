// Images that cannot be read: the policy for them, and how results describe one.
#pragma once

#include <cstdint>
#include <string>

#include <lockstep/core/export.h>

namespace lockstep {

/// The policy for an image that cannot be read.
enum class OnCorruptImage {
  kStop,  ///< Throw a DataError that names the file.
  /// Leave the image out, so that a Loader's batch has one image fewer. The first ten images are
  /// named in warnings, and all are counted. A batch without any readable image still stops the
  /// run, because all ranks must do the same number of steps.
  kSkip,
};

/// An image that cannot be read, or, in ImagesCheck::odd, one that other programs may reject.
struct LOCKSTEP_API CorruptImage {
  std::int64_t index = 0;  ///< index in the data set
  std::string reason{};    ///< one line that names the file
};

}  // namespace lockstep
