// The element types of ONNX's operators.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <lockstep/core/error.h>
#include <lockstep/export/onnx/onnx_graph.h>

namespace lockstep::onnx {

/// Thrown for an operation, or a use of one, that has no lowering. The translator collects these
/// errors and reports them together.
class Unsupported : public Error {
 public:
  using Error::Error;
};

/// "float32", "int64", ...
std::string type_name(ElementType type);

/// The type in which onnxruntime can compute `op_type` for values of `type`: `type` itself, or
/// another one that holds all its values and gives the same result after a conversion back. None if
/// there is no such type. Both ONNX's definition in `opset` and onnxruntime's processor kernels
/// count: a model that only satisfies the first is refused when it is loaded.
std::optional<ElementType> computable_type(std::string_view op_type, ElementType type, int opset);

/// The types of a node's outputs, for the types of its inputs.
std::vector<ElementType> output_types(const OnnxNode& node, const std::vector<ElementType>& inputs,
                                      std::size_t outputs);

/// Index of the input whose type decides in which type the node is computed.
std::size_t deciding_input(std::string_view op_type);

/// Indices of those of a node's `count` inputs that must have one type, beginning with the deciding
/// one.
std::vector<std::size_t> inputs_of_one_type(std::string_view op_type, std::size_t count);

}  // namespace lockstep::onnx
