// Comparisons, logical operators, and selections by condition.
#include <limits>

#include <tests/export/operators/case_list.h>

namespace lockstep::testing_support {
namespace {

using torch::Tensor;

}  // namespace

void add_comparison_cases(CaseList& cases) {
  const std::vector<MakeInput> whole = {integers(0, 4, {3, 4}), integers(0, 4, {3, 4})};
  const std::vector<MakeInput> truth = {truths({3, 4}), truths({3, 4})};
  cases.add("eq", [](const Tensor& x, const Tensor& y) { return x == y; }, whole);
  cases.add("ne", [](const Tensor& x, const Tensor& y) { return x != y; }, whole);
  cases.add("lt", [](const Tensor& x, const Tensor& y) { return x < y; }, whole);
  cases.add("le", [](const Tensor& x, const Tensor& y) { return x <= y; }, whole);
  cases.add("gt", [](const Tensor& x, const Tensor& y) { return x > y; }, whole);
  cases.add("gt", [](const Tensor& x) { return x > 1.5; }, {integers(0, 4, {3, 4})});
  cases.add("ge", [](const Tensor& x, const Tensor& y) { return x >= y; }, whole);
  cases.add(
      "logical_and", [](const Tensor& x, const Tensor& y) { return x.logical_and(y); }, whole);
  cases.add("logical_or", [](const Tensor& x, const Tensor& y) { return x.logical_or(y); }, truth);
  cases.add(
      "logical_xor", [](const Tensor& x, const Tensor& y) { return x.logical_xor(y); }, truth);
  cases.add("logical_not", [](const Tensor& x) { return x.logical_not(); }, {truths({3, 4})});
  cases.add(
      "bitwise_and", [](const Tensor& x, const Tensor& y) { return x.bitwise_and(y); }, truth);
  cases.add(
           "bitwise_and", [](const Tensor& x, const Tensor& y) { return x.bitwise_and(y); }, whole)
      .first_opset = 18;
  cases.add("bitwise_or", [](const Tensor& x, const Tensor& y) { return x.bitwise_or(y); }, truth);
  cases.add(
      "bitwise_xor", [](const Tensor& x, const Tensor& y) { return x.bitwise_xor(y); }, truth);
  cases.add("bitwise_not", [](const Tensor& x) { return x.bitwise_not(); }, {truths({3, 4})});
  cases.add("__and__", [](const Tensor& x, const Tensor& y) { return x.__and__(y); }, truth);
  cases.add("__or__", [](const Tensor& x, const Tensor& y) { return x.__or__(y); }, truth);
  cases.add("__xor__", [](const Tensor& x, const Tensor& y) { return x.__xor__(y); }, truth);
  cases.add("isnan", [](const Tensor& x) { return x.log().isnan(); });
  cases.add("isinf", [](const Tensor& x) { return x.relu().log().isinf(); });
  cases.add("isfinite", [](const Tensor& x) { return x.relu().log().isfinite(); });
  cases.add("where", [](const Tensor& x, const Tensor& y) { return at::where(x > 0, x, y); },
            {floats({3, 4}), floats({3, 4})});
  cases.add("where", [](const Tensor& x) { return at::where(x > 0, x, 0.5); });
  cases.add("masked_fill", [](const Tensor& x) { return x.masked_fill(x > 0, -1e9); });
  // A tensor without dimensions is rounded to the type of the other: here to 1.
  cases.add("eq", [](const Tensor& x) { return x.eq(torch::tensor((std::int64_t{1} << 32) + 1)); },
            {rows_of({0, 1, 2, 1}, torch::kInt)});
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  constexpr double kNotANumber = std::numeric_limits<double>::quiet_NaN();
  const std::vector<MakeInput> special = {rows_of({kNotANumber, kInfinity, -kInfinity, 0, 1})};
  cases.add("isnan", [](const Tensor& x) { return x.isnan(); }, special);
  cases.add("isinf", [](const Tensor& x) { return x.isinf(); }, special);
  cases.add("isfinite", [](const Tensor& x) { return x.isfinite(); }, special);
}

}  // namespace lockstep::testing_support
