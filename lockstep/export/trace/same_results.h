// Checks that recorded operations compute what forward() returned.
#pragma once

#include <string>

#include <lockstep/export/trace/recording.h>

namespace lockstep::onnx {

/// One run of forward().
struct Run {
  std::string condition{};  ///< how the inputs differed: "other values"
  Tensors inputs{};
  Recording recording{};
};

/// Computes `operations`, the recording of `run` or of another run with the same operations, on the
/// inputs of `run`. If forward() returned something else, throws a ConfigError that names the first
/// operation whose result differs. To find it, forward() runs once more, with the results of all
/// operations held in memory.
void require_same_results(const Recording& operations, const Run& run, const Forward& forward,
                          const NamedParameters& parameters);

}  // namespace lockstep::onnx
