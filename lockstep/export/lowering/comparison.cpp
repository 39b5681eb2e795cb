// Comparisons, booleans and choices between two tensors.
#include <limits>

#include <lockstep/export/lowering/operators.h>

namespace lockstep::onnx {
namespace {

// The type in which LibTorch compares two arguments: a number, or a tensor without dimensions,
// affects it only if it is of a higher kind (boolean, integer, floating) than the tensor.
at::ScalarType compared_type(const RecordedOperation& op) {
  const auto like = [&op](std::size_t i) {
    const std::vector<std::int64_t> sizes(static_cast<std::size_t>(op.rank(i)), 1);
    return at::empty(sizes, op.type(i));
  };
  return op.is_tensor(1) ? at::result_type(like(0), like(1))
                         : at::result_type(like(0), op.scalar(1));
}

void lower_comparison(RecordedOperation& op, const Operator& entry) {
  at::ScalarType type = compared_type(op);
  const bool orders = std::string_view(entry.onnx) != "Equal";
  if (type == at::kBool && orders) type = at::kInt;  // ONNX cannot order booleans
  op.result(entry.onnx, {op.tensor_as(0, type), op.tensor_as(1, type)});
}

void lower_not_equal(RecordedOperation& op, const Operator&) {
  const at::ScalarType type = compared_type(op);
  op.result("Not", {op.add("Equal", {op.tensor_as(0, type), op.tensor_as(1, type)})});
}

void lower_logical(RecordedOperation& op, const Operator& entry) {
  op.result(entry.onnx, {op.tensor_as(0, at::kBool), op.tensor_as(1, at::kBool)});
}

void lower_logical_not(RecordedOperation& op, const Operator&) {
  op.result("Not", {op.tensor_as(0, at::kBool)});
}

// All whole numbers and booleans are finite.
bool bind_if_always_finite(RecordedOperation& op, bool truth) {
  if (at::isFloatingType(op.type(0))) return false;
  const std::string value = op.graph().scalar(truth ? 1 : 0, at::kBool);
  op.result("Expand", {value, op.graph().sizes(op.result_sizes())});
  return true;
}

void lower_isnan(RecordedOperation& op, const Operator&) {
  if (!bind_if_always_finite(op, false)) op.result("IsNaN", {op.tensor(0)});
}

void lower_isinf(RecordedOperation& op, const Operator&) {
  if (!bind_if_always_finite(op, false)) op.result("IsInf", {op.tensor(0)});
}

void lower_isfinite(RecordedOperation& op, const Operator&) {
  if (bind_if_always_finite(op, true)) return;
  const std::string x = op.tensor(0);
  op.result("Not", {op.add("Or", {op.add("IsNaN", {x}), op.add("IsInf", {x})})});
}

void lower_where(RecordedOperation& op, const Operator&) {
  if (op.arguments() < 3) op.reject("where() with a condition alone gives sizes that vary");
  const at::ScalarType type = op.result_type();
  op.result("Where", {op.tensor_as(0, at::kBool), op.tensor_as(1, type), op.tensor_as(2, type)});
}

void lower_masked_fill(RecordedOperation& op, const Operator&) {
  const at::ScalarType type = op.result_type();
  op.result("Where", {op.tensor_as(1, at::kBool), op.tensor_as(2, type), op.tensor_as(0, type)});
}

constexpr Operator kComparison[] = {
    {"eq", lower_comparison, "Equal"},
    {"ge", lower_comparison, "GreaterOrEqual"},
    {"gt", lower_comparison, "Greater"},
    {"isfinite", lower_isfinite},
    {"isinf", lower_isinf},
    {"isnan", lower_isnan},
    {"le", lower_comparison, "LessOrEqual"},
    {"logical_and", lower_logical, "And"},
    {"logical_not", lower_logical_not},
    {"logical_or", lower_logical, "Or"},
    {"logical_xor", lower_logical, "Xor"},
    {"lt", lower_comparison, "Less"},
    {"masked_fill", lower_masked_fill},
    {"ne", lower_not_equal},
    {"where", lower_where},
};

}  // namespace

Family comparison_operators() { return kComparison; }

}  // namespace lockstep::onnx
