// A model as a table: its parts, how many parameters each of them has, and what it returns.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace lockstep {

/// The sizes of a tensor, the batch's first; of a module's output.
using OutputShape = std::vector<std::int64_t>;

/// A module of the model. Counts are of scalars in the module and all that is below it, where a
/// tensor that occurs several times counts once.
struct ModuleSummary {
  std::string name{};          ///< "layer1.0.conv1"; empty for the model itself
  std::string type{};          ///< its class without namespaces: "Conv2d"
  int depth = 0;               ///< 0 for the model itself
  std::int64_t trainable = 0;  ///< scalars of parameters that require a gradient
  std::int64_t frozen = 0;     ///< scalars of the other parameters
  /// Of the last call in the forward. Empty where it is not known: LibTorch's modules have no hooks
  /// (summarize.h says what is seen).
  OutputShape output_shape{};
};

struct ModelSummary {
  std::vector<ModuleSummary> modules{};  ///< the model, then its parts, each before its own parts
  std::int64_t trainable = 0;            ///< of the whole model, whatever `modules` leaves out
  std::int64_t frozen = 0;
  std::int64_t parameter_bytes = 0;
  std::int64_t buffer_bytes = 0;  ///< running statistics and the like
};

}  // namespace lockstep
