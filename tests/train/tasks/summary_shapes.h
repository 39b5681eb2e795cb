// The output shapes of a model summary, for tests.
#pragma once

#include <map>
#include <string>

#include <lockstep/train/task/model_summary.h>

namespace lockstep::train {

inline std::map<std::string, OutputShape> shapes_by_name(const ModelSummary& summary) {
  std::map<std::string, OutputShape> shapes;
  for (const ModuleSummary& module : summary.modules) shapes[module.name] = module.output_shape;
  return shapes;
}

inline std::map<std::string, OutputShape> last_operations_by_name(const ModelSummary& summary) {
  std::map<std::string, OutputShape> shapes;
  for (const ModuleSummary& module : summary.modules) {
    if (!module.last_operation_shape.empty()) shapes[module.name] = module.last_operation_shape;
  }
  return shapes;
}

}  // namespace lockstep::train
