// Pooling over windows of fixed and adaptive size.
#include <algorithm>
#include <cmath>
#include <limits>
#include <string_view>
#include <utility>

#include <lockstep/export/lowering/operators.h>

namespace lockstep::onnx {
namespace {

constexpr std::size_t kNoArgument = std::numeric_limits<std::size_t>::max();

// Arguments common to all poolings.
struct Windows {
  std::vector<std::int64_t> kernel;
  std::vector<std::int64_t> stride;
  std::vector<std::int64_t> padding;
  std::vector<std::int64_t> dilation;
  std::vector<std::int64_t> end_padding;  // after the image; at least `padding`
  bool has_batch = true;
};

std::vector<std::int64_t> for_each_spatial(std::vector<std::int64_t> values, std::size_t count) {
  if (values.size() == 1) values.resize(count, values.front());
  return values;
}

// The digit in a name such as "max_pool2d".
std::size_t spatial_dimensions(const RecordedOperation& op) {
  const std::string name = op.node().kind().toUnqualString();
  const auto digit = name.find_first_of("123");
  return static_cast<std::size_t>(name.at(digit) - '0');
}

// The padding after the image with which whole windows cover the same positions as ceil_mode, whose
// last window may extend beyond the padding. ONNX's ceil_mode attribute is not used: its shape
// inference counts a window that would begin after the image, which LibTorch and onnxruntime omit.
std::vector<std::int64_t> end_padding_of_ceil_mode(const RecordedOperation& op,
                                                   const Windows& windows) {
  const std::size_t first = op.sizes(0).size() - windows.kernel.size();
  std::vector<std::int64_t> padding = windows.padding;
  for (std::size_t d = 0; d < padding.size(); ++d) {
    const std::int64_t size = op.fixed(op.sizes(0)[first + d], "with ceil_mode, an image's size");
    const std::int64_t last = (op.result_sizes().at(first + d).size - 1) * windows.stride[d];
    const std::int64_t reach = last + windows.dilation[d] * (windows.kernel[d] - 1) + 1;
    padding[d] = std::max(padding[d], reach - size - windows.padding[d]);
  }
  return padding;
}

// `dilation` (absent for averages) and `ceil_mode` are the indices of these arguments.
Windows windows_of(const RecordedOperation& op, std::size_t dilation, std::size_t ceil_mode) {
  const std::size_t spatial = spatial_dimensions(op);
  Windows windows;
  windows.kernel = for_each_spatial(op.integers(1), spatial);
  windows.stride = op.has(2) ? for_each_spatial(op.integers(2), spatial) : windows.kernel;
  if (windows.stride.empty()) windows.stride = windows.kernel;
  windows.padding = for_each_spatial(op.integers(3), spatial);
  windows.dilation = std::vector<std::int64_t>(spatial, 1);
  if (dilation != kNoArgument) windows.dilation = for_each_spatial(op.integers(dilation), spatial);
  windows.end_padding =
      op.flag(ceil_mode) ? end_padding_of_ceil_mode(op, windows) : windows.padding;
  windows.has_batch = op.sizes(0).size() == spatial + 2;
  return windows;
}

std::vector<std::int64_t> pads_of(const Windows& windows) {
  std::vector<std::int64_t> pads = windows.padding;
  pads.insert(pads.end(), windows.end_padding.begin(), windows.end_padding.end());
  return pads;
}

// onnxruntime refuses padding as wide as the kernel, which is valid for dilated windows.
bool is_wide(const Windows& windows, std::size_t d) {
  return windows.end_padding[d] >= windows.kernel[d];
}

double lowest_of(at::ScalarType type) {
  if (at::isFloatingType(type)) return -std::numeric_limits<double>::infinity();
  const auto bits = static_cast<int>(8 * c10::elementSize(type));
  return type == at::kByte ? 0 : -std::ldexp(1.0, bits - 1);
}

// Moves such padding from `windows` to a separate operation, and returns the padded `x`.
std::string widely_padded(RecordedOperation& op, const std::string& x, Windows& windows) {
  const std::size_t spatial = windows.kernel.size();
  std::vector<std::int64_t> pads(2 * (spatial + 2), 0);
  bool any = false;
  for (std::size_t d = 0; d < spatial; ++d) {
    if (!is_wide(windows, d)) continue;
    pads[2 + d] = std::exchange(windows.padding[d], 0);
    pads[spatial + 4 + d] = std::exchange(windows.end_padding[d], 0);
    any = true;
  }
  if (!any) return x;
  const at::ScalarType type = op.result_type();
  return op.add("Pad", {x, op.graph().integers(pads), op.graph().scalar(lowest_of(type), type)});
}

// max_pool2d(x, kernel, stride, padding, dilation, ceil_mode)
Windows windows_of_max_pool(const RecordedOperation& op) { return windows_of(op, 4, 5); }

Attributes max_pool_attributes(const Windows& windows) {
  return {{"kernel_shape", windows.kernel},
          {"strides", windows.stride},
          {"pads", pads_of(windows)},
          {"dilations", windows.dilation}};
}

bool is_relu(const torch::jit::Node& node) {
  const std::string_view kind = node.kind().toQualString();
  return kind == "aten::relu" || kind == "aten::relu_";
}

// The maxima that a kernel of onnxruntime for float32 has found. It begins with the lowest finite
// number, and LibTorch with -infinity: they differ for windows of nothing else. The same kernel
// computes float16, and onnxruntime may leave out the rounding of its results to float16. Before
// and behind a relu() the difference cannot be seen.
std::string with_infinity(RecordedOperation& op, const std::string& maxima) {
  const auto& uses = op.node().output(0)->uses();
  const bool is_seen = !is_relu(*op.node().input(0)->node()) &&
                       std::any_of(uses.begin(), uses.end(),
                                   [](const torch::jit::Use& use) { return !is_relu(*use.user); });
  const ElementType element = op.graph().type_of(maxima);
  const bool is_half = element == ElementType::kFloat16;
  if (!is_seen || (!is_half && element != ElementType::kFloat)) return maxima;
  const at::ScalarType type = is_half ? at::kHalf : at::kFloat;
  const auto constant = [&](double value) {
    return op.graph().constant(at::full({}, value, type), "");
  };
  const double lowest = is_half ? static_cast<double>(std::numeric_limits<c10::Half>::lowest())
                                : static_cast<double>(std::numeric_limits<float>::lowest());
  const std::string is_empty = op.add(is_half ? "Less" : "Equal", {maxima, constant(lowest)});
  return op.add("Where", {is_empty, constant(-std::numeric_limits<double>::infinity()), maxima});
}

void lower_max_pool(RecordedOperation& op, const Operator&) {
  Windows windows = windows_of_max_pool(op);
  const std::string x = widely_padded(
      op, windows.has_batch ? op.tensor(0) : op.unsqueeze(op.tensor(0), {0}), windows);
  const std::string pooled =
      with_infinity(op, op.add("MaxPool", {x}, max_pool_attributes(windows)));
  op.bind(windows.has_batch ? pooled : op.squeeze(pooled, {0}));
}

// LibTorch's indices are relative to a channel's image, ONNX's to the whole tensor.
void lower_max_pool_with_indices(RecordedOperation& op, const Operator&) {
  const Windows windows = windows_of_max_pool(op);
  if (!windows.has_batch) op.reject("an input without a batch dimension");
  for (std::size_t d = 0; d < windows.kernel.size(); ++d) {
    if (is_wide(windows, d)) op.reject("indices of windows whose padding is as wide as the kernel");
  }
  std::int64_t image = 1;
  for (std::size_t d = 2; d < op.sizes(0).size(); ++d) {
    image *= op.fixed(op.sizes(0)[d], "an image's size");
  }
  const Names pooled = op.graph().add("MaxPool", {op.tensor(0)}, max_pool_attributes(windows), 2);
  op.bind(with_infinity(op, pooled[0]), 0);
  op.bind(op.add("Mod", {pooled[1], op.graph().scalar(static_cast<double>(image), at::kLong)}), 1);
}

// avg_pool2d(x, kernel, stride, padding, ceil_mode, count_include_pad, divisor_override)
void lower_avg_pool(RecordedOperation& op, const Operator&) {
  const Windows windows = windows_of(op, kNoArgument, 4);
  const bool ceil_mode = op.flag(4);
  std::int64_t window = 1;
  for (const std::int64_t size : windows.kernel) window *= size;
  const bool padded = std::any_of(windows.padding.begin(), windows.padding.end(),
                                  [](std::int64_t size) { return size != 0; });
  // A user-defined divisor is a factor on the mean over whole windows.
  const bool has_divisor = op.has(6);
  if (ceil_mode && (padded || has_divisor)) {
    op.reject("ceil_mode together with padding or divisor_override");
  }
  const bool count_padding = op.flag(5) || has_divisor;
  const std::string x = windows.has_batch ? op.tensor(0) : op.unsqueeze(op.tensor(0), {0});
  std::string pooled = op.add("AveragePool", {x},
                              {{"kernel_shape", windows.kernel},
                               {"strides", windows.stride},
                               {"pads", pads_of(windows)},
                               {"count_include_pad", count_padding && padded ? 1 : 0}});
  if (has_divisor) {
    const double factor = static_cast<double>(window) / op.number(6);
    pooled = op.add("Mul", {pooled, op.graph().scalar(factor, op.result_type())});
  }
  op.bind(windows.has_batch ? pooled : op.squeeze(pooled, {0}));
}

// Adaptive windows along one dimension: output o covers floor(o n / m) to ceil((o+1) n / m). Means
// and maxima of boxes can be computed one dimension after the other.
std::string pool_dimension(RecordedOperation& op, const char* reduction, const std::string& x,
                           std::int64_t axis, std::int64_t size, std::int64_t count) {
  if (size == count) return x;
  if (count == 1) return op.reduce(reduction, x, {axis}, /*keep=*/true);
  Names parts;
  for (std::int64_t o = 0; o < count; ++o) {
    const std::int64_t begin = o * size / count;
    const std::int64_t end = ((o + 1) * size + count - 1) / count;
    parts.push_back(op.reduce(reduction, op.slice(x, axis, begin, end), {axis}, /*keep=*/true));
  }
  return op.add("Concat", parts, {{"axis", axis}});
}

struct AdaptivePooling {
  const char* over_all;   // for the whole image
  const char* over_even;  // for windows of equal size
  const char* reduction;  // for windows of different sizes
  bool is_maximum = false;
};

void lower_adaptive(RecordedOperation& op, const AdaptivePooling& pooling) {
  if (op.node().outputs().size() > 1 && op.is_used(1)) op.reject("its indices are used");
  const std::size_t spatial = spatial_dimensions(op);
  const auto wanted = for_each_spatial(op.integers(1), spatial);
  const Extents& sizes = op.sizes(0);
  const std::size_t first = sizes.size() - spatial;
  std::string x = op.tensor(0);
  bool is_global = first == 2;
  bool is_even = first == 2;
  std::vector<std::int64_t> kernel;
  for (std::size_t d = 0; d < spatial; ++d) {
    is_global = is_global && wanted[d] == 1;
    const std::int64_t size = op.fixed(sizes[first + d], "an image's size");
    is_even = is_even && size % wanted[d] == 0;
    kernel.push_back(size / wanted[d]);
  }
  const auto bind = [&](const std::string& pooled) {
    op.bind(pooling.is_maximum ? with_infinity(op, pooled) : pooled);
  };
  if (is_global) return bind(op.add(pooling.over_all, {x}));
  if (is_even) {
    return bind(op.add(pooling.over_even, {x}, {{"kernel_shape", kernel}, {"strides", kernel}}));
  }
  for (std::size_t d = 0; d < spatial; ++d) {
    x = pool_dimension(op, pooling.reduction, x, static_cast<std::int64_t>(first + d),
                       sizes[first + d].size, wanted[d]);
  }
  op.bind(x);
}

void lower_adaptive_avg_pool(RecordedOperation& op, const Operator&) {
  lower_adaptive(op, {"GlobalAveragePool", "AveragePool", "ReduceMean"});
}

void lower_adaptive_max_pool(RecordedOperation& op, const Operator&) {
  lower_adaptive(op, {"GlobalMaxPool", "MaxPool", "ReduceMax", /*is_maximum=*/true});
}

constexpr Operator kPooling[] = {
    {"adaptive_avg_pool1d", lower_adaptive_avg_pool},
    {"adaptive_avg_pool2d", lower_adaptive_avg_pool},
    {"adaptive_avg_pool3d", lower_adaptive_avg_pool},
    {"adaptive_max_pool1d", lower_adaptive_max_pool},
    {"adaptive_max_pool2d", lower_adaptive_max_pool},
    {"adaptive_max_pool3d", lower_adaptive_max_pool},
    {"avg_pool1d", lower_avg_pool},
    {"avg_pool2d", lower_avg_pool},
    {"avg_pool3d", lower_avg_pool},
    {"max_pool1d", lower_max_pool},
    {"max_pool1d_with_indices", lower_max_pool_with_indices},
    {"max_pool2d", lower_max_pool},
    {"max_pool2d_with_indices", lower_max_pool_with_indices},
    {"max_pool3d", lower_max_pool},
    {"max_pool3d_with_indices", lower_max_pool_with_indices},
};

}  // namespace

Family pooling_operators() { return kPooling; }

}  // namespace lockstep::onnx
