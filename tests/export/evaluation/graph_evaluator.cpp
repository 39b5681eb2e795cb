#include <tests/export/evaluation/graph_evaluator.h>

#include <algorithm>
#include <stdexcept>
#include <utility>
#include <variant>

#include <torch/types.h>

#include <lockstep/core/strings.h>
#include <lockstep/export/lowering/supported_types.h>

namespace lockstep::testing_support {
namespace {

using torch::Tensor;

at::ScalarType scalar_type_of_element(onnx::ElementType type) {
  switch (type) {
    case onnx::ElementType::kFloat:
      return at::kFloat;
    case onnx::ElementType::kDouble:
      return at::kDouble;
    case onnx::ElementType::kFloat16:
      return at::kHalf;
    case onnx::ElementType::kBool:
      return at::kBool;
    case onnx::ElementType::kUint8:
      return at::kByte;
    case onnx::ElementType::kInt8:
      return at::kChar;
    case onnx::ElementType::kInt16:
      return at::kShort;
    case onnx::ElementType::kInt32:
      return at::kInt;
    case onnx::ElementType::kInt64:
      return at::kLong;
    default:
      throw std::logic_error("no graph of the tests has this type of elements");
  }
}

// A copy, because the graph's bytes are constant.
Tensor tensor_of(const onnx::TensorData& data) {
  const Tensor tensor = at::empty(data.sizes, scalar_type_of_element(data.type));
  if (tensor.nbytes() != data.bytes.size()) {
    throw std::logic_error(data.name + " has another number of bytes than its sizes");
  }
  std::copy(data.bytes.begin(), data.bytes.end(), static_cast<std::byte*>(tensor.data_ptr()));
  return tensor;
}

void require_types_of_inputs(const onnx::OnnxNode& node, const Tensors& inputs) {
  const std::size_t deciding = onnx::deciding_input(node.op_type);
  if (deciding >= inputs.size()) throw std::logic_error(node.name + " lacks an input");
  for (const std::size_t i : onnx::inputs_of_one_type(node.op_type, inputs.size())) {
    if (!inputs[i].defined() || inputs[i].scalar_type() == inputs[deciding].scalar_type()) continue;
    throw std::logic_error(str(node.name, ": input ", i, " is of another type"));
  }
}

Tensors converted(const Tensors& tensors, at::ScalarType from, at::ScalarType to) {
  Tensors result;
  for (const Tensor& each : tensors) {
    const bool is_other = each.defined() && each.scalar_type() == from;
    result.push_back(is_other ? each.to(to) : each);
  }
  return result;
}

EvaluateNode evaluation_of(const std::string& op_type) {
  for (const NodeEvaluations* table :
       {&elementwise_evaluations(), &shape_evaluations(), &sum_evaluations()}) {
    const auto found = table->find(op_type);
    if (found != table->end()) return found->second;
  }
  throw std::logic_error("the evaluator of the tests lacks " + op_type);
}

Tensors results_of(const onnx::OnnxNode& node, const Tensors& inputs) {
  require_types_of_inputs(node, inputs);
  const EvaluateNode evaluation = evaluation_of(node.op_type);
  const bool is_half = std::any_of(inputs.begin(), inputs.end(), [](const Tensor& input) {
    return input.defined() && input.scalar_type() == at::kHalf;
  });
  if (!is_half || node.op_type == "Cast") return evaluation({node, inputs});
  const Tensors wide = converted(inputs, at::kHalf, at::kFloat);
  return converted(evaluation({node, wide}), at::kFloat, at::kHalf);
}

}  // namespace

template <class Value>
Value NodeArguments::attribute(const std::string& name, Value otherwise) const {
  for (const onnx::Attribute& each : node_.attributes) {
    if (each.name == name) return std::get<Value>(each.value);
  }
  return otherwise;
}

std::vector<std::int64_t> NodeArguments::elements(std::size_t i) const {
  const Tensor numbers = inputs_.at(i).contiguous();
  if (numbers.scalar_type() != at::kLong) {
    throw std::logic_error(str(node_.name, ": input ", i, " is not of int64"));
  }
  const auto* const first = numbers.const_data_ptr<std::int64_t>();
  return {first, first + numbers.numel()};
}

std::int64_t NodeArguments::integer(const std::string& name, std::int64_t otherwise) const {
  return attribute<std::int64_t>(name, otherwise);
}
double NodeArguments::number(const std::string& name, double otherwise) const {
  return attribute<float>(name, static_cast<float>(otherwise));
}
std::string NodeArguments::text(const std::string& name, const std::string& otherwise) const {
  return attribute<std::string>(name, otherwise);
}
std::vector<std::int64_t> NodeArguments::integers(const std::string& name) const {
  return attribute<std::vector<std::int64_t>>(name, {});
}
std::vector<std::string> NodeArguments::texts(const std::string& name) const {
  return attribute<std::vector<std::string>>(name, {});
}

Tensors evaluate(const onnx::Graph& graph, const Tensors& inputs) {
  std::map<std::string, Tensor> values = {{"", Tensor()}};  // an omitted input
  for (const onnx::TensorData& each : graph.initializers) values[each.name] = tensor_of(each);
  for (std::size_t i = 0; i < graph.inputs.size(); ++i) {
    values[graph.inputs[i].name] = inputs.at(i);
  }
  const auto value = [&values](const std::string& name) {
    const auto found = values.find(name);
    if (found == values.end()) throw std::logic_error("nothing makes the value " + name);
    return found->second;
  };
  for (const onnx::OnnxNode& node : graph.nodes) {
    Tensors arguments;
    for (const std::string& name : node.inputs) arguments.push_back(value(name));
    Tensors results;
    try {
      results = results_of(node, arguments);
    } catch (const std::exception& error) {
      throw std::logic_error(str(node.name, " (", node.op_type, "): ", error.what()));
    }
    for (std::size_t k = 0; k < node.outputs.size(); ++k) values[node.outputs[k]] = results.at(k);
  }
  Tensors outputs;
  for (const onnx::ValueInfo& output : graph.outputs) {
    outputs.push_back(value(output.name));
    if (outputs.back().scalar_type() != scalar_type_of_element(output.type)) {
      throw std::logic_error("the output " + output.name + " is of another type than it says");
    }
  }
  return outputs;
}

}  // namespace lockstep::testing_support
