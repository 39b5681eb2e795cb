// Translates a trace into an ONNX model.
#pragma once

#include <string>
#include <vector>

#include <lockstep/export/onnx/onnx_graph.h>
#include <lockstep/export/trace/trace.h>

namespace lockstep::onnx {

struct TranslationOptions {
  int opset = 20;
  bool half = false;  ///< parameters and arithmetic in float16; inputs and outputs unchanged
  bool fold_batch_norm = true;
  std::vector<std::string> input_names{};   ///< empty: "input", or "input_0", "input_1", ...
  std::vector<std::string> output_names{};  ///< empty: "output", or "output_0", "output_1", ...
};

/// Translates `trace`. Throws a ConfigError that lists all operators that cannot be exported, each
/// with its places. Initializers share the memory of `parameters` that are unchanged.
Model translate(const Trace& trace, const NamedParameters& parameters,
                const TranslationOptions& options);

}  // namespace lockstep::onnx
