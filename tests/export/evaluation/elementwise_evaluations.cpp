// Operators on single elements.
#include <optional>
#include <stdexcept>
#include <string>

#include <torch/types.h>

#include <tests/export/evaluation/graph_evaluator.h>

namespace lockstep::testing_support {
namespace {

using torch::Tensor;

template <Tensor (Tensor::*kMethod)() const>
Tensors unary(const NodeArguments& node) {
  return {(node[0].*kMethod)()};
}

template <Tensor (Tensor::*kMethod)(const Tensor&) const>
Tensors binary(const NodeArguments& node) {
  return {(node[0].*kMethod)(node[1])};
}

Tensors add(const NodeArguments& node) { return {node[0] + node[1]}; }
Tensors subtract(const NodeArguments& node) { return {node[0] - node[1]}; }

// Quotients of whole numbers are rounded towards zero.
Tensors divide(const NodeArguments& node) {
  if (node[0].is_floating_point()) return {node[0] / node[1]};
  return {node[0].div(node[1], "trunc")};
}

Tensors modulo(const NodeArguments& node) {
  const bool has_sign_of_first = node.integer("fmod", 0) == 1;
  return {has_sign_of_first ? node[0].fmod(node[1]) : node[0].remainder(node[1])};
}

Tensors largest_of(const NodeArguments& node) {
  Tensor result = node[0];
  for (std::size_t i = 1; i < node.count(); ++i) result = at::maximum(result, node[i]);
  return {result};
}

Tensors smallest_of(const NodeArguments& node) {
  Tensor result = node[0];
  for (std::size_t i = 1; i < node.count(); ++i) result = at::minimum(result, node[i]);
  return {result};
}

Tensors clip(const NodeArguments& node) {
  std::optional<at::Scalar> low;
  std::optional<at::Scalar> high;
  if (node.has(1)) low = node[1].item();
  if (node.has(2)) high = node[2].item();
  return {node[0].clamp(low, high)};
}

Tensors choose(const NodeArguments& node) { return {at::where(node[0], node[1], node[2])}; }

Tensors is_infinite(const NodeArguments& node) {
  Tensor counted = at::zeros_like(node[0], at::kBool);
  if (node.integer("detect_negative", 1) == 1) counted = counted.logical_or(node[0] < 0);
  if (node.integer("detect_positive", 1) == 1) counted = counted.logical_or(node[0] > 0);
  return {node[0].isinf().logical_and(counted)};
}

// The numbers are those of TensorProto.DataType.
Tensors convert(const NodeArguments& node) {
  switch (node.integer("to", 0)) {
    case 1:
      return {node[0].to(at::kFloat)};
    case 2:
      return {node[0].to(at::kByte)};
    case 3:
      return {node[0].to(at::kChar)};
    case 5:
      return {node[0].to(at::kShort)};
    case 6:
      return {node[0].to(at::kInt)};
    case 7:
      return {node[0].to(at::kLong)};
    case 9:
      return {node[0].to(at::kBool)};
    case 10:
      return {node[0].to(at::kHalf)};
    case 11:
      return {node[0].to(at::kDouble)};
    default:
      throw std::logic_error("a conversion to an unknown type");
  }
}

Tensors identity(const NodeArguments& node) { return {node[0]}; }

Tensors softplus(const NodeArguments& node) { return {at::softplus(node[0])}; }

Tensors leaky_relu(const NodeArguments& node) {
  return {at::leaky_relu(node[0], node.number("alpha", 0.01))};
}

Tensors sloped(const NodeArguments& node) {
  return {at::where(node[0] < 0, node[0] * node[1], node[0])};
}

Tensors gelu(const NodeArguments& node) {
  return {at::gelu(node[0], node.text("approximate", "none"))};
}

}  // namespace

const NodeEvaluations& elementwise_evaluations() {
  static const NodeEvaluations kEvaluations = {
      {"Abs", unary<&Tensor::abs>},
      {"Acos", unary<&Tensor::acos>},
      {"Acosh", unary<&Tensor::acosh>},
      {"Add", add},
      {"And", binary<&Tensor::logical_and>},
      {"Asin", unary<&Tensor::asin>},
      {"Asinh", unary<&Tensor::asinh>},
      {"Atan", unary<&Tensor::atan>},
      {"Atanh", unary<&Tensor::atanh>},
      {"BitwiseAnd", binary<&Tensor::bitwise_and>},
      {"BitwiseNot", unary<&Tensor::bitwise_not>},
      {"BitwiseOr", binary<&Tensor::bitwise_or>},
      {"BitwiseXor", binary<&Tensor::bitwise_xor>},
      {"Cast", convert},
      {"Ceil", unary<&Tensor::ceil>},
      {"Clip", clip},
      {"Cos", unary<&Tensor::cos>},
      {"Cosh", unary<&Tensor::cosh>},
      {"Div", divide},
      {"Equal", binary<&Tensor::eq>},
      {"Erf", unary<&Tensor::erf>},
      {"Exp", unary<&Tensor::exp>},
      {"Floor", unary<&Tensor::floor>},
      {"Gelu", gelu},
      {"Greater", binary<&Tensor::gt>},
      {"GreaterOrEqual", binary<&Tensor::ge>},
      {"Identity", identity},
      {"IsInf", is_infinite},
      {"IsNaN", unary<&Tensor::isnan>},
      {"LeakyRelu", leaky_relu},
      {"Less", binary<&Tensor::lt>},
      {"LessOrEqual", binary<&Tensor::le>},
      {"Log", unary<&Tensor::log>},
      {"Max", largest_of},
      {"Min", smallest_of},
      {"Mod", modulo},
      {"Mul", binary<&Tensor::mul>},
      {"Neg", unary<&Tensor::neg>},
      {"Not", unary<&Tensor::logical_not>},
      {"Or", binary<&Tensor::logical_or>},
      {"PRelu", sloped},
      {"Pow", binary<&Tensor::pow>},
      {"Reciprocal", unary<&Tensor::reciprocal>},
      {"Relu", unary<&Tensor::relu>},
      {"Round", unary<&Tensor::round>},
      {"Sign", unary<&Tensor::sign>},
      {"Sin", unary<&Tensor::sin>},
      {"Sinh", unary<&Tensor::sinh>},
      {"Softplus", softplus},
      {"Sqrt", unary<&Tensor::sqrt>},
      {"Sub", subtract},
      {"Tan", unary<&Tensor::tan>},
      {"Tanh", unary<&Tensor::tanh>},
      {"Where", choose},
      {"Xor", binary<&Tensor::logical_xor>},
  };
  return kEvaluations;
}

}  // namespace lockstep::testing_support
