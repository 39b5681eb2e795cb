// Sums, means, extremes, statistics and sorting along dimensions.
#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>
#include <numeric>
#include <string_view>

#include <ATen/core/Reduction.h>

#include <lockstep/export/lowering/functions.h>
#include <lockstep/export/lowering/operators.h>

namespace lockstep::onnx {
namespace {

std::vector<std::int64_t> all_axes(const RecordedOperation& op) {
  std::vector<std::int64_t> axes(static_cast<std::size_t>(op.rank(0)));
  std::iota(axes.begin(), axes.end(), 0);
  return axes;
}

// The dimensions in argument `i`, a number or a list; None and an empty list mean all dimensions.
std::vector<std::int64_t> axes_in(const RecordedOperation& op, std::size_t i) {
  if (!op.has(i)) return all_axes(op);
  std::vector<std::int64_t> axes = op.integers(i);
  if (axes.empty()) return all_axes(op);
  for (std::int64_t& axis : axes) axis = op.axis(axis, op.rank(0));
  return axes;
}

// A reduction over no dimensions returns the tensor unchanged.
std::string reduced(RecordedOperation& op, const char* onnx, const std::string& x,
                    const std::vector<std::int64_t>& axes, bool keep) {
  return axes.empty() ? x : op.reduce(onnx, x, axes, keep);
}

// The product of whole numbers along `axes`, of fixed sizes: the first half times the second, until
// one element is left. It wraps around, whereas onnxruntime's ReduceProd multiplies in float64.
std::string whole_product(RecordedOperation& op, const std::string& x,
                          const std::vector<std::int64_t>& axes, bool keep) {
  std::string product = x;
  for (const std::int64_t axis : axes) {
    std::int64_t count = op.fixed(op.sizes(0).at(static_cast<std::size_t>(axis)),
                                  "a dimension of a product of whole numbers");
    Names odd;
    for (; count > 1; count /= 2) {
      if (count % 2 == 1) odd.push_back(op.slice(product, axis, count - 1, count));
      const std::int64_t half = count / 2;
      product = op.add("Mul",
                       {op.slice(product, axis, 0, half), op.slice(product, axis, half, 2 * half)});
    }
    for (const std::string& each : odd) product = op.add("Mul", {product, each});
  }
  return keep || axes.empty() ? product : op.squeeze(product, axes);
}

bool is_empty(const RecordedOperation& op) {
  return std::any_of(op.sizes(0).begin(), op.sizes(0).end(),
                     [](const Extent& size) { return size == static_extent(0); });
}

// `mean`, but NaN if one of `sizes` is 0: the mean of no elements is NaN, but 0 in onnxruntime.
// `zero` is a number of the type of `mean`.
std::string nan_if_of_nothing(RecordedOperation& op, const std::string& mean,
                              const std::string& zero, const Extents& sizes) {
  Extents counts;
  std::copy_if(sizes.begin(), sizes.end(), std::back_inserter(counts),
               [](const Extent& size) { return size.may_be_zero(); });
  if (counts.empty()) return mean;
  const std::string least = op.reduce("ReduceMin", op.graph().sizes(counts), {0}, /*keep=*/false);
  const std::string is_of_nothing = op.add("Equal", {least, op.graph().scalar(0, at::kLong)});
  return op.add("Where", {is_of_nothing, op.add("Div", {zero, zero}), mean});
}

// `zero` is a number of the type of `x`.
std::string mean_of(RecordedOperation& op, const std::string& x, const std::string& zero,
                    const std::vector<std::int64_t>& axes, bool keep) {
  Extents sizes;
  for (const std::int64_t axis : axes) {
    sizes.push_back(op.sizes(0).at(static_cast<std::size_t>(axis)));
  }
  return nan_if_of_nothing(op, reduced(op, "ReduceMean", x, axes, keep), zero, sizes);
}

// Whether float64 may not hold the sum or product of whole numbers.
bool needs_whole_arithmetic(const RecordedOperation& op, bool is_sum) {
  if (!at::isIntegralType(op.result_type(), /*includeBool=*/false)) return false;
  if (is_empty(op) || op.type(0) == at::kBool) return false;
  return !is_sum || op.type(0) == at::kLong || op.result_type() != at::kLong;
}

// sum(x, dtype) and sum(x, dims, keepdim, dtype); also mean and prod.
void lower_sum(RecordedOperation& op, const Operator& entry) {
  const std::string x = op.tensor_as(0, op.result_type());
  const bool over_all = op.arguments() <= 2;
  const auto axes = over_all ? all_axes(op) : axes_in(op, 1);
  const bool keep = !over_all && op.flag(2);
  const std::string_view kind = entry.onnx;
  if (kind == "ReduceMean") {
    return op.bind(mean_of(op, x, op.graph().scalar(0, op.result_type()), axes, keep));
  }
  const bool is_sum = kind == "ReduceSum";
  if (!needs_whole_arithmetic(op, is_sum)) return op.bind(reduced(op, entry.onnx, x, axes, keep));
  op.bind(is_sum ? whole_sum(op, x, axes, keep) : whole_product(op, x, axes, keep));
}

// logsumexp(x, dims, keepdim). In opset 18, onnxruntime expands ReduceLogSumExp of float16 to
// log(sum(exp(x))), which overflows.
void lower_logsumexp(RecordedOperation& op, const Operator& entry) {
  const at::ScalarType type = op.result_type();
  const std::string x = op.widened(op.tensor_as(0, type), type);
  const bool keep = op.has(2) && op.flag(2);
  op.bind(op.narrowed(reduced(op, entry.onnx, x, axes_in(op, 1), keep), type));
}

// amax(x, dims, keepdim)
void lower_extremes(RecordedOperation& op, Extreme extreme) {
  const bool keep = op.has(2) && op.flag(2);
  op.bind(extreme_value(op, extreme, op.tensor(0), op.type(0), axes_in(op, 1), keep));
}
void lower_amax(RecordedOperation& op, const Operator&) { lower_extremes(op, Extreme::kMaximum); }
void lower_amin(RecordedOperation& op, const Operator&) { lower_extremes(op, Extreme::kMinimum); }

// The index of an extreme value. NaN counts as the extreme value, but ONNX's ArgMax skips it.
std::string extreme_index(RecordedOperation& op, const char* onnx, const std::string& x,
                          std::int64_t axis, bool keep) {
  const Attributes attributes = {{"axis", axis}, {"keepdims", keep ? 1 : 0}};
  const std::string index = op.add(onnx, {x}, attributes);
  if (!at::isFloatingType(op.type(0))) return index;
  const std::string is_nan = op.cast(op.add("IsNaN", {x}), at::kBool, at::kInt);
  const std::string has_nan = op.reduce("ReduceMax", is_nan, {axis}, keep);
  const std::string first_nan = op.add("ArgMax", {is_nan}, attributes);
  return op.add("Where", {op.cast(has_nan, at::kInt, at::kBool), first_nan, index});
}

// max(x), max(x, other), and max(x, dim, keepdim) with values and indices.
void lower_extreme(RecordedOperation& op, Extreme extreme, const char* binary, const char* index) {
  const at::ScalarType type = op.result_type();
  const std::string x = op.tensor_as(0, type);
  if (op.arguments() == 1) {
    return op.bind(extreme_value(op, extreme, x, type, all_axes(op), /*keep=*/false));
  }
  if (op.is_tensor(1)) return op.result(binary, {x, op.tensor_as(1, type)});
  const std::int64_t axis = op.axis(op.integer(1), op.rank(0));
  const bool keep = op.flag(2);
  op.bind(extreme_value(op, extreme, x, type, {axis}, keep), 0);
  if (op.is_used(1)) op.bind(extreme_index(op, index, x, axis, keep), 1);
}
void lower_max(RecordedOperation& op, const Operator&) {
  lower_extreme(op, Extreme::kMaximum, "Max", "ArgMax");
}
void lower_min(RecordedOperation& op, const Operator&) {
  lower_extreme(op, Extreme::kMinimum, "Min", "ArgMin");
}

// argmax(x, dim, keepdim); without a dimension an index into all elements.
void lower_index_of_extreme(RecordedOperation& op, const Operator& entry) {
  const bool keep = op.has(2) && op.flag(2);
  if (op.has(1)) {
    const std::int64_t axis = op.axis(op.integer(1), op.rank(0));
    return op.bind(extreme_index(op, entry.onnx, op.tensor(0), axis, keep));
  }
  const std::string flat = op.add("Reshape", {op.tensor(0), op.graph().integers({-1})});
  const std::string index = extreme_index(op, entry.onnx, flat, 0, /*keep=*/false);
  op.bind(keep ? op.reshape(index, op.result_sizes()) : index);
}

// count_nonzero(x, dims). Counts are exact in float64, in which onnxruntime adds them up.
void lower_count_nonzero(RecordedOperation& op, const Operator&) {
  const std::string count = op.cast(op.tensor_as(0, at::kBool), at::kBool, at::kLong);
  op.bind(reduced(op, "ReduceSum", count, axes_in(op, 1), /*keep=*/false));
}

// diff(x, n, dim): each element minus the one before it, n times.
void lower_diff(RecordedOperation& op, const Operator&) {
  constexpr std::int64_t kEnd = std::numeric_limits<std::int64_t>::max();
  if (op.has(3) || op.has(4)) op.reject("prepend or append; use cat() before it");
  const std::int64_t axis = op.axis(op.integer_or(2, -1), op.rank(0));
  const char* const minus = op.result_type() == at::kBool ? "Xor" : "Sub";
  std::string x = op.tensor(0);
  for (std::int64_t n = op.integer_or(1, 1); n > 0; --n) {
    x = op.add(minus, {op.slice(x, axis, 1, kEnd), op.slice(x, axis, 0, -1)});
  }
  op.bind(x);
}

std::int64_t reduction_of(const RecordedOperation& op) {
  return op.integer_or(2, at::Reduction::Mean);
}

// A number of the type of a loss before it is narrowed: float32 in a model of float16, unless
// LibTorch's own losses are float16.
std::string loss_number(RecordedOperation& op, double value) {
  const at::ScalarType type = op.result_type();
  return type == at::kHalf ? op.graph().scalar(value, type) : op.wide_scalar(value, type);
}

// The losses of all elements, whose mean or sum argument 2 may ask for.
void bind_losses(RecordedOperation& op, const std::string& losses) {
  const std::int64_t reduction = reduction_of(op);
  const Extents sizes = op.broadcast_sizes(0, 1);
  std::string loss = losses;
  if (reduction != at::Reduction::None && !sizes.empty()) {
    const bool is_mean = reduction == at::Reduction::Mean;
    loss = op.reduce(is_mean ? "ReduceMean" : "ReduceSum", losses, {}, /*keep=*/false);
    if (is_mean) loss = nan_if_of_nothing(op, loss, loss_number(op, 0), sizes);
  }
  op.bind(op.narrowed(loss, op.result_type()));
}

// Differences of small whole numbers wrap around before they are added up as int64, and sums wrap
// around, too.
std::string difference(RecordedOperation& op) {
  const at::ScalarType type = op.result_type();
  const bool is_sum = reduction_of(op) != at::Reduction::None;
  if (!at::isFloatingType(type) && (is_sum || op.type(0) != type)) {
    op.reject("a loss of whole numbers that is added up or of another type; use to() before it");
  }
  const std::string error = op.add("Sub", {op.tensor_as(0, type), op.tensor_as(1, type)});
  return type == at::kHalf ? error : op.widened(error, type);
}

void lower_l1_loss(RecordedOperation& op, const Operator&) {
  bind_losses(op, op.add("Abs", {difference(op)}));
}

void lower_mse_loss(RecordedOperation& op, const Operator&) {
  const std::string error = difference(op);
  bind_losses(op, op.add("Mul", {error, error}));
}

// huber_loss(x, target, reduction, delta): half of the square below delta, and a line of slope
// delta beyond. smooth_l1_loss() divides it by its own argument 3, beta.
void lower_huber_loss(RecordedOperation& op, const Operator& entry) {
  const bool is_divided = std::string_view(entry.onnx) == "Div";
  const double limit = op.number_or(3, 1);
  const auto number = [&op](double value) { return loss_number(op, value); };
  const std::string error = op.add("Abs", {difference(op)});
  const std::string square = op.add("Mul", {op.add("Mul", {error, number(0.5)}), error});
  const std::string line = op.add("Sub", {error, number(0.5 * limit)});
  const std::string inside = is_divided ? op.add("Div", {square, number(limit)}) : square;
  const std::string beyond = is_divided ? line : op.add("Mul", {line, number(limit)});
  const std::string is_inside = op.add("Less", {error, number(limit)});
  bind_losses(op, op.add("Where", {is_inside, inside, beyond}));
}

// all(x), all(x, dims, keepdim): the minimum or maximum of booleans as numbers. Unlike in sum(), an
// empty list means no dimensions.
void lower_truth(RecordedOperation& op, const Operator& entry) {
  const std::string truth = op.tensor_as(0, at::kBool);
  const std::string numbers = op.cast(truth, at::kBool, at::kInt);
  const bool over_all = op.arguments() == 1;
  const bool over_none = op.is_list(1) && op.extents(1).empty();
  const bool keep = !over_all && op.flag(2);
  std::vector<std::int64_t> axes;
  if (!over_none) axes = over_all ? all_axes(op) : axes_in(op, 1);
  const std::string result = reduced(op, entry.onnx, numbers, axes, keep);
  // In onnxruntime, the minimum of no elements is the largest int32, and the maximum the smallest.
  const std::string is_true = op.add("Greater", {result, op.graph().scalar(0, at::kInt)});
  op.bind(op.cast(is_true, at::kBool, op.result_type()));  // uint8 for uint8
}

// Both values are float64 for tensors of float32, and otherwise widened().
struct Moments {
  std::string mean;
  std::string variance;
};

// var(x, unbiased), and var(x, dims, correction, keepdim), where True means a correction of 1. As
// in LibTorch, float32 is added up in float64: squares of numbers beyond 1e19 or below 1e-19 are
// out of range.
Moments moments_of(RecordedOperation& op) {
  const at::ScalarType type = op.result_type();
  const bool over_all = op.arguments() <= 2;
  const auto axes = over_all ? all_axes(op) : axes_in(op, 1);
  const double correction = op.number_or(over_all ? 1 : 2, 1);
  const bool keep = !over_all && op.flag(3);
  double count = 1;
  for (const std::int64_t axis : axes) {
    const Extent& size = op.sizes(0).at(static_cast<std::size_t>(axis));
    count *= static_cast<double>(op.fixed(size, "a dimension of var() or std()"));
  }
  const bool in_double = op.graph().type_of(type) == ElementType::kFloat;
  const auto number = [&](double value) {
    return in_double ? op.graph().scalar(value, at::kDouble) : op.wide_scalar(value, type);
  };
  const std::string x = in_double ? op.graph().cast(op.tensor(0), ElementType::kDouble)
                                  : op.widened(op.tensor(0), type);
  const std::string mean = mean_of(op, x, number(0), axes, /*keep=*/true);
  const std::string distance = op.add("Sub", {x, mean});
  const std::string square = op.add("Mul", {distance, distance});
  const std::string sum = reduced(op, "ReduceSum", square, axes, keep);
  const std::string divisor = number(std::max(count - correction, 0.0));
  return {.mean = keep || axes.empty() ? mean : op.squeeze(mean, axes),
          .variance = op.add("Div", {sum, divisor})};
}

void bind_narrowed(RecordedOperation& op, const std::string& name, std::size_t k = 0) {
  op.bind(op.narrowed(name, op.result_type(k)), k);
}

void lower_var(RecordedOperation& op, const Operator&) {
  bind_narrowed(op, moments_of(op).variance);
}

void lower_std(RecordedOperation& op, const Operator&) {
  bind_narrowed(op, op.add("Sqrt", {moments_of(op).variance}));
}

void lower_var_mean(RecordedOperation& op, const Operator&) {
  const Moments moments = moments_of(op);
  bind_narrowed(op, moments.variance, 0);
  bind_narrowed(op, moments.mean, 1);
}

void lower_std_mean(RecordedOperation& op, const Operator&) {
  const Moments moments = moments_of(op);
  bind_narrowed(op, op.add("Sqrt", {moments.variance}), 0);
  bind_narrowed(op, moments.mean, 1);
}

// norm(x, p), norm(x, p, dims, keepdim); linalg_vector_norm() has the same arguments.
void lower_norm(RecordedOperation& op, const Operator&) {
  const at::ScalarType type = op.result_type();
  const auto axes = op.arguments() > 2 ? axes_in(op, 2) : all_axes(op);
  const bool keep = op.has(3) && op.flag(3);
  op.bind(vector_norm(op, op.tensor_as(0, type), type, op.number_or(1, 2), axes, keep));
}

void lower_cumsum(RecordedOperation& op, const Operator&) {
  const auto axis = static_cast<double>(op.axis(op.integer(1), op.rank(0)));
  op.result("CumSum", {op.tensor_as(0, op.result_type()), op.graph().scalar(axis, at::kLong)});
}

// The first `count` elements in order, and their indices.
//
// LibTorch counts NaN as larger than infinity, and onnxruntime's TopK may put it anywhere. Floats
// are therefore ordered by keys of float64, in which infinity stands for NaN, and the largest
// number for infinity. A tensor of float64 may hold that number, too, and no other is free. Because
// TopK keeps the order of equal keys, its elements are first ordered by whether they are infinite.
Names largest(RecordedOperation& op, std::int64_t count, std::int64_t axis, bool descending) {
  const auto top = [&](const std::string& keys, const std::string& wanted) {
    return op.graph().add("TopK", {keys, wanted},
                          {{"axis", axis}, {"largest", descending ? 1 : 0}, {"sorted", 1}}, 2);
  };
  const auto at_indices = [&](const std::string& values, const std::string& indices) {
    return op.add("GatherElements", {values, indices}, {{"axis", axis}});
  };
  const auto number = [&](double value) { return op.graph().scalar(value, at::kDouble); };
  const at::ScalarType type = op.type(0);
  const std::string wanted = op.graph().integers({count});
  if (!at::isFloatingType(type)) return top(op.tensor(0), wanted);
  const std::string x = op.cast(op.tensor(0), type, at::kDouble);
  const std::string is_infinite = op.add("IsInf", {x}, {{"detect_negative", 0}});
  const std::string finite =
      op.add("Where", {is_infinite, number(std::numeric_limits<double>::max()), x});
  const std::string infinity = number(std::numeric_limits<double>::infinity());
  const std::string keys = op.add("Where", {op.add("IsNaN", {x}), infinity, finite});
  std::string indices;
  if (type == at::kDouble) {
    const std::string all = op.graph().sizes({op.sizes(0).at(static_cast<std::size_t>(axis))});
    const std::string infinite_ones = top(op.cast(is_infinite, at::kBool, at::kInt), all)[1];
    indices = at_indices(infinite_ones, top(at_indices(keys, infinite_ones), wanted)[1]);
  } else {
    indices = top(keys, wanted)[1];
  }
  return {at_indices(op.tensor(0), indices), indices};
}

// topk(x, k, dim, largest, sorted)
void lower_topk(RecordedOperation& op, const Operator&) {
  const std::int64_t axis = op.axis(op.integer_or(2, -1), op.rank(0));
  const Names found = largest(op, op.integer(1), axis, !op.has(3) || op.flag(3));
  op.bind(found[0], 0);
  op.bind(found[1], 1);
}

// sort(x, dim, descending) and sort(x, stable, dim, descending)
Names ordered(RecordedOperation& op) {
  const std::size_t first = op.arguments() > 3 ? 2 : 1;
  const std::int64_t axis = op.axis(op.integer_or(first, -1), op.rank(0));
  const Extent& size = op.sizes(0).at(static_cast<std::size_t>(axis));
  return largest(op, op.fixed(size, "the sorted dimension"), axis,
                 op.has(first + 1) && op.flag(first + 1));
}

void lower_sort(RecordedOperation& op, const Operator&) {
  const Names found = ordered(op);
  op.bind(found[0], 0);
  op.bind(found[1], 1);
}

void lower_argsort(RecordedOperation& op, const Operator&) { op.bind(ordered(op)[1]); }

constexpr Operator kReduction[] = {
    {"all", lower_truth, "ReduceMin"},
    {"amax", lower_amax},
    {"amin", lower_amin},
    {"any", lower_truth, "ReduceMax"},
    {"argmax", lower_index_of_extreme, "ArgMax"},
    {"argmin", lower_index_of_extreme, "ArgMin"},
    {"argsort", lower_argsort},
    {"count_nonzero", lower_count_nonzero},
    {"cumsum", lower_cumsum},
    {"diff", lower_diff},
    {"huber_loss", lower_huber_loss},
    {"l1_loss", lower_l1_loss},
    {"linalg_vector_norm", lower_norm},
    {"logsumexp", lower_logsumexp, "ReduceLogSumExp"},
    {"max", lower_max},
    {"mean", lower_sum, "ReduceMean"},
    {"min", lower_min},
    {"mse_loss", lower_mse_loss},
    {"norm", lower_norm},
    {"prod", lower_sum, "ReduceProd"},
    {"smooth_l1_loss", lower_huber_loss, "Div"},
    {"sort", lower_sort},
    {"std", lower_std},
    {"std_mean", lower_std_mean},
    {"sum", lower_sum, "ReduceSum"},
    {"topk", lower_topk},
    {"var", lower_var},
    {"var_mean", lower_var_mean},
};

}  // namespace

Family reduction_operators() { return kReduction; }

}  // namespace lockstep::onnx
