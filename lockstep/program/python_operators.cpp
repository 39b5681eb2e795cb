#include <lockstep/program/python_operators.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include <lockstep/core/error.h>
#include <lockstep/program/graph/expression.h>

namespace lockstep::program {
namespace {

using c10::IValue;
using Operands = std::span<const IValue>;

std::int64_t integer(const IValue& value) {
  return value.isBool() ? static_cast<std::int64_t>(value.toBool()) : value.toInt();
}
double real(const IValue& value) {
  return value.isDouble() ? value.toDouble() : static_cast<double>(integer(value));
}
bool python_truth(const IValue& value) {
  return value.isBool()     ? value.toBool()
         : value.isDouble() ? value.toDouble() != 0
                            : value.toInt() != 0;
}

const IValue& at(Operands operands, std::size_t i) {
  if (i >= operands.size()) throw ConfigError("an operand is missing");
  return operands[i];
}
// Throws if there are not two operands.
bool both_integers(Operands operands) {
  const IValue &first = at(operands, 0), &second = at(operands, 1);
  return !first.isDouble() && !second.isDouble();
}

[[noreturn]] void too_large() { throw ConfigError("the result has more than 64 bits"); }
[[noreturn]] void division_by_zero() { throw ConfigError("division by zero"); }

template <class OnIntegers, class OnReals>
IValue arithmetic(Operands operands, OnIntegers on_integers, OnReals on_reals) {
  if (!both_integers(operands)) return on_reals(real(operands[0]), real(operands[1]));
  std::int64_t result = 0;
  if (on_integers(integer(operands[0]), integer(operands[1]), &result)) too_large();
  return result;
}

IValue add(Operands operands) {
  return arithmetic(
      operands,
      [](std::int64_t a, std::int64_t b, std::int64_t* c) {
        return __builtin_add_overflow(a, b, c);
      },
      [](double a, double b) { return a + b; });
}
IValue subtract(Operands operands) {
  return arithmetic(
      operands,
      [](std::int64_t a, std::int64_t b, std::int64_t* c) {
        return __builtin_sub_overflow(a, b, c);
      },
      [](double a, double b) { return a - b; });
}
IValue multiply(Operands operands) {
  return arithmetic(
      operands,
      [](std::int64_t a, std::int64_t b, std::int64_t* c) {
        return __builtin_mul_overflow(a, b, c);
      },
      [](double a, double b) { return a * b; });
}

double floor_rest(double a, double b) {
  if (b == 0) division_by_zero();
  const double rest = std::fmod(a, b);
  if (rest == 0) return std::copysign(0.0, b);
  return (rest < 0) != (b < 0) ? rest + b : rest;
}

// As CPython's float_floor_div(): 1.0 // 0.1 is 9, although 1.0 / 0.1 is rounded to 10.
double floor_quotient(double a, double b) {
  const double rest = std::fmod(a, b);
  double quotient = (a - rest) / b;
  if (rest != 0 && (rest < 0) != (b < 0)) quotient -= 1;
  if (quotient == 0) return std::copysign(0.0, a / b);
  const double rounded = std::floor(quotient);
  return quotient - rounded > 0.5 ? rounded + 1 : rounded;
}

IValue floor_divide(Operands operands) {
  if (both_integers(operands)) {
    const std::int64_t divisor = integer(operands[1]);
    const auto quotient = floor_div(integer(operands[0]), divisor);
    if (!quotient && divisor != 0) too_large();
    if (!quotient) division_by_zero();
    return *quotient;
  }
  if (real(operands[1]) == 0) division_by_zero();
  return floor_quotient(real(operands[0]), real(operands[1]));
}
IValue divide(Operands operands) {
  if (real(at(operands, 1)) == 0) division_by_zero();
  return real(operands[0]) / real(operands[1]);
}
IValue modulo(Operands operands) {
  if (both_integers(operands)) {
    const auto rest = floor_mod(integer(operands[0]), integer(operands[1]));
    if (!rest) division_by_zero();
    return *rest;
  }
  return floor_rest(real(operands[0]), real(operands[1]));
}
// Python raises an error if a function of finite numbers is not finite, such as sqrt(-1.0).
double checked(double result, double a, double b = 0) {
  const bool has_result = std::isnan(result)   ? std::isnan(a) || std::isnan(b)
                          : std::isinf(result) ? !std::isfinite(a) || !std::isfinite(b)
                                               : true;
  if (!has_result) throw ConfigError("the function has no finite result");
  return result;
}
IValue power(Operands operands) {
  if (!both_integers(operands) || integer(operands[1]) < 0) {
    const double base = real(operands[0]), exponent = real(operands[1]);
    if (base == 0 && exponent < 0) division_by_zero();
    return checked(std::pow(base, exponent), base, exponent);
  }
  std::int64_t base = integer(operands[0]), result = 1;
  for (std::int64_t left = integer(operands[1]); left > 0; left >>= 1) {
    if ((left & 1) != 0 && __builtin_mul_overflow(result, base, &result)) too_large();
    if (left > 1 && __builtin_mul_overflow(base, base, &base)) too_large();
  }
  return result;
}

template <class Compare>
bool compare(Operands operands, Compare compare) {
  if (both_integers(operands)) return compare(integer(operands[0]), integer(operands[1]));
  return compare(real(operands[0]), real(operands[1]));
}
IValue equal(Operands o) {
  return compare(o, [](auto a, auto b) { return a == b; });
}
IValue not_equal(Operands o) {
  return compare(o, [](auto a, auto b) { return a != b; });
}
IValue less(Operands o) {
  return compare(o, [](auto a, auto b) { return a < b; });
}
IValue less_equal(Operands o) {
  return compare(o, [](auto a, auto b) { return a <= b; });
}
IValue greater(Operands o) {
  return compare(o, [](auto a, auto b) { return a > b; });
}
IValue greater_equal(Operands o) {
  return compare(o, [](auto a, auto b) { return a >= b; });
}

// The first of two equal operands. A floating-point number if one of them is.
IValue chosen(Operands operands, std::size_t i) {
  if (both_integers(operands)) return operands[i];
  return real(operands[i]);
}
IValue maximum(Operands o) { return chosen(o, python_truth(less(o)) ? 1U : 0U); }
IValue minimum(Operands o) { return chosen(o, python_truth(greater(o)) ? 1U : 0U); }
IValue negative(Operands operands) {
  if (at(operands, 0).isDouble()) return -operands[0].toDouble();
  const std::int64_t value = integer(operands[0]);
  if (value == std::numeric_limits<std::int64_t>::min()) too_large();
  return -value;
}
IValue positive(Operands operands) {
  if (at(operands, 0).isDouble()) return operands[0];
  return integer(operands[0]);
}
IValue absolute(Operands operands) {
  if (at(operands, 0).isDouble()) return std::fabs(operands[0].toDouble());
  return integer(operands[0]) < 0 ? negative(operands) : positive(operands);
}

template <double (*Round)(double)>
IValue to_integer(Operands operands) {
  if (!at(operands, 0).isDouble()) return integer(operands[0]);
  const double rounded = Round(operands[0].toDouble());
  if (!(std::abs(rounded) < 0x1p63)) too_large();
  return static_cast<std::int64_t>(rounded);
}
template <double (*Function)(double)>
IValue real_function(Operands operands) {
  const double value = real(at(operands, 0));
  return checked(Function(value), value);
}

// round(number, digits) is another function.
IValue round_to_integer(Operands operands) {
  if (operands.size() > 1 && !operands[1].isNone()) {
    throw ConfigError("rounding to a number of digits is not supported");
  }
  return to_integer<std::nearbyint>(operands);
}

IValue to_real(Operands operands) { return real(at(operands, 0)); }
IValue negation(Operands operands) { return !python_truth(at(operands, 0)); }
// `&` and `|` of Python: of bits, unless both operands are truth values.
template <class Combine>
IValue bitwise(Operands operands, Combine combine) {
  const std::int64_t bits = combine(integer(at(operands, 0)), integer(at(operands, 1)));
  if (operands[0].isBool() && operands[1].isBool()) return bits != 0;
  return bits;
}
IValue both(Operands o) {
  return bitwise(o, [](auto a, auto b) { return a & b; });
}
IValue either(Operands o) {
  return bitwise(o, [](auto a, auto b) { return a | b; });
}
IValue shift_left(Operands operands) {
  const std::int64_t bits = integer(at(operands, 1));
  if (bits < 0 || bits > 62) too_large();
  const IValue factors[] = {operands[0], std::int64_t{1} << bits};
  return multiply(factors);
}
IValue shift_right(Operands operands) {
  const std::int64_t bits = integer(at(operands, 1));
  if (bits < 0) too_large();
  return integer(operands[0]) >> std::min<std::int64_t>(bits, 63);
}
IValue if_then_else(Operands operands) {
  const IValue& other = at(operands, 2);
  return python_truth(operands[0]) ? operands[1] : other;
}

constexpr std::pair<std::string_view, PythonOperator> kOperators[] = {
    {"_operator.add", add},
    {"_operator.sub", subtract},
    {"_operator.mul", multiply},
    {"_operator.floordiv", floor_divide},
    {"_operator.truediv", divide},
    {"_operator.mod", modulo},
    {"_operator.pow", power},
    {"_operator.neg", negative},
    {"_operator.pos", positive},
    {"_operator.abs", absolute},
    {"_operator.eq", equal},
    {"_operator.ne", not_equal},
    {"_operator.lt", less},
    {"_operator.le", less_equal},
    {"_operator.gt", greater},
    {"_operator.ge", greater_equal},
    {"_operator.and_", both},
    {"_operator.or_", either},
    {"_operator.not_", negation},
    {"_operator.lshift", shift_left},
    {"_operator.rshift", shift_right},
    {"math.trunc", to_integer<std::trunc>},
    {"math.ceil", to_integer<std::ceil>},
    {"math.floor", to_integer<std::floor>},
    {"builtins.round", round_to_integer},
    {"torch.sym_int", to_integer<std::trunc>},
    {"torch.sym_float", to_real},
    {"torch.sym_not", negation},
    {"torch.sym_ite", if_then_else},
    {"torch.sym_max", maximum},
    {"torch.sym_min", minimum},
    {"torch._sym_sqrt", real_function<std::sqrt>},
    {"torch.sym_sqrt", real_function<std::sqrt>},
    {"torch._sym_cos", real_function<std::cos>},
    {"torch._sym_cosh", real_function<std::cosh>},
    {"torch._sym_sin", real_function<std::sin>},
    {"torch._sym_sinh", real_function<std::sinh>},
    {"torch._sym_tan", real_function<std::tan>},
    {"torch._sym_tanh", real_function<std::tanh>},
    {"torch._sym_asin", real_function<std::asin>},
    {"torch._sym_acos", real_function<std::acos>},
    {"torch._sym_atan", real_function<std::atan>},
    {"torch._sym_log2", real_function<std::log2>},
};

}  // namespace

PythonOperator python_operator(std::string_view target) {
  const auto found = std::find_if(std::begin(kOperators), std::end(kOperators),
                                  [&](const auto& known) { return known.first == target; });
  return found == std::end(kOperators) ? nullptr : found->second;
}

}  // namespace lockstep::program
