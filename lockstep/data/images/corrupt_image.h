// Images that cannot be decoded: what is done about them, and how they are named.
#pragma once

#include <cstdint>
#include <string>

namespace lockstep {

/// What happens to an image that cannot be read.
enum class OnCorruptImage {
  kStop,  ///< A DataError names the file.
  /// It is left out and named. A Loader's batch is smaller by one: the first ten are named in
  /// warnings, and all are counted. A batch without any image that can be read stops the run all
  /// the same: the ranks must do the same steps.
  kSkip,
};

struct CorruptImage {
  std::int64_t index = 0;  ///< in the data set
  std::string reason{};    ///< one line that names the file
};

}  // namespace lockstep
