#include <lockstep/export/lowering/functions.h>

#include <cmath>
#include <limits>

namespace lockstep::onnx {

std::string wide_sigmoid(RecordedOperation& op, const std::string& x, at::ScalarType type) {
  const std::string power = op.add("Exp", {op.add("Neg", {op.widened(x, type)})});
  return op.add("Reciprocal", {op.add("Add", {power, op.wide_scalar(1, type)})});
}

std::string sigmoid(RecordedOperation& op, const std::string& x, at::ScalarType type) {
  return op.narrowed(wide_sigmoid(op, x, type), type);
}

// Kahan's method: u = exp(x) is rounded, and (u - 1) / log(u) is rounded alike, so that the factor
// x / log(u) corrects the difference. It is 0 / 0 where u is 1, and there x itself is the result.
std::string expm1(RecordedOperation& op, const std::string& x, at::ScalarType type) {
  const std::string wide = op.widened(x, type);
  const std::string one = op.wide_scalar(1, type);
  const std::string power = op.add("Exp", {wide});
  const std::string rest = op.add("Sub", {power, one});
  const std::string factor = op.add("Div", {wide, op.add("Log", {power})});
  const std::string is_small = op.add("Less", {op.add("Abs", {wide}), one});
  const std::string corrected = op.add("Where", {is_small, op.add("Mul", {rest, factor}), rest});
  return op.narrowed(op.add("Where", {op.add("Equal", {power, one}), wide, corrected}), type);
}

std::string truncated(RecordedOperation& op, const std::string& x, const std::string& zero) {
  const std::string is_negative = op.add("Less", {x, zero});
  return op.add("Where", {is_negative, op.add("Ceil", {x}), op.add("Floor", {x})});
}

// onnxruntime's reductions to an extreme value skip NaN, but its sums do not. The difference of an
// extreme value and a sum of zeros keeps the sign of a zero.
std::string extreme_value(RecordedOperation& op, Extreme extreme, const std::string& x,
                          at::ScalarType type, const std::vector<std::int64_t>& axes, bool keep) {
  if (axes.empty()) return x;
  const bool is_maximum = extreme == Extreme::kMaximum;
  const std::string value = op.reduce(is_maximum ? "ReduceMax" : "ReduceMin", x, axes, keep);
  if (!at::isFloatingType(type)) return value;
  const std::string zero = op.graph().scalar(0, type);
  const std::string only_nan = op.add("Where", {op.add("IsNaN", {x}), x, zero});
  return op.add("Sub", {value, op.reduce("ReduceSum", only_nan, axes, keep)});
}

// The last of the running sums along each axis. If there may be no elements, a zero comes before
// them.
std::string whole_sum(RecordedOperation& op, const std::string& x,
                      const std::vector<std::int64_t>& axes, bool keep) {
  constexpr std::int64_t kEnd = std::numeric_limits<std::int64_t>::max();
  std::string sum = x;
  for (const std::int64_t axis : axes) {
    const std::string at = op.graph().scalar(static_cast<double>(axis), at::kLong);
    const Extents& sizes = op.sizes(0);
    if (sizes.at(static_cast<std::size_t>(axis)).may_be_zero()) {
      std::vector<std::int64_t> pads(2 * sizes.size(), 0);
      pads[static_cast<std::size_t>(axis)] = 1;
      sum = op.add("Pad", {sum, op.graph().integers(pads), op.graph().scalar(0, op.result_type())});
    }
    sum = op.slice(op.add("CumSum", {sum, at}), axis, -1, kEnd);
  }
  return keep || axes.empty() ? sum : op.squeeze(sum, axes);
}

std::string vector_norm(RecordedOperation& op, const std::string& x, at::ScalarType type, double p,
                        const std::vector<std::int64_t>& axes, bool keep) {
  if (p == 0) {  // the number of elements that are not zero
    const std::string zero = op.graph().scalar(0, type);
    const std::string count =
        op.add("Where", {op.add("Equal", {x, zero}), zero, op.graph().scalar(1, type)});
    return axes.empty() ? count : op.reduce("ReduceSum", count, axes, keep);
  }
  const std::string wide = op.widened(x, type);
  if (p == 1 && !axes.empty()) return op.narrowed(op.reduce("ReduceL1", wide, axes, keep), type);
  if (p == 2 && !axes.empty()) return op.narrowed(op.reduce("ReduceL2", wide, axes, keep), type);
  if (std::isinf(p) || axes.empty()) {
    return extreme_value(op, p > 0 ? Extreme::kMaximum : Extreme::kMinimum, op.add("Abs", {x}),
                         type, axes, keep);
  }
  const std::string powers = op.add("Pow", {op.add("Abs", {wide}), op.wide_scalar(p, type)});
  const std::string sum = op.reduce("ReduceSum", powers, axes, keep);
  return op.narrowed(op.add("Pow", {sum, op.wide_scalar(1 / p, type)}), type);
}

}  // namespace lockstep::onnx
