// Activations, softmax and dropout.
#include <cmath>
#include <limits>
#include <numbers>

#include <lockstep/export/lowering/functions.h>
#include <lockstep/export/lowering/operators.h>

namespace lockstep::onnx {
namespace {

void lower_activation(RecordedOperation& op, const Operator& entry) {
  op.result(entry.onnx, {op.tensor(0)});
}

void lower_relu(RecordedOperation& op, const Operator&) {
  const at::ScalarType type = op.result_type();
  if (at::isFloatingType(type)) return op.result("Relu", {op.tensor(0)});
  op.result("Max", {op.tensor(0), op.graph().scalar(0, type)});
}

// Outside of training, dropout is the identity.
void lower_dropout(RecordedOperation& op, const Operator&) {
  if (op.flag(2)) {
    op.reject("dropout is on although the module is in eval mode; give it training = false");
  }
  op.bind(op.tensor(0));
}

std::string clipped(RecordedOperation& op, const std::string& x, double low, double high) {
  const at::ScalarType type = op.result_type();
  if (std::isnan(low) || std::isnan(high)) op.reject("a limit that is not a number");
  return op.add("Clip", {x, op.graph().scalar(low, type), op.graph().scalar(high, type)});
}

void lower_relu6(RecordedOperation& op, const Operator&) {
  op.bind(clipped(op, op.tensor(0), 0, 6));
}

void lower_hardtanh(RecordedOperation& op, const Operator&) {
  op.bind(clipped(op, op.tensor(0), op.number_or(1, -1), op.number_or(2, 1)));
}

// Attributes of ONNX are float32: they cannot hold a slope for double.
void emit_leaky_relu(RecordedOperation& op, double slope) {
  const at::ScalarType type = op.result_type();
  const std::string x = op.tensor(0);
  if (type != at::kDouble) return op.result("LeakyRelu", {x}, {{"alpha", slope}});
  const std::string below = op.add("Mul", {x, op.graph().scalar(slope, type)});
  op.result("Where", {op.add("Less", {x, op.graph().scalar(0, type)}), below, x});
}

void lower_leaky_relu(RecordedOperation& op, const Operator&) {
  emit_leaky_relu(op, op.number_or(1, 0.01));
}

void lower_rrelu(RecordedOperation& op, const Operator&) {
  const bool training = op.has(3) && op.flag(3);
  if (training) op.reject("the random slope of training cannot be exported");
  const double slope = (op.number_or(1, 1.0 / 8) + op.number_or(2, 1.0 / 3)) / 2;
  emit_leaky_relu(op, slope);
}

// scale * x if x > 0, otherwise scale * alpha * (exp(x * input_scale) - 1). ONNX's Elu, Selu and
// Celu lose the difference from 1 where x is near 0.
void emit_elu(RecordedOperation& op, double alpha, double scale, double input_scale) {
  const at::ScalarType type = op.result_type();
  const auto times = [&](const std::string& name, double factor) {
    return factor == 1 ? name : op.add("Mul", {name, op.graph().scalar(factor, type)});
  };
  const std::string x = op.tensor(0);
  const std::string below = times(expm1(op, times(x, input_scale), type), alpha * scale);
  const std::string is_negative = op.add("Less", {x, op.graph().scalar(0, type)});
  op.result("Where", {is_negative, below, times(x, scale)});
}

void lower_elu(RecordedOperation& op, const Operator&) {
  emit_elu(op, op.number_or(1, 1), op.number_or(2, 1), op.number_or(3, 1));
}

void lower_selu(RecordedOperation& op, const Operator&) {
  emit_elu(op, 1.6732632423543772848, 1.0507009873554804934, 1);
}

void lower_celu(RecordedOperation& op, const Operator&) {
  const double alpha = op.number_or(1, 1);
  emit_elu(op, alpha, 1, 1 / alpha);
}

// x / 2 * (1 + erf(x / sqrt(2))), or with tanh(sqrt(2 / pi) * (x + 0.044715 x^3)) instead of erf().
void lower_gelu(RecordedOperation& op, const Operator&) {
  const at::ScalarType type = op.result_type();
  const std::string approximate = op.has(1) ? op.text(1) : "none";
  if (op.opset() >= 20) {
    return op.result("Gelu", {op.tensor(0)}, {{"approximate", approximate}});
  }
  const std::string x = op.widened(op.tensor(0), type);
  const auto number = [&](double value) { return op.wide_scalar(value, type); };
  std::string bell;
  if (approximate == "tanh") {
    const std::string cube = op.add("Mul", {op.add("Mul", {x, x}), x});
    const std::string sum = op.add("Add", {x, op.add("Mul", {cube, number(0.044715)})});
    bell = op.add("Tanh", {op.add("Mul", {sum, number(std::sqrt(2 / std::numbers::pi))})});
  } else {
    bell = op.add("Erf", {op.add("Div", {x, number(std::numbers::sqrt2)})});
  }
  const std::string half = op.add("Mul", {x, number(0.5)});
  op.bind(op.narrowed(op.add("Mul", {half, op.add("Add", {bell, number(1)})}), type));
}

void lower_silu(RecordedOperation& op, const Operator&) {
  const at::ScalarType type = op.result_type();
  const std::string x = op.widened(op.tensor(0), type);
  op.bind(op.narrowed(op.add("Mul", {x, wide_sigmoid(op, x, type)}), type));
}

void lower_sigmoid(RecordedOperation& op, const Operator&) {
  const at::ScalarType type = op.result_type();
  op.bind(sigmoid(op, op.tensor_as(0, type), type));
}

// log(1 + exp(x)) as a widened() value. In opset 18, onnxruntime expands Softplus of float16 to
// exactly this formula, which overflows.
std::string wide_softplus(RecordedOperation& op, const std::string& x, at::ScalarType type) {
  return op.add("Softplus", {op.widened(x, type)});
}

void lower_mish(RecordedOperation& op, const Operator&) {
  const at::ScalarType type = op.result_type();
  const std::string x = op.widened(op.tensor(0), type);
  const std::string gate = op.add("Tanh", {wide_softplus(op, x, type)});
  op.bind(op.narrowed(op.add("Mul", {x, gate}), type));
}

// log(1 + exp(beta * x)) / beta, and x itself where beta * x > threshold. With a threshold beyond
// the range of exp() in float32, LibTorch's result is infinity in between, also in float16.
void lower_softplus(RecordedOperation& op, const Operator&) {
  constexpr double kLargestExponent = 88.72283;  // rounds to the last float32 whose exp() is finite
  const at::ScalarType type = op.result_type();
  const auto number = [&](double value) { return op.wide_scalar(value, type); };
  const double beta = op.number_or(1, 1);
  const double threshold = op.number_or(2, 20);
  // Throws BeyondFloat16 if float16 does not hold beta, because results divided by it may be large.
  op.graph().scalar(beta, type);
  const std::string x = op.widened(op.tensor(0), type);
  const std::string scaled = beta == 1 ? x : op.add("Mul", {x, number(beta)});
  std::string soft = wide_softplus(op, scaled, type);
  if (threshold > kLargestExponent) {
    const std::string overflows = op.add("Greater", {scaled, number(kLargestExponent)});
    const std::string infinity = number(std::numeric_limits<double>::infinity());
    soft = op.add("Where", {overflows, infinity, soft});
  }
  const std::string small = beta == 1 ? soft : op.add("Div", {soft, number(beta)});
  const std::string is_large = op.add("Greater", {scaled, number(threshold)});
  op.bind(op.narrowed(op.add("Where", {is_large, x, small}), type));
}

void lower_log_sigmoid(RecordedOperation& op, const Operator&) {
  const at::ScalarType type = op.result_type();
  const std::string opposite = op.add("Neg", {op.widened(op.tensor(0), type)});
  op.bind(op.narrowed(op.add("Neg", {wide_softplus(op, opposite, type)}), type));
}

// clip(x + 3, 0, 6) / 6. ONNX's HardSigmoid and HardSwish round x / 6 + 1 / 2, which is imprecise
// where the result is near 0.
std::string hard_gate(RecordedOperation& op, const std::string& x, at::ScalarType type) {
  const std::string shifted = op.add("Add", {x, op.wide_scalar(3, type)});
  return op.add("Clip", {shifted, op.wide_scalar(0, type), op.wide_scalar(6, type)});
}

void lower_hardsigmoid(RecordedOperation& op, const Operator&) {
  const at::ScalarType type = op.result_type();
  const std::string gate = hard_gate(op, op.widened(op.tensor(0), type), type);
  op.bind(op.narrowed(op.add("Div", {gate, op.wide_scalar(6, type)}), type));
}

void lower_hardswish(RecordedOperation& op, const Operator&) {
  const at::ScalarType type = op.result_type();
  const std::string x = op.widened(op.tensor(0), type);
  const std::string product = op.add("Mul", {x, hard_gate(op, x, type)});
  op.bind(op.narrowed(op.add("Div", {product, op.wide_scalar(6, type)}), type));
}

// NaN is neither inside nor outside of the limits, and stays. LibTorch rounds the limit to float16.
void lower_hardshrink(RecordedOperation& op, const Operator&) {
  const at::ScalarType type = op.result_type();
  const std::string x = op.tensor(0);
  const double number = op.number_or(1, 0.5);
  const bool is_rounded = type == at::kHalf;
  const std::string limit =
      is_rounded ? op.graph().scalar(number, type) : op.wide_scalar(number, type);
  const std::string size = op.add("Abs", {is_rounded ? x : op.widened(x, type)});
  const std::string inside = op.add("LessOrEqual", {size, limit});
  op.result("Where", {inside, op.graph().scalar(0, type), x});
}

// Inside of the limits the result is x * 0, which keeps NaN and the sign of x; ONNX's Shrink
// drops them. LibTorch does not round the limit to float16, unlike that of hardshrink().
void lower_softshrink(RecordedOperation& op, const Operator&) {
  const at::ScalarType type = op.result_type();
  const std::string x = op.widened(op.tensor(0), type);
  const std::string limit = op.wide_scalar(op.number_or(1, 0.5), type);
  const std::string inside = op.add("Mul", {x, op.wide_scalar(0, type)});
  const std::string size = op.add("Abs", {x});
  const std::string outside = op.add("Mul", {op.add("Sign", {x}), op.add("Sub", {size, limit})});
  const std::string is_outside = op.add("Greater", {size, limit});
  op.bind(op.narrowed(op.add("Where", {is_outside, outside, inside}), type));
}

// LibTorch does not round the threshold to float16.
void lower_threshold(RecordedOperation& op, const Operator&) {
  const at::ScalarType type = op.result_type();
  const std::string x = op.tensor(0);
  const std::string limit =
      at::isFloatingType(type) ? op.wide_scalar(op.number(1), type) : op.tensor_as(1, type);
  const std::string below = op.add("LessOrEqual", {op.widened(x, type), limit});
  op.result("Where", {below, op.tensor_as(2, type), x});
}

// One slope per channel, reshaped because ONNX broadcasts from the last dimension.
void lower_prelu(RecordedOperation& op, const Operator&) {
  if (op.rank(1) == 0) return op.result("PRelu", {op.tensor(0), op.tensor(1)});
  const std::int64_t slopes = op.fixed(op.sizes(1).at(0), "the number of slopes");
  const std::int64_t rank = op.rank(0);
  Extents sizes = {static_extent(slopes)};
  for (std::int64_t d = 2; d < rank; ++d) sizes.push_back(static_extent(1));
  const std::string slope = op.tensor(1);
  op.result("PRelu", {op.tensor(0), slopes > 1 && rank > 2 ? op.reshape(slope, sizes) : slope});
}

void lower_logit(RecordedOperation& op, const Operator&) {
  const at::ScalarType type = op.result_type();
  std::string x = op.widened(op.tensor_as(0, type), type);
  if (op.has(1)) {
    const double eps = op.number(1);
    x = op.add("Clip", {x, op.wide_scalar(eps, type), op.wide_scalar(1 - eps, type)});
  }
  const std::string rest = op.add("Sub", {op.wide_scalar(1, type), x});
  op.bind(op.narrowed(op.add("Log", {op.add("Div", {x, rest})}), type));
}

void lower_glu(RecordedOperation& op, const Operator&) {
  const std::int64_t axis = op.axis(op.integer_or(1, -1), op.rank(0));
  const std::int64_t size = op.fixed(op.sizes(0).at(static_cast<std::size_t>(axis)), "glu's size");
  const at::ScalarType type = op.result_type();
  const std::string x = op.widened(op.tensor(0), type);
  const std::string gate = wide_sigmoid(op, op.slice(x, axis, size / 2, size), type);
  op.bind(op.narrowed(op.add("Mul", {op.slice(x, axis, 0, size / 2), gate}), type));
}

// The only element of a tensor without dimensions, minus the largest: 0, or NaN if it is infinite.
std::string shifted_scalar(RecordedOperation& op) {
  const std::string x = op.tensor_as(0, op.result_type());
  return op.add("Sub", {x, x});
}

void lower_softmax(RecordedOperation& op, const Operator&) {
  if (op.rank(0) == 0) return op.result("Exp", {shifted_scalar(op)});
  op.result("Softmax", {op.tensor_as(0, op.result_type())},
            {{"axis", op.axis(op.integer(1), op.rank(0))}});
}

// onnxruntime's LogSoftmax of float64 is wrong for a row with NaN or infinity, which is NaN as a
// whole in LibTorch.
void lower_log_softmax(RecordedOperation& op, const Operator&) {
  if (op.rank(0) == 0) return op.bind(shifted_scalar(op));
  const at::ScalarType type = op.result_type();
  const std::int64_t axis = op.axis(op.integer(1), op.rank(0));
  const std::string x = op.tensor_as(0, type);
  if (type != at::kDouble) return op.result("LogSoftmax", {x}, {{"axis", axis}});
  const std::string largest = extreme_value(op, Extreme::kMaximum, x, type, {axis}, /*keep=*/true);
  const std::string shifted = op.add("Sub", {x, largest});
  const std::string sum = op.reduce("ReduceSum", op.add("Exp", {shifted}), {axis}, /*keep=*/true);
  op.result("Sub", {shifted, op.add("Log", {sum})});
}

constexpr Operator kActivation[] = {
    {"alpha_dropout", lower_dropout},
    {"celu", lower_celu},
    {"dropout", lower_dropout},
    {"elu", lower_elu},
    {"feature_alpha_dropout", lower_dropout},
    {"feature_dropout", lower_dropout},
    {"gelu", lower_gelu},
    {"glu", lower_glu},
    {"hardshrink", lower_hardshrink},
    {"hardsigmoid", lower_hardsigmoid},
    {"hardswish", lower_hardswish},
    {"hardtanh", lower_hardtanh},
    {"leaky_relu", lower_leaky_relu},
    {"log_sigmoid", lower_log_sigmoid},
    {"log_softmax", lower_log_softmax},
    {"logit", lower_logit},
    {"mish", lower_mish},
    {"prelu", lower_prelu},
    {"relu", lower_relu},
    {"relu6", lower_relu6},
    {"rrelu", lower_rrelu},
    {"selu", lower_selu},
    {"sigmoid", lower_sigmoid},
    {"silu", lower_silu},
    {"softmax", lower_softmax},
    {"softplus", lower_softplus},
    {"softshrink", lower_softshrink},
    {"tanh", lower_activation, "Tanh"},
    {"threshold", lower_threshold},
};

}  // namespace

Family activation_operators() { return kActivation; }

}  // namespace lockstep::onnx
