// A model as a table: its parts, their numbers of parameters, and their output shapes.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <lockstep/core/export.h>

namespace lockstep {

/// The sizes of a module's output, batch dimension first.
using OutputShape = std::vector<std::int64_t>;

/// A module of the model. Counts are numbers of scalars in the module and its descendants; a tensor
/// that occurs several times counts once.
struct LOCKSTEP_API ModuleSummary {
  std::string name{};          ///< "layer1.0.conv1"; empty for the model itself
  std::string type{};          ///< its class without namespaces: "Conv2d"
  int depth = 0;               ///< 0 for the model itself
  std::int64_t trainable = 0;  ///< scalars of parameters that require a gradient
  std::int64_t frozen = 0;     ///< scalars of the other parameters
  /// Output shape of the module's last call in the forward. Empty if unknown: LibTorch's modules
  /// have no hooks that could report it (summarize.h lists the known shapes).
  OutputShape output_shape{};
  /// Only if `output_shape` is unknown, and only for a module with a forward() of its own: the
  /// shape of the last operation that used one of its layers or parameters. Operations without
  /// parameters, such as a pooling function, may have followed in the module.
  OutputShape last_operation_shape{};
};

struct LOCKSTEP_API ModelSummary {
  std::vector<ModuleSummary> modules{};  ///< the model, then its parts in pre-order
  std::int64_t trainable = 0;  ///< count for the whole model, including parts not in `modules`
  std::int64_t frozen = 0;
  std::int64_t parameter_bytes = 0;
  std::int64_t buffer_bytes = 0;  ///< running statistics and the like
};

}  // namespace lockstep
