// Element-wise functions and arithmetic.
#include <optional>

#include <tests/export/operators/case_list.h>

namespace lockstep::testing_support {
namespace {

using torch::Tensor;

// Four numbers, including zeros of both signs, each repeated four times: either adjacent or
// alternating.
MakeInput signed_numbers(bool in_turn) {
  return [in_turn](std::int64_t batch) {
    const Tensor four = torch::tensor({-0.0F, 0.0F, -1.0F, 2.0F});
    const Tensor row = in_turn ? four.repeat({4}) : four.repeat_interleave(4);
    return row.expand({batch, 16}).contiguous();
  };
}

void add_functions(CaseList& cases) {
  const auto unary = [&cases](const char* op, Tensor (Tensor::*method)() const, double low,
                              double high) {
    cases.add(op, [method](const Tensor& x) { return (x.*method)(); },
              {between(low, high, {3, 4})});
  };
  unary("abs", &Tensor::abs, -2, 2);
  unary("acos", &Tensor::acos, -0.9, 0.9);
  unary("acosh", &Tensor::acosh, 1.1, 3);
  unary("asin", &Tensor::asin, -0.9, 0.9);
  unary("asinh", &Tensor::asinh, -2, 2);
  unary("atan", &Tensor::atan, -2, 2);
  unary("atanh", &Tensor::atanh, -0.9, 0.9);
  unary("ceil", &Tensor::ceil, -2, 2);
  unary("cos", &Tensor::cos, -3, 3);
  unary("cosh", &Tensor::cosh, -2, 2);
  unary("deg2rad", &Tensor::deg2rad, -180, 180);
  unary("erf", &Tensor::erf, -2, 2);
  unary("erfc", &Tensor::erfc, -2, 2);
  unary("exp", &Tensor::exp, -2, 2);
  unary("exp2", &Tensor::exp2, -2, 2);
  unary("expm1", &Tensor::expm1, -2, 2);
  unary("floor", &Tensor::floor, -2, 2);
  unary("frac", &Tensor::frac, -2, 2);
  unary("log", &Tensor::log, 0.1, 3);
  unary("log10", &Tensor::log10, 0.1, 3);
  unary("log1p", &Tensor::log1p, -0.5, 3);
  unary("log2", &Tensor::log2, 0.1, 3);
  unary("neg", &Tensor::neg, -2, 2);
  unary("rad2deg", &Tensor::rad2deg, -3, 3);
  unary("reciprocal", &Tensor::reciprocal, 0.5, 2);
  unary("rsqrt", &Tensor::rsqrt, 0.1, 2);
  unary("sgn", &Tensor::sgn, -2, 2);
  unary("sign", &Tensor::sign, -2, 2);
  unary("sin", &Tensor::sin, -3, 3);
  unary("sinh", &Tensor::sinh, -2, 2);
  unary("sqrt", &Tensor::sqrt, 0.1, 2);
  unary("square", &Tensor::square, -2, 2);
  unary("tan", &Tensor::tan, -1, 1);
  unary("trunc", &Tensor::trunc, -2, 2);
  cases.add("round", [](const Tensor& x) { return x.round(); });
  cases.add("nan_to_num", [](const Tensor& x) { return x.log().nan_to_num(7.0, 8.0, -9.0); });
}

void add_arithmetic(CaseList& cases) {
  const std::vector<MakeInput> pair = {floats({3, 4}), between(0.5, 2, {3, 4})};
  const std::vector<MakeInput> whole = {integers(-9, 9, {3, 4}), integers(1, 5, {3, 4})};
  cases.add("add", [](const Tensor& x, const Tensor& y) { return x.add(y, 2.5); }, pair);
  cases.add("add", [](const Tensor& x) { return x + 1; });
  cases.add("add", [](const Tensor& x, const Tensor& n) { return x + n; },
            {floats({4}), integers(0, 5, {4})});
  cases.add("add", [](const Tensor& x) { return x.clone().add_(x.mul(3)).add_(1); });
  cases.add("sub", [](const Tensor& x, const Tensor& y) { return x - y; }, pair);
  cases.add(
           "sub", [](const Tensor& x, const Tensor& y) { return x.sub(y, 2.5); }, pair)
      .adds_terms = true;
  cases.add("rsub", [](const Tensor& x) { return at::rsub(x, 1, 2); });
  cases.add("mul", [](const Tensor& x, const Tensor& y) { return x * y * 0.5; }, pair);
  cases.add("div", [](const Tensor& x, const Tensor& y) { return x / y; }, pair);
  cases.add("div", [](const Tensor& x, const Tensor& y) { return x.div(y, "floor"); }, pair);
  cases.add("div", [](const Tensor& x, const Tensor& y) { return x.div(y, "trunc"); }, pair);
  cases.add("div", [](const Tensor& x, const Tensor& y) { return x.div(y, "floor"); }, whole);
  cases.add("div", [](const Tensor& x, const Tensor& y) { return x / y; }, whole);
  cases.add(
      "floor_divide", [](const Tensor& x, const Tensor& y) { return x.floor_divide(y); }, pair);
  cases.add("remainder", [](const Tensor& x, const Tensor& y) { return x.remainder(y); }, pair);
  cases.add("remainder", [](const Tensor& x, const Tensor& y) { return x.remainder(y); }, whole);
  cases.add("fmod", [](const Tensor& x, const Tensor& y) { return x.fmod(y); }, pair);
  cases.add("fmod", [](const Tensor& x, const Tensor& y) { return x.fmod(y); }, whole);
  cases.add("pow", [](const Tensor& x, const Tensor& y) { return x.abs().pow(y); }, pair);
  cases.add("pow", [](const Tensor& x) { return x.pow(3); });
  cases.add("pow", [](const Tensor& x) { return at::pow(2.5, x); });
  cases.add("atan2", [](const Tensor& x, const Tensor& y) { return x.atan2(y - 1.2); }, pair);
  cases.add("atan2", [](const Tensor& y, const Tensor& x) { return y.atan2(x); },
            {signed_numbers(false), signed_numbers(true)});
  cases.add("hypot", [](const Tensor& x, const Tensor& y) { return x.hypot(y); }, pair);
  cases.add("maximum", [](const Tensor& x, const Tensor& y) { return at::maximum(x, y); }, pair);
  cases.add("minimum", [](const Tensor& x, const Tensor& y) { return at::minimum(x, y); }, pair);
  cases.add("lerp", [](const Tensor& x, const Tensor& y) { return x.lerp(y, 0.3); }, pair);
  cases.add(
      "float_power", [](const Tensor& x, const Tensor& y) { return x.abs().float_power(y); }, pair);
  cases.add("float_power", [](const Tensor& x) { return x.abs().float_power(0.5); });
  cases.add("float_power", [](const Tensor& x) { return x.float_power(3); }, {whole[0]});
  const std::vector<MakeInput> three = {floats({4}), floats({4}), between(0.5, 2, {4})};
  cases.set_adds_terms(true);
  cases.add(
      "addcmul",
      [](const Tensor& x, const Tensor& y, const Tensor& z) { return x.addcmul(y, z, 0.5); },
      three);
  cases.add(
      "addcdiv",
      [](const Tensor& x, const Tensor& y, const Tensor& z) { return x.addcdiv(y, z, 2); }, three);
  cases.set_adds_terms(false);
  cases.add("addcmul", [](const Tensor& x, const Tensor& y) { return x.addcmul(y, y, 3); }, whole);
  cases.add("clamp", [](const Tensor& x) { return x.clamp(-0.5, 0.5); });
  cases.add("clamp", [](const Tensor& x) { return x.clamp(std::nullopt, 0.5); });
  cases.add("clamp", [](const Tensor& x, const Tensor& y) { return x.clamp(-y, y); }, pair);
  cases.add("clamp_min", [](const Tensor& x) { return x.clamp_min(0.1); });
  cases.add("clamp_max", [](const Tensor& x) { return x.clamp_max(0.1); });
}

void add_broadcasts(CaseList& cases) {
  const Tensor row = torch::arange(4, torch::kFloat) - 1.5;
  const Tensor column = torch::arange(3, torch::kFloat).view({3, 1}) + 0.5;
  cases.add("where", [=](const Tensor& x) { return at::where(column > 1, x, row); });
  cases.add("where", [=](const Tensor& x) { return at::where(x > 0, row, column); });
  cases.add("masked_fill", [=](const Tensor& x) { return x.masked_fill(column > 1, 2.5); });
  cases.add("masked_fill",
            [](const Tensor& x) { return x.masked_fill(x > 0, torch::full({}, -3.0)); });
  cases.add("clamp", [=](const Tensor& x) { return x.clamp(-column, column); });
  cases.add("clamp", [=](const Tensor& x) { return x.clamp(row, std::optional<Tensor>()); });
  cases.add("hypot", [=](const Tensor& x) { return row.hypot(x); });
  cases.add("atan2", [=](const Tensor& x) { return column.atan2(x); });
  cases.set_adds_terms(true);
  cases.add("lerp", [=](const Tensor& x) { return x.lerp(row, column / 3); });
  cases.add("lerp", [=](const Tensor& x) { return row.lerp(x, column); });
  cases.add("addcmul", [=](const Tensor& x) { return row.addcmul(x, column, 0.5); });
  cases.add("addcdiv", [=](const Tensor& x) { return x.addcdiv(row, column, 2); });
  cases.set_adds_terms(false);
}

}  // namespace

void add_elementwise_cases(CaseList& cases) {
  add_functions(cases);
  add_arithmetic(cases);
  add_broadcasts(cases);
}

}  // namespace lockstep::testing_support
