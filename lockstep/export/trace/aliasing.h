// Detects in-place writes that affect values other than the one written to.
#pragma once

#include <string>

#include <lockstep/export/trace/module_locations.h>
#include <lockstep/export/trace/recording.h>

namespace lockstep::onnx {

/// An ONNX graph has no memory: an in-place operation becomes a new value. The two are equivalent
/// as long as neither the old value nor a view of its memory is used afterwards. Throws
/// ConfigError, which names all places, if one is used, or if a parameter or buffer is written to.
/// `inputs` is the number of the graph's inputs that are not parameters.
void require_plain_writes(const torch::jit::Graph& graph, std::size_t inputs,
                          const NamedParameters& parameters, const ModuleLocations& locations);

/// Whether an operation, such as "aten::dropout", returns its first argument itself unless its
/// third argument says that it is training.
bool is_dropout(const std::string& name);

}  // namespace lockstep::onnx
