// Element-wise arithmetic.
#include <cmath>
#include <limits>
#include <numbers>

#include <lockstep/export/lowering/functions.h>
#include <lockstep/export/lowering/operators.h>

namespace lockstep::onnx {
namespace {

// Float functions of integers return floats: the computation uses the result's type.
void lower_unary(RecordedOperation& op, const Operator& entry) {
  op.result(entry.onnx, {op.tensor_as(0, op.result_type())});
}

// floor() and similar: whole numbers are already rounded.
void lower_rounding(RecordedOperation& op, const Operator& entry) {
  if (!at::isFloatingType(op.result_type())) return op.bind(op.tensor(0));
  op.result(entry.onnx, {op.tensor(0)});
}

void lower_binary(RecordedOperation& op, const Operator& entry) {
  const at::ScalarType type = op.result_type();
  op.result(entry.onnx, {op.tensor_as(0, type), op.tensor_as(1, type)});
}

// Argument `i`, a tensor or a number. For tensors of float16 it is float32, as in LibTorch's
// arithmetic, in which a number may be out of float16's range.
std::string precise_argument(RecordedOperation& op, std::size_t i) {
  const at::ScalarType type = op.result_type();
  if (type != at::kHalf) return op.tensor_as(i, type);
  if (!op.is_tensor(i)) return op.wide_scalar(op.number(i), type);
  return op.widened(op.tensor_as(i, type), type);
}

// Whether argument 1 is a number or a tensor without dimensions, which LibTorch's products and
// quotients do not round to float16. It rounds argument 0.
bool has_precise_second(const RecordedOperation& op) { return !op.is_tensor(1) || op.rank(1) == 0; }

// Argument 1 in float32 for a model of float16, with all of its digits if has_precise_second().
std::string precise_second(RecordedOperation& op, at::ScalarType type) {
  if (!op.is_tensor(1)) return op.wide_scalar(op.number(1), type);
  const auto known = op.known(1);
  if (known) return op.wide_scalar(known->item().toDouble(), type);
  return op.graph().cast(op.tensor(1), ElementType::kFloat);
}

// `onnx`, a product or quotient, of the first two arguments.
std::string product(RecordedOperation& op, const char* onnx) {
  const at::ScalarType type = op.result_type();
  if (type == at::kHalf && has_precise_second(op)) {
    return op.narrowed(op.add(onnx, {precise_argument(op, 0), precise_second(op, type)}), type);
  }
  return op.add(onnx, {op.tensor_as(0, type), op.tensor_as(1, type)});
}

// `onnx`, a sum or difference, of argument `a`, and argument `b` times the number in argument 2,
// which defaults to 1, and which LibTorch rounds to the type of the result.
std::string sum_with_alpha(RecordedOperation& op, const char* onnx, std::size_t a, std::size_t b) {
  const at::ScalarType type = op.result_type();
  if (op.number_or(2, 1) == 1) return op.add(onnx, {op.tensor_as(a, type), op.tensor_as(b, type)});
  std::string alpha = op.tensor_as(2, type);
  if (type == at::kHalf) alpha = op.widened(alpha, type);
  const std::string scaled = op.add("Mul", {precise_argument(op, b), alpha});
  return op.narrowed(op.add(onnx, {precise_argument(op, a), scaled}), type);
}

void lower_add_or_sub(RecordedOperation& op, const Operator& entry) {
  const at::ScalarType type = op.result_type();
  if (type != at::kBool) return op.bind(sum_with_alpha(op, entry.onnx, 0, 1));
  if (op.number_or(2, 1) == 0) op.reject("booleans times false");
  op.result("Or", {op.tensor_as(0, type), op.tensor_as(1, type)});
}

void lower_rsub(RecordedOperation& op, const Operator&) {
  op.bind(sum_with_alpha(op, "Sub", 1, 0));
}

void lower_mul(RecordedOperation& op, const Operator&) {
  op.bind(product(op, op.result_type() == at::kBool ? "And" : "Mul"));
}

// The parts of a floored division, which LibTorch computes from fmod(a, b). A quotient that is
// rounded up to a whole number, as 1.0 / 0.1 is, would be too large.
struct FlooredDivision {
  std::string a;
  std::string b;
  std::string remainder;  // fmod(a, b), which has the sign of a
  std::string is_off;     // whether the signs of remainder and b differ
};

FlooredDivision floored_division(RecordedOperation& op, const std::string& a, const std::string& b,
                                 const std::string& zero) {
  const std::string remainder = op.add("Mod", {a, b}, {{"fmod", 1}});
  const std::string signs =
      op.add("Xor", {op.add("Less", {remainder, zero}), op.add("Less", {b, zero})});
  const std::string is_whole = op.add("Equal", {remainder, zero});
  return {a, b, remainder, op.add("And", {signs, op.add("Not", {is_whole})})};
}

// The arguments of a quotient of floats that is rounded to a whole number.
struct RoundedQuotient {
  std::string a;
  std::string b;
  bool is_wide;  // whether both are float32 in place of float16, because b is a precise number
};

RoundedQuotient rounded_quotient(RecordedOperation& op, at::ScalarType type) {
  const bool is_wide = op.graph().type_of(type) == ElementType::kFloat16 && has_precise_second(op);
  RoundedQuotient quotient = {.a = op.tensor_as(0, type), .is_wide = is_wide};
  // With the option `half`, this says whether the number is beyond float16's range.
  if (!is_wide || type != at::kHalf) quotient.b = op.tensor_as(1, type);
  if (!is_wide) return quotient;
  return {.a = op.widened(quotient.a, type), .b = precise_second(op, type), .is_wide = true};
}

// As in LibTorch, (a - remainder) / b is whole but for rounding, and a zero has the sign of a / b.
// A division by zero gives infinity or NaN.
std::string floored_float_quotient(RecordedOperation& op, at::ScalarType type) {
  const RoundedQuotient given = rounded_quotient(op, type);
  const auto number = [&](double value) {
    return given.is_wide ? op.wide_scalar(value, type) : op.graph().scalar(value, type);
  };
  const FlooredDivision parts = floored_division(op, given.a, given.b, number(0));
  const auto as_number = [&](const std::string& truth) {
    return op.add("Where", {truth, number(1), number(0)});
  };
  const std::string whole = op.add("Div", {op.add("Sub", {parts.a, parts.remainder}), parts.b});
  const std::string quotient = op.add("Sub", {whole, as_number(parts.is_off)});
  const std::string floor = op.add("Floor", {quotient});
  const std::string rest = op.add("Sub", {quotient, floor});
  const std::string is_below = op.add("Greater", {rest, number(0.5)});
  const std::string rounded = op.add("Add", {floor, as_number(is_below)});
  const std::string plain = op.add("Div", {parts.a, parts.b});
  const std::string is_zero = op.add("Equal", {quotient, number(0)});
  const std::string signed_zero = op.add("Mul", {plain, number(0)});
  const std::string result = op.add("Where", {is_zero, signed_zero, rounded});
  const std::string by_zero = op.add("Equal", {parts.b, number(0)});
  return op.narrowed(op.add("Where", {by_zero, plain, result}), type);
}

// The larger or smaller argument, or the other one if one is NaN.
void lower_extreme_number(RecordedOperation& op, const Operator& entry) {
  const at::ScalarType type = op.result_type();
  const std::string a = op.tensor_as(0, type);
  const std::string b = op.tensor_as(1, type);
  const std::string extreme = op.add(entry.onnx, {a, b});
  if (!at::isFloatingType(type)) return op.bind(extreme);
  const std::string first = op.add("Where", {op.add("IsNaN", {b}), a, extreme});
  op.result("Where", {op.add("IsNaN", {a}), b, first});
}

// The sign of a zero is visible in its reciprocal. A product keeps the sign of a result of zero.
void lower_copysign(RecordedOperation& op, const Operator&) {
  const at::ScalarType type = op.result_type();
  const std::string sign = op.tensor_as(1, type);
  const std::string zero = op.graph().scalar(0, type);
  const std::string has_minus = op.add(
      "Or", {op.add("Less", {sign, zero}), op.add("Less", {op.add("Reciprocal", {sign}), zero})});
  const std::string factor =
      op.add("Where", {has_minus, op.graph().scalar(-1, type), op.graph().scalar(1, type)});
  op.result("Mul", {op.add("Abs", {op.tensor_as(0, type)}), factor});
}

// ONNX's integer division truncates, whereas LibTorch's "floor" rounds down.
std::string floored_quotient(RecordedOperation& op, at::ScalarType type) {
  if (at::isFloatingType(type)) return floored_float_quotient(op, type);
  if (type == at::kByte) return op.add("Div", {op.tensor_as(0, type), op.tensor_as(1, type)});
  const FlooredDivision parts = floored_division(op, op.tensor_as(0, type), op.tensor_as(1, type),
                                                 op.graph().scalar(0, type));
  const std::string quotient = op.add("Div", {parts.a, parts.b});
  return op.add("Sub", {quotient, op.cast(parts.is_off, at::kBool, type)});
}

void lower_div(RecordedOperation& op, const Operator&) {
  const at::ScalarType type = op.result_type();
  const std::string mode = op.has(2) ? op.text(2) : "";
  if (mode == "floor") return op.bind(floored_quotient(op, type));
  if (mode != "trunc" || !at::isFloatingType(type)) return op.bind(product(op, "Div"));
  const RoundedQuotient given = rounded_quotient(op, type);
  const std::string quotient = op.add("Div", {given.a, given.b});
  const std::string zero = given.is_wide ? op.wide_scalar(0, type) : op.graph().scalar(0, type);
  op.bind(op.narrowed(truncated(op, quotient, zero), type));
}

void lower_floor_divide(RecordedOperation& op, const Operator&) {
  op.bind(floored_quotient(op, op.result_type()));
}

// LibTorch rounds both arguments of remainder() and fmod() to float16. With the option `half`,
// they stand for float32.
RoundedQuotient remainder_arguments(RecordedOperation& op, at::ScalarType type) {
  if (type != at::kHalf && at::isFloatingType(type)) return rounded_quotient(op, type);
  return {.a = op.tensor_as(0, type), .b = op.tensor_as(1, type), .is_wide = false};
}

// The result has the sign of the divisor, like ONNX's Mod for integers.
void lower_remainder(RecordedOperation& op, const Operator&) {
  const at::ScalarType type = op.result_type();
  if (!at::isFloatingType(type)) {
    return op.result("Mod", {op.tensor_as(0, type), op.tensor_as(1, type)});
  }
  const RoundedQuotient given = remainder_arguments(op, type);
  const std::string zero = given.is_wide ? op.wide_scalar(0, type) : op.graph().scalar(0, type);
  const FlooredDivision parts = floored_division(op, given.a, given.b, zero);
  const std::string moved = op.add("Add", {parts.remainder, parts.b});
  op.bind(op.narrowed(op.add("Where", {parts.is_off, moved, parts.remainder}), type));
}

void lower_fmod(RecordedOperation& op, const Operator&) {
  const at::ScalarType type = op.result_type();
  const RoundedQuotient given = remainder_arguments(op, type);
  op.bind(op.narrowed(op.add("Mod", {given.a, given.b}, {{"fmod", 1}}), type));
}

// x * x * ..., by squares. onnxruntime's Pow of whole numbers computes in double, which is wrong
// above 2^53, and does not wrap around.
std::string whole_power(RecordedOperation& op, const std::string& x, std::int64_t exponent) {
  std::string result;
  std::string square = x;
  for (; exponent > 0; exponent /= 2) {
    if (exponent % 2 == 1) result = result.empty() ? square : op.add("Mul", {result, square});
    if (exponent > 1) square = op.add("Mul", {square, square});
  }
  return result;
}

// LibTorch computes these powers by other functions, which differ for infinities and zeros, except
// in float16.
std::string float_power(RecordedOperation& op, const std::string& x, double exponent) {
  if (op.result_type() == at::kHalf) return "";
  if (exponent == 0.5) return op.add("Sqrt", {x});
  if (exponent == -0.5) return op.add("Reciprocal", {op.add("Sqrt", {x})});
  if (exponent == -1) return op.add("Reciprocal", {x});
  if (exponent == -2) return op.add("Reciprocal", {op.add("Mul", {x, x})});
  return "";
}

void lower_pow(RecordedOperation& op, const Operator&) {
  const at::ScalarType type = op.result_type();
  const bool has_number = !op.is_tensor(1) || (op.known(1) && op.known(1)->numel() == 1);
  if (at::isFloatingType(type)) {
    const std::string x = op.tensor_as(0, type);
    const std::string special = op.is_tensor(1) ? "" : float_power(op, x, op.number(1));
    if (!special.empty()) return op.bind(special);
    return op.result("Pow", {x, op.tensor_as(1, type)});
  }
  if (!has_number || op.integer(1) < 1) {
    op.reject("a power of whole numbers needs a known exponent of at least 1");
  }
  const std::string power = whole_power(op, op.tensor_as(0, type), op.integer(1));
  op.bind(op.is_tensor(1) ? op.expanded(power, op.sizes(0), op.result_sizes()) : power);
}

void lower_square(RecordedOperation& op, const Operator&) {
  const std::string x = op.tensor_as(0, op.result_type());
  op.result("Mul", {x, x});
}

void lower_rsqrt(RecordedOperation& op, const Operator&) {
  op.result("Reciprocal", {op.add("Sqrt", {op.tensor_as(0, op.result_type())})});
}

// The logarithm to a whole base, which is exact for powers of the base: a quotient of logarithms
// is only near to a whole number, and floor() would make it one less. `factor` is 1 / ln(base).
void lower_log_to_base(RecordedOperation& op, double base, double factor) {
  const at::ScalarType type = op.result_type();
  const std::string x = op.cast(op.tensor_as(0, type), type, at::kDouble);
  const auto number = [&](double value) { return op.graph().scalar(value, at::kDouble); };
  const std::string log = op.add("Mul", {op.add("Log", {x}), number(factor)});
  if (type != at::kDouble) return op.bind(op.cast(log, at::kDouble, type));
  const std::string whole = op.add("Round", {log});
  const std::string is_power = op.add("Equal", {op.add("Pow", {number(base), whole}), x});
  op.result("Where", {is_power, whole, log});
}
void lower_log2(RecordedOperation& op, const Operator&) {
  lower_log_to_base(op, 2, std::numbers::log2e);
}
void lower_log10(RecordedOperation& op, const Operator&) {
  lower_log_to_base(op, 10, std::numbers::log10e);
}

// Kahan's method: u = 1 + x is rounded, and log(u) / (u - 1) is rounded alike, so that the factor
// x / (u - 1) corrects the difference. It is 0 / 0 where u is 1, and there x itself is the result.
// Where u is x, as for infinity, there is nothing to correct.
void lower_log1p(RecordedOperation& op, const Operator&) {
  const at::ScalarType type = op.result_type();
  const std::string x = op.widened(op.tensor_as(0, type), type);
  const std::string one = op.wide_scalar(1, type);
  const std::string sum = op.add("Add", {x, one});
  const std::string log = op.add("Log", {sum});
  const std::string factor = op.add("Div", {x, op.add("Sub", {sum, one})});
  const std::string corrected =
      op.add("Where", {op.add("Equal", {sum, x}), log, op.add("Mul", {log, factor})});
  op.bind(op.narrowed(op.add("Where", {op.add("Equal", {sum, one}), x, corrected}), type));
}

void lower_expm1(RecordedOperation& op, const Operator&) {
  const at::ScalarType type = op.result_type();
  op.bind(expm1(op, op.tensor_as(0, type), type));
}

void lower_exp2(RecordedOperation& op, const Operator&) {
  const at::ScalarType type = op.result_type();
  op.result("Pow", {op.graph().scalar(2, type), op.tensor_as(0, type)});
}

// erfc(x) = t exp(-x^2 + P(2 t - 1)) with t = 2 / (2 + x) for x >= 0, from "Numerical Recipes",
// third edition, section 6.2.2: the Chebyshev polynomial there in powers. 1 - erf(x) has no
// digits left where erfc(x) is small. It is computed in double, and all powers as one product.
constexpr double kErfcPolynomial[] = {
    -0.6717940840566923,     0.6726432239776567,     0.047343306841904534,
    -0.04689561023117734,    -0.009872689366392282,  0.008824938557113696,
    0.0017589335578087361,   -0.002345812501075328,  -0.00014624686329855997,
    0.0006736787991385599,   -9.3735032187904e-05,   -0.000174302959455232,
    7.1401019131904e-05,     3.174520193024e-05,     -3.0187899002880004e-05,
    1.3772128256000025e-07,  8.562650611712e-06,     -2.948059037696e-06,
    -1.272346443776e-06,     1.2502106112000001e-06, -1.684684144640001e-07,
    -2.4981274624000006e-07, 1.533269770240001e-07,  1.6106127359999997e-09,
    -3.916641075200003e-08,  1.1106516991999998e-08, 4.060086272e-09,
    -1.879048192e-09};

void lower_erfc(RecordedOperation& op, const Operator&) {
  const at::ScalarType type = op.result_type();
  const auto number = [&](double value) { return op.graph().scalar(value, at::kDouble); };
  const std::string x = op.cast(op.tensor_as(0, type), type, at::kDouble);
  const std::string size = op.add("Abs", {x});
  const std::string t = op.add("Div", {number(2), op.add("Add", {size, number(2)})});
  const std::string y = op.add("Sub", {op.add("Mul", {t, number(2)}), number(1)});
  const at::Tensor factors = at::tensor(at::ArrayRef<double>(kErfcPolynomial), at::kDouble);
  const std::string exponents = op.graph().constant(at::arange(factors.numel(), at::kDouble), "");
  const std::string powers = op.add("Pow", {op.unsqueeze(y, {-1}), exponents});
  const std::string polynomial = op.add("MatMul", {powers, op.graph().constant(factors, "")});
  const std::string exponent = op.add("Sub", {polynomial, op.add("Mul", {x, x})});
  const std::string above = op.add("Mul", {t, op.add("Exp", {exponent})});
  const std::string is_negative = op.add("Less", {x, number(0)});
  const std::string result =
      op.add("Where", {is_negative, op.add("Sub", {number(2), above}), above});
  op.bind(op.cast(result, at::kDouble, type));
}

void lower_trunc(RecordedOperation& op, const Operator&) {
  if (!at::isFloatingType(op.result_type())) return op.bind(op.tensor(0));
  op.bind(truncated(op, op.tensor(0), op.graph().scalar(0, op.result_type())));
}

void lower_frac(RecordedOperation& op, const Operator&) {
  const std::string x = op.tensor(0);
  op.result("Sub", {x, truncated(op, x, op.graph().scalar(0, op.result_type()))});
}

// LibTorch's sign of NaN is 0.
void lower_sign(RecordedOperation& op, const Operator&) {
  const at::ScalarType type = op.result_type();
  const std::string x = op.tensor_as(0, type);
  const std::string sign = op.add("Sign", {x});
  if (!at::isFloatingType(type)) return op.bind(sign);
  op.result("Where", {op.add("IsNaN", {x}), op.graph().scalar(0, type), sign});
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
// counts: it is visible in 1 / x, whose own zeros come from infinities. y and x take no way through
// Where, which makes zeros positive in onnxruntime.
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
  // The quotient is NaN at the origin, and for two infinities, which are at the angle of two ones.
  const std::string is_origin =
      op.add("And", {op.add("Equal", {y, zero}), op.add("Equal", {x, zero})});
  const std::string are_infinite = op.add("And", {op.add("IsInf", {y}), op.add("IsInf", {x})});
  const std::string signs = op.add("Mul", {op.add("Sign", {y}), op.add("Sign", {x})});
  const std::string eighth = op.add("Mul", {signs, op.graph().scalar(std::numbers::pi / 4, type)});
  const std::string plain = op.add("Atan", {op.add("Div", {y, x})});
  const std::string angle =
      op.add("Where", {are_infinite, eighth, op.add("Where", {is_origin, zero, plain})});
  const std::string turn = op.add("Where", {has_minus(y), op.add("Neg", {pi}), pi});
  op.result("Where", {has_minus(x), op.add("Add", {angle, turn}), angle});
}

// The larger side times sqrt(1 + ratio^2): the square of a side may be out of range. As in C's
// hypot(), the result is infinite if a side is, even beside NaN.
void lower_hypot(RecordedOperation& op, const Operator&) {
  const at::ScalarType type = op.result_type();
  const std::string a = op.widened(op.add("Abs", {op.tensor_as(0, type)}), type);
  const std::string b = op.widened(op.add("Abs", {op.tensor_as(1, type)}), type);
  const std::string large = op.add("Max", {a, b});
  const std::string small = op.add("Min", {a, b});
  const std::string ratio = op.add("Div", {small, large});
  const std::string sum = op.add("Add", {op.add("Mul", {ratio, ratio}), op.wide_scalar(1, type)});
  const std::string product = op.add("Mul", {large, op.add("Sqrt", {sum})});
  const std::string is_zero = op.add("Equal", {large, op.wide_scalar(0, type)});
  const std::string finite = op.add("Where", {is_zero, large, product});
  const std::string is_infinite = op.add("Or", {op.add("IsInf", {a}), op.add("IsInf", {b})});
  const std::string infinity = op.wide_scalar(std::numeric_limits<double>::infinity(), type);
  op.bind(op.narrowed(op.add("Where", {is_infinite, infinity, finite}), type));
}

// self + value * tensor1 * tensor2, or self + value * tensor1 / tensor2.
void lower_addc(RecordedOperation& op, const Operator& entry) {
  const std::string first = precise_argument(op, 1);
  const bool has_factor = op.number_or(3, 1) != 1;
  const std::string scaled = has_factor ? op.add("Mul", {first, precise_argument(op, 3)}) : first;
  const std::string term = op.add(entry.onnx, {scaled, precise_argument(op, 2)});
  op.bind(op.narrowed(op.add("Add", {precise_argument(op, 0), term}), op.result_type()));
}

// Computes from the nearer end, as LibTorch does: start + (end - start) may differ from the end.
void lower_lerp(RecordedOperation& op, const Operator&) {
  const at::ScalarType type = op.result_type();
  const std::string start = precise_argument(op, 0);
  const std::string end = precise_argument(op, 1);
  const std::string weight = precise_argument(op, 2);
  const auto number = [&](double value) {
    return type == at::kHalf ? op.wide_scalar(value, type) : op.graph().scalar(value, type);
  };
  const std::string way = op.add("Sub", {end, start});
  const std::string rest = op.add("Sub", {number(1), weight});
  const std::string from_start = op.add("Add", {start, op.add("Mul", {weight, way})});
  const std::string from_end = op.add("Sub", {end, op.add("Mul", {way, rest})});
  const std::string is_near = op.add("Less", {op.add("Abs", {weight}), number(0.5)});
  op.bind(op.narrowed(op.add("Where", {is_near, from_start, from_end}), type));
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
  for (const std::size_t i : {1, 2}) {  // ONNX's Clip ignores NaN
    if (op.has(i) && std::isnan(op.number(i))) return lower_bounds(op, 1, 2);
  }
  op.result("Clip", {op.tensor_as(0, type), op.has(1) ? op.tensor_as(1, type) : "",
                     op.has(2) ? op.tensor_as(2, type) : ""});
}
void lower_clamp_min(RecordedOperation& op, const Operator&) { lower_bounds(op, 1, std::nullopt); }
void lower_clamp_max(RecordedOperation& op, const Operator&) { lower_bounds(op, std::nullopt, 1); }

void lower_nan_to_num(RecordedOperation& op, const Operator&) {
  const at::ScalarType type = op.result_type();
  if (!at::isFloatingType(type)) return op.bind(op.tensor(0));
  if (type != at::kFloat && type != at::kDouble) op.reject("it is lowered for float and double");
  const double largest =
      type == at::kFloat ? std::numeric_limits<float>::max() : std::numeric_limits<double>::max();
  const auto bound = [&](std::size_t i, double otherwise) {
    return op.graph().scalar(op.number_or(i, otherwise), type);
  };
  const std::string x = op.tensor(0);
  const std::string number = op.add("Where", {op.add("IsNaN", {x}), bound(1, 0), x});
  // Both infinities get the lower bound, and then the positive one gets the upper bound.
  const std::string infinite = op.add("IsInf", {x});
  const std::string above = op.add("IsInf", {x}, {{"detect_negative", 0}});
  const std::string low = op.add("Where", {infinite, bound(3, -largest), number});
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
    {"ceil", lower_rounding, "Ceil"},
    {"clamp", lower_clamp},
    {"clamp_max", lower_clamp_max},
    {"clamp_min", lower_clamp_min},
    {"copysign", lower_copysign},
    {"cos", lower_unary, "Cos"},
    {"cosh", lower_unary, "Cosh"},
    {"deg2rad", lower_deg2rad},
    {"div", lower_div},
    {"erf", lower_unary, "Erf"},
    {"erfc", lower_erfc},
    {"exp", lower_unary, "Exp"},
    {"exp2", lower_exp2},
    {"expm1", lower_expm1},
    {"float_power", lower_pow},
    {"floor", lower_rounding, "Floor"},
    {"floor_divide", lower_floor_divide},
    {"fmax", lower_extreme_number, "Max"},
    {"fmin", lower_extreme_number, "Min"},
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
    {"round", lower_rounding, "Round"},
    {"rsqrt", lower_rsqrt},
    {"rsub", lower_rsub},
    {"sgn", lower_sign},
    {"sign", lower_sign},
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
