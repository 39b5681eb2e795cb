// Element-wise arithmetic.
#include <cmath>
#include <numbers>

#include <lockstep/export/lowering/operators.h>

namespace lockstep::onnx {
namespace {

void lower_unary(RecordedOperation& op, const Operator& entry) {
  op.result(entry.onnx, {op.tensor_as(0, op.result_type())});
}

// Float functions of integers return floats: the computation uses the result's type.
void lower_binary(RecordedOperation& op, const Operator& entry) {
  const at::ScalarType type = op.result_type();
  op.result(entry.onnx, {op.tensor_as(0, type), op.tensor_as(1, type)});
}

// `name` times argument `i`, which defaults to 1.
std::string times_alpha(RecordedOperation& op, const std::string& name, std::size_t i) {
  const at::ScalarType type = op.result_type();
  const double alpha = op.number_or(i, 1);
  return alpha == 1 ? name : op.add("Mul", {name, op.graph().scalar(alpha, type)});
}

void lower_add_or_sub(RecordedOperation& op, const Operator& entry) {
  const at::ScalarType type = op.result_type();
  if (type == at::kBool) return op.result("Or", {op.tensor_as(0, type), op.tensor_as(1, type)});
  op.result(entry.onnx, {op.tensor_as(0, type), times_alpha(op, op.tensor_as(1, type), 2)});
}

void lower_rsub(RecordedOperation& op, const Operator&) {
  const at::ScalarType type = op.result_type();
  op.result("Sub", {op.tensor_as(1, type), times_alpha(op, op.tensor_as(0, type), 2)});
}

void lower_mul(RecordedOperation& op, const Operator&) {
  const at::ScalarType type = op.result_type();
  op.result(type == at::kBool ? "And" : "Mul", {op.tensor_as(0, type), op.tensor_as(1, type)});
}

std::string floor_of(RecordedOperation& op, const std::string& name) {
  return op.add("Floor", {name});
}

// ONNX's integer division truncates, whereas LibTorch's "floor" rounds down.
std::string floored_quotient(RecordedOperation& op, at::ScalarType type) {
  const std::string a = op.tensor_as(0, type);
  const std::string b = op.tensor_as(1, type);
  if (at::isFloatingType(type)) return floor_of(op, op.add("Div", {a, b}));
  const std::string remainder = op.add("Mod", {a, b});
  return op.add("Div", {op.add("Sub", {a, remainder}), b});
}

std::string truncated(RecordedOperation& op, const std::string& name, at::ScalarType type) {
  const std::string size = floor_of(op, op.add("Abs", {name}));
  return op.add("Mul", {size, op.add("Sign", {name})});
}

void lower_div(RecordedOperation& op, const Operator&) {
  const at::ScalarType type = op.result_type();
  const std::string mode = op.has(2) ? op.text(2) : "";
  if (mode == "floor") return op.bind(floored_quotient(op, type));
  const std::string quotient = op.add("Div", {op.tensor_as(0, type), op.tensor_as(1, type)});
  const bool cut = mode == "trunc" && at::isFloatingType(type);
  op.bind(cut ? truncated(op, quotient, type) : quotient);
}

void lower_floor_divide(RecordedOperation& op, const Operator&) {
  op.bind(floored_quotient(op, op.result_type()));
}

// The result has the sign of the divisor, like ONNX's Mod for integers. Floats need the quotient.
void lower_remainder(RecordedOperation& op, const Operator&) {
  const at::ScalarType type = op.result_type();
  const std::string a = op.tensor_as(0, type);
  const std::string b = op.tensor_as(1, type);
  if (!at::isFloatingType(type)) return op.result("Mod", {a, b});
  op.result("Sub", {a, op.add("Mul", {floor_of(op, op.add("Div", {a, b})), b})});
}

void lower_fmod(RecordedOperation& op, const Operator&) {
  const at::ScalarType type = op.result_type();
  op.result("Mod", {op.tensor_as(0, type), op.tensor_as(1, type)}, {{"fmod", 1}});
}

void lower_pow(RecordedOperation& op, const Operator&) {
  const at::ScalarType type = op.result_type();
  // onnxruntime computes Pow(x, 2) as x * x, and so does LibTorch.
  op.result("Pow", {op.tensor_as(0, type), op.tensor_as(1, type)});
}

void lower_square(RecordedOperation& op, const Operator&) {
  const std::string x = op.tensor(0);
  op.result("Mul", {x, x});
}

void lower_rsqrt(RecordedOperation& op, const Operator&) {
  op.result("Reciprocal", {op.add("Sqrt", {op.tensor_as(0, op.result_type())})});
}

// log2(x) and similar: the natural logarithm times a constant.
void lower_scaled_log(RecordedOperation& op, double factor) {
  const at::ScalarType type = op.result_type();
  const std::string log = op.add("Log", {op.tensor_as(0, type)});
  op.result("Mul", {log, op.graph().scalar(factor, type)});
}
void lower_log2(RecordedOperation& op, const Operator&) {
  lower_scaled_log(op, std::numbers::log2e);
}
void lower_log10(RecordedOperation& op, const Operator&) {
  lower_scaled_log(op, std::numbers::log10e);
}

void lower_log1p(RecordedOperation& op, const Operator&) {
  const at::ScalarType type = op.result_type();
  op.result("Log", {op.add("Add", {op.tensor_as(0, type), op.graph().scalar(1, type)})});
}

void lower_expm1(RecordedOperation& op, const Operator&) {
  const at::ScalarType type = op.result_type();
  op.result("Sub", {op.add("Exp", {op.tensor_as(0, type)}), op.graph().scalar(1, type)});
}

void lower_exp2(RecordedOperation& op, const Operator&) {
  const at::ScalarType type = op.result_type();
  op.result("Pow", {op.graph().scalar(2, type), op.tensor_as(0, type)});
}

void lower_erfc(RecordedOperation& op, const Operator&) {
  const at::ScalarType type = op.result_type();
  op.result("Sub", {op.graph().scalar(1, type), op.add("Erf", {op.tensor_as(0, type)})});
}

void lower_trunc(RecordedOperation& op, const Operator&) {
  op.bind(truncated(op, op.tensor(0), op.result_type()));
}

void lower_frac(RecordedOperation& op, const Operator&) {
  const std::string x = op.tensor(0);
  op.result("Sub", {x, truncated(op, x, op.result_type())});
}

void lower_scale_by(RecordedOperation& op, double factor) {
  const at::ScalarType type = op.result_type();
  op.result("Mul", {op.tensor_as(0, type), op.graph().scalar(factor, type)});
}
void lower_deg2rad(RecordedOperation& op, const Operator&) {
  lower_scale_by(op, std::numbers::pi / 180);
}
void lower_rad2deg(RecordedOperation& op, const Operator&) {
  lower_scale_by(op, 180 / std::numbers::pi);
}

// The angle of (x, y), from atan(y / x) and the half plane. As in C's atan2(), the sign of a zero
// counts: it is visible in 1 / x, whose own zeros come from infinities. At the origin, y / 1 has
// the sign of y and is not NaN.
void lower_atan2(RecordedOperation& op, const Operator&) {
  const at::ScalarType type = op.result_type();
  const std::string y = op.tensor_as(0, type);
  const std::string x = op.tensor_as(1, type);
  const std::string zero = op.graph().scalar(0, type);
  const std::string one = op.graph().scalar(1, type);
  const std::string pi = op.graph().scalar(std::numbers::pi, type);
  const auto has_minus = [&](const std::string& value) {
    const std::string inverse = op.add("Div", {one, value});
    return op.add("Or", {op.add("Less", {value, zero}), op.add("Less", {inverse, zero})});
  };
  const std::string is_origin =
      op.add("And", {op.add("Equal", {y, zero}), op.add("Equal", {x, zero})});
  const std::string divisor = op.add("Where", {is_origin, one, x});
  const std::string angle = op.add("Atan", {op.add("Div", {y, divisor})});
  const std::string turn = op.add("Where", {has_minus(y), op.add("Neg", {pi}), pi});
  op.result("Where", {has_minus(x), op.add("Add", {angle, turn}), angle});
}

void lower_hypot(RecordedOperation& op, const Operator&) {
  const at::ScalarType type = op.result_type();
  const std::string a = op.widened(op.tensor_as(0, type), type);
  const std::string b = op.widened(op.tensor_as(1, type), type);
  const std::string sum = op.add("Add", {op.add("Mul", {a, a}), op.add("Mul", {b, b})});
  op.bind(op.narrowed(op.add("Sqrt", {sum}), type));
}

// self + value * tensor1 * tensor2, or self + value * tensor1 / tensor2.
void lower_addc(RecordedOperation& op, const Operator& entry) {
  const at::ScalarType type = op.result_type();
  const std::string term = op.add(entry.onnx, {op.tensor_as(1, type), op.tensor_as(2, type)});
  op.result("Add", {op.tensor_as(0, type), times_alpha(op, term, 3)});
}

void lower_lerp(RecordedOperation& op, const Operator&) {
  const at::ScalarType type = op.result_type();
  const std::string start = op.tensor_as(0, type);
  const std::string way = op.add("Sub", {op.tensor_as(1, type), start});
  op.result("Add", {start, op.add("Mul", {op.tensor_as(2, type), way})});
}

// Clip accepts only numbers; tensor bounds need Max and Min.
void lower_bounds(RecordedOperation& op, std::optional<std::size_t> low,
                  std::optional<std::size_t> high) {
  const at::ScalarType type = op.result_type();
  std::string name = op.tensor_as(0, type);
  if (low && op.has(*low)) name = op.add("Max", {name, op.tensor_as(*low, type)});
  if (high && op.has(*high)) name = op.add("Min", {name, op.tensor_as(*high, type)});
  op.bind(name);
}
void lower_clamp(RecordedOperation& op, const Operator&) {
  const at::ScalarType type = op.result_type();
  if (op.is_tensor(1) || op.is_tensor(2)) return lower_bounds(op, 1, 2);
  op.result("Clip", {op.tensor_as(0, type), op.has(1) ? op.tensor_as(1, type) : "",
                     op.has(2) ? op.tensor_as(2, type) : ""});
}
void lower_clamp_min(RecordedOperation& op, const Operator&) { lower_bounds(op, 1, std::nullopt); }
void lower_clamp_max(RecordedOperation& op, const Operator&) { lower_bounds(op, std::nullopt, 1); }

void lower_nan_to_num(RecordedOperation& op, const Operator&) {
  const at::ScalarType type = op.result_type();
  if (type != at::kFloat) op.reject("nan_to_num is lowered for float32 only");
  const float largest = std::numeric_limits<float>::max();
  const auto bound = [&](std::size_t i, double otherwise) {
    return op.graph().scalar(op.number_or(i, otherwise), type);
  };
  const std::string x = op.tensor(0);
  const std::string number = op.add("Where", {op.add("IsNaN", {x}), bound(1, 0), x});
  const std::string below = op.add("IsInf", {number}, {{"detect_positive", 0}});
  const std::string above = op.add("IsInf", {number}, {{"detect_negative", 0}});
  const std::string low = op.add("Where", {below, bound(3, -largest), number});
  op.result("Where", {above, bound(2, largest), low});
}

void lower_bitwise(RecordedOperation& op, const Operator& entry) {
  const at::ScalarType type = op.result_type();
  const std::string name = entry.onnx;
  const bool on_truth = type == at::kBool;
  if (!on_truth && op.opset() < 18) op.reject("whole numbers need opset 18 or newer");
  op.result(on_truth ? name : "Bitwise" + name, {op.tensor_as(0, type), op.tensor_as(1, type)});
}

void lower_bitwise_not(RecordedOperation& op, const Operator&) {
  const bool on_truth = op.result_type() == at::kBool;
  if (!on_truth && op.opset() < 18) op.reject("whole numbers need opset 18 or newer");
  op.result(on_truth ? "Not" : "BitwiseNot", {op.tensor(0)});
}

constexpr Operator kElementwise[] = {
    {"abs", lower_unary, "Abs"},
    {"acos", lower_unary, "Acos"},
    {"acosh", lower_unary, "Acosh"},
    {"add", lower_add_or_sub, "Add"},
    {"addcdiv", lower_addc, "Div"},
    {"addcmul", lower_addc, "Mul"},
    {"asin", lower_unary, "Asin"},
    {"asinh", lower_unary, "Asinh"},
    {"atan", lower_unary, "Atan"},
    {"atan2", lower_atan2},
    {"atanh", lower_unary, "Atanh"},
    {"bitwise_and", lower_bitwise, "And"},
    {"bitwise_not", lower_bitwise_not},
    {"bitwise_or", lower_bitwise, "Or"},
    {"bitwise_xor", lower_bitwise, "Xor"},
    {"__and__", lower_bitwise, "And"},
    {"__or__", lower_bitwise, "Or"},
    {"__xor__", lower_bitwise, "Xor"},
    {"ceil", lower_unary, "Ceil"},
    {"clamp", lower_clamp},
    {"clamp_max", lower_clamp_max},
    {"clamp_min", lower_clamp_min},
    {"cos", lower_unary, "Cos"},
    {"cosh", lower_unary, "Cosh"},
    {"deg2rad", lower_deg2rad},
    {"div", lower_div},
    {"erf", lower_unary, "Erf"},
    {"erfc", lower_erfc},
    {"exp", lower_unary, "Exp"},
    {"exp2", lower_exp2},
    {"expm1", lower_expm1},
    {"floor", lower_unary, "Floor"},
    {"floor_divide", lower_floor_divide},
    {"fmod", lower_fmod},
    {"frac", lower_frac},
    {"hypot", lower_hypot},
    {"lerp", lower_lerp},
    {"log", lower_unary, "Log"},
    {"log10", lower_log10},
    {"log1p", lower_log1p},
    {"log2", lower_log2},
    {"maximum", lower_binary, "Max"},
    {"minimum", lower_binary, "Min"},
    {"mul", lower_mul},
    {"nan_to_num", lower_nan_to_num},
    {"neg", lower_unary, "Neg"},
    {"pow", lower_pow},
    {"rad2deg", lower_rad2deg},
    {"reciprocal", lower_unary, "Reciprocal"},
    {"remainder", lower_remainder},
    {"round", lower_unary, "Round"},
    {"rsqrt", lower_rsqrt},
    {"rsub", lower_rsub},
    {"sgn", lower_unary, "Sign"},
    {"sign", lower_unary, "Sign"},
    {"sin", lower_unary, "Sin"},
    {"sinh", lower_unary, "Sinh"},
    {"sqrt", lower_unary, "Sqrt"},
    {"square", lower_square},
    {"sub", lower_add_or_sub, "Sub"},
    {"tan", lower_unary, "Tan"},
    {"trunc", lower_trunc},
};

}  // namespace

Family elementwise_operators() { return kElementwise; }

}  // namespace lockstep::onnx
