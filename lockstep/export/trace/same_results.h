// Whether recorded operations compute what forward() returned.
#pragma once

#include <string>

#include <lockstep/export/trace/recording.h>

namespace lockstep::onnx {

/// One run of forward().
struct Run {
  std::string condition{};  ///< what was special about the inputs: "other values"
  Tensors inputs{};
  Recording recording{};
};

/// Computes `operations`, the recording of this run or of one with the same operations, with the
/// run's inputs. ConfigError when forward() returned something else, which names the first
/// operation whose result differs. To find it forward() runs once more, while the results of all
/// operations are held in memory.
void require_same_results(const Recording& operations, const Run& run, const Forward& forward,
                          const NamedParameters& parameters);

}  // namespace lockstep::onnx
