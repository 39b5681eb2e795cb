#include <lockstep/program/python_operators.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include <lockstep/core/error.h>

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
bool both_integers(Operands operands) {
  return !at(operands, 0).isDouble() && !at(operands, 1).isDouble();
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

// Rounds towards minus infinity, unlike C++.
std::int64_t floor_quotient(std::int64_t a, std::int64_t b) {
  if (b == 0) division_by_zero();
  if (b == -1) {
    if (a == std::numeric_limits<std::int64_t>::min()) too_large();
    return -a;
  }
  const std::int64_t quotient = a / b;
  return quotient * b != a && (a < 0) != (b < 0) ? quotient - 1 : quotient;
}

IValue floor_divide(Operands operands) {
  if (both_integers(operands)) return floor_quotient(integer(operands[0]), integer(operands[1]));
  if (real(operands[1]) == 0) division_by_zero();
  return std::floor(real(operands[0]) / real(operands[1]));
}
IValue divide(Operands operands) {
  if (real(at(operands, 1)) == 0) division_by_zero();
  return real(operands[0]) / real(operands[1]);
}
// The result has the sign of the divisor.
IValue modulo(Operands operands) {
  if (both_integers(operands)) {
    const std::int64_t a = integer(operands[0]), b = integer(operands[1]);
    if (b == -1) return std::int64_t{0};
    return a - floor_quotient(a, b) * b;
  }
  const double a = real(operands[0]), b = real(operands[1]);
  if (b == 0) division_by_zero();
  const double rest = std::fmod(a, b);
  return rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest;
}
IValue power(Operands operands) {
  if (!both_integers(operands) || integer(operands[1]) < 0) {
    return std::pow(real(at(operands, 0)), real(at(operands, 1)));
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

IValue maximum(Operands o) { return python_truth(greater(o)) ? o[0] : o[1]; }
IValue minimum(Operands o) { return python_truth(less(o)) ? o[0] : o[1]; }
IValue negative(Operands operands) {
  if (at(operands, 0).isDouble()) return -operands[0].toDouble();
  const std::int64_t value = integer(operands[0]);
  if (value == std::numeric_limits<std::int64_t>::min()) too_large();
  return -value;
}
IValue positive(Operands operands) { return at(operands, 0); }
IValue absolute(Operands operands) {
  return real(at(operands, 0)) < 0 ? negative(operands) : operands[0];
}

template <double (*Round)(double)>
IValue to_integer(Operands operands) {
  if (!at(operands, 0).isDouble()) return integer(operands[0]);
  const double rounded = Round(operands[0].toDouble());
  if (!(std::abs(rounded) < 0x1p63)) too_large();
  return static_cast<std::int64_t>(rounded);
}
template <double (*Function)(double)>
IValue of_real(Operands operands) {
  return Function(real(at(operands, 0)));
}

IValue to_real(Operands operands) { return real(at(operands, 0)); }
IValue negation(Operands operands) { return !python_truth(at(operands, 0)); }
// `&` and `|` of Python: of bits, unless both operands are truth values.
template <class OfBits>
IValue bitwise(Operands operands, OfBits of_bits) {
  const std::int64_t bits = of_bits(integer(at(operands, 0)), integer(at(operands, 1)));
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
    {"builtins.round", to_integer<std::nearbyint>},
    {"torch.sym_int", to_integer<std::trunc>},
    {"torch.sym_float", to_real},
    {"torch.sym_not", negation},
    {"torch.sym_ite", if_then_else},
    {"torch.sym_max", maximum},
    {"torch.sym_min", minimum},
    {"torch._sym_sqrt", of_real<std::sqrt>},
    {"torch.sym_sqrt", of_real<std::sqrt>},
    {"torch._sym_cos", of_real<std::cos>},
    {"torch._sym_cosh", of_real<std::cosh>},
    {"torch._sym_sin", of_real<std::sin>},
    {"torch._sym_sinh", of_real<std::sinh>},
    {"torch._sym_tan", of_real<std::tan>},
    {"torch._sym_tanh", of_real<std::tanh>},
    {"torch._sym_asin", of_real<std::asin>},
    {"torch._sym_acos", of_real<std::acos>},
    {"torch._sym_atan", of_real<std::atan>},
    {"torch._sym_log2", of_real<std::log2>},
};

}  // namespace

PythonOperator python_operator(std::string_view target) {
  const auto found = std::find_if(std::begin(kOperators), std::end(kOperators),
                                  [&](const auto& known) { return known.first == target; });
  return found == std::end(kOperators) ? nullptr : found->second;
}

}  // namespace lockstep::program
