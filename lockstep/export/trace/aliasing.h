// Writes that change another value than the one written to.
#pragma once

#include <lockstep/export/trace/places.h>
#include <lockstep/export/trace/recording.h>

namespace lockstep::onnx {

/// A graph of ONNX has no memory: an operation in place is a new value. That is the same as long as
/// nobody looks at the old value, or at a view of its memory. ConfigError, which names all places,
/// where somebody does, and where a parameter or buffer is written to. `inputs` is the number of
/// the graph's inputs that are no parameters.
void require_plain_writes(const torch::jit::Graph& graph, std::size_t inputs,
                          const NamedParameters& parameters, const Places& places);

}  // namespace lockstep::onnx
