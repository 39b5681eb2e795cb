// Operators that combine elements: reductions, products, convolutions, pooling, normalisations and
// recurrent layers.
#include <algorithm>
#include <functional>
#include <limits>
#include <numeric>
#include <optional>
#include <stdexcept>
#include <tuple>
#include <vector>

#include <torch/types.h>

#include <tests/export/evaluation/graph_evaluator.h>

namespace lockstep::testing_support {
namespace {

using torch::Tensor;

struct Reduction {
  std::vector<std::int64_t> axes;  // counted from 0, the last one first
  bool keeps = true;
  bool is_of_nothing = false;
};

// The axes became an input in opset 18 (for ReduceSum in 13).
Reduction reduction_of(const NodeArguments& node) {
  Reduction result;
  result.axes = node.has(1) ? node.elements(1) : node.integers("axes");
  const std::int64_t rank = node[0].dim();
  if (result.axes.empty()) {
    for (std::int64_t d = 0; d < rank; ++d) result.axes.push_back(d);
  }
  for (std::int64_t& axis : result.axes) axis += axis < 0 ? rank : 0;
  std::sort(result.axes.rbegin(), result.axes.rend());
  result.keeps = node.integer("keepdims", 1) == 1;
  for (const std::int64_t axis : result.axes) {
    result.is_of_nothing = result.is_of_nothing || node[0].size(axis) == 0;
  }
  return result;
}

Tensor sum_in(const Tensor& x, const Reduction& over) {
  return over.axes.empty() ? x : x.sum(over.axes, over.keeps, x.scalar_type());
}

Tensors reduce_sum(const NodeArguments& node) { return {sum_in(node[0], reduction_of(node))}; }

Tensors reduce_l1(const NodeArguments& node) { return {sum_in(node[0].abs(), reduction_of(node))}; }

Tensors reduce_l2(const NodeArguments& node) {
  // In the type of the elements, in which large squares overflow as in onnxruntime.
  return {sum_in(node[0].square(), reduction_of(node)).sqrt()};
}

// As in onnxruntime, the mean of nothing is 0.
Tensors reduce_mean(const NodeArguments& node) {
  const Reduction over = reduction_of(node);
  if (over.is_of_nothing || over.axes.empty()) return {sum_in(node[0], over)};
  return {node[0].mean(over.axes, over.keeps)};
}

Tensors reduce_product(const NodeArguments& node) {
  const Reduction over = reduction_of(node);
  Tensor result = node[0];
  for (const std::int64_t axis : over.axes) {
    result = result.prod(axis, over.keeps, result.scalar_type());
  }
  return {result};
}

Tensors reduce_log_sum_exp(const NodeArguments& node) {
  const Reduction over = reduction_of(node);
  return {at::logsumexp(node[0], over.axes, over.keeps)};
}

// The extreme value of nothing is the number with which the search begins.
Tensor extreme_in(const NodeArguments& node, bool is_maximum) {
  const Reduction over = reduction_of(node);
  const Tensor& x = node[0];
  if (!over.is_of_nothing) {
    return is_maximum ? x.amax(over.axes, over.keeps) : x.amin(over.axes, over.keeps);
  }
  const Tensor like = sum_in(x, over);
  if (x.is_floating_point()) {
    const double infinity = std::numeric_limits<double>::infinity();
    return at::full_like(like, is_maximum ? -infinity : infinity);
  }
  if (x.scalar_type() != at::kInt) throw std::logic_error("no extreme value of nothing");
  using Limits = std::numeric_limits<std::int32_t>;
  return at::full_like(like, is_maximum ? Limits::lowest() : Limits::max());
}

Tensors reduce_max(const NodeArguments& node) { return {extreme_in(node, true)}; }
Tensors reduce_min(const NodeArguments& node) { return {extreme_in(node, false)}; }

Tensors index_of_largest(const NodeArguments& node) {
  return {at::argmax(node[0], node.integer("axis", 0), node.integer("keepdims", 1) == 1)};
}
Tensors index_of_smallest(const NodeArguments& node) {
  return {at::argmin(node[0], node.integer("axis", 0), node.integer("keepdims", 1) == 1)};
}

Tensors running_sum(const NodeArguments& node) {
  return {node[0].cumsum(node[1].item<std::int64_t>(), node[0].scalar_type())};
}

Tensors matrix_product(const NodeArguments& node) { return {at::matmul(node[0], node[1])}; }

Tensors general_product(const NodeArguments& node) {
  const Tensor a = node.integer("transA", 0) == 1 ? node[0].t() : node[0];
  const Tensor b = node.integer("transB", 0) == 1 ? node[1].t() : node[1];
  const double beta = node.number("beta", 1);
  const Tensor product = at::mm(a, b) * node.number("alpha", 1);
  if (!node.has(2) || beta == 0) return {product};
  return {product + node[2] * beta};
}

Tensors einsum(const NodeArguments& node) {
  return {at::einsum(node.text("equation", ""), node.all())};
}

Tensors softmax(const NodeArguments& node) { return {node[0].softmax(node.integer("axis", -1))}; }
Tensors log_softmax(const NodeArguments& node) {
  return {node[0].log_softmax(node.integer("axis", -1))};
}

// Borders of the dimensions of an image. ONNX lists those before it, and then those behind it.
Tensor with_border(const Tensor& x, const std::vector<std::int64_t>& pads, double value) {
  const std::size_t spatial = pads.size() / 2;
  std::vector<std::int64_t> from_last;
  for (std::size_t d = spatial; d-- > 0;) {
    from_last.push_back(pads[d]);
    from_last.push_back(pads[spatial + d]);
  }
  return at::constant_pad_nd(x, from_last, value);
}

std::optional<Tensor> optional_input(const NodeArguments& node, std::size_t i) {
  return node.has(i) ? std::optional<Tensor>(node[i]) : std::nullopt;
}

Tensors convolution(const NodeArguments& node) {
  const std::vector<std::int64_t> none(static_cast<std::size_t>(node[0].dim() - 2), 0);
  return {at::convolution(with_border(node[0], node.integers("pads"), 0), node[1],
                          optional_input(node, 2), node.integers("strides"), none,
                          node.integers("dilations"), /*transposed=*/false, none,
                          node.integer("group", 1))};
}

Tensors transposed_convolution(const NodeArguments& node) {
  const std::vector<std::int64_t> pads = node.integers("pads");
  const auto middle = pads.begin() + static_cast<std::ptrdiff_t>(pads.size() / 2);
  if (!std::equal(pads.begin(), middle, middle, pads.end())) {
    throw std::logic_error("padding that differs at the two ends");
  }
  const std::vector<std::int64_t> padding(pads.begin(), middle);
  return {at::convolution(node[0], node[1], optional_input(node, 2), node.integers("strides"),
                          padding, node.integers("dilations"), /*transposed=*/true,
                          node.integers("output_padding"), node.integer("group", 1))};
}

// As in onnxruntime, the search in float32 begins with the lowest finite number.
Tensor from_lowest(const Tensor& maxima) {
  if (maxima.scalar_type() != at::kFloat) return maxima;
  return at::maximum(maxima, at::full({}, std::numeric_limits<float>::lowest(), at::kFloat));
}

// The positions in the image of indices into the image with a border.
Tensor without_border(const Tensor& indices, at::IntArrayRef image, at::IntArrayRef bordered,
                      const std::vector<std::int64_t>& pads) {
  Tensor rest = indices;
  Tensor result = at::zeros_like(indices);
  std::int64_t step = 1;
  for (std::size_t d = image.size(); d-- > 0;) {
    result = result + (rest.remainder(bordered[d]) - pads[d]) * step;
    rest = rest.div(bordered[d], "floor");
    step *= image[d];
  }
  return result;
}

// ONNX's indices count all elements of the tensor, and LibTorch's those of one image.
Tensors max_pool(const NodeArguments& node) {
  const auto kernel = node.integers("kernel_shape");
  const auto strides = node.integers("strides");
  std::vector<std::int64_t> steps = node.integers("dilations");
  if (steps.empty()) steps.resize(kernel.size(), 1);
  std::vector<std::int64_t> pads = node.integers("pads");
  if (pads.empty()) pads.resize(2 * kernel.size(), 0);
  for (std::size_t d = 0; d < pads.size(); ++d) {
    if (pads[d] >= kernel[d % kernel.size()]) throw std::logic_error("padding that is too wide");
  }
  const double lowest = -std::numeric_limits<double>::infinity();
  const Tensor x = with_border(node[0], pads, lowest);
  std::tuple<Tensor, Tensor> found;
  if (kernel.size() == 1) {
    found = at::max_pool1d_with_indices(x, kernel, strides, 0, steps);
  } else if (kernel.size() == 2) {
    found = at::max_pool2d_with_indices(x, kernel, strides, 0, steps);
  } else {
    found = at::max_pool3d_with_indices(x, kernel, strides, 0, steps);
  }
  const auto image = node[0].sizes().slice(2);
  const Tensor places = without_border(std::get<1>(found), image, x.sizes().slice(2), pads);
  std::vector<std::int64_t> along(static_cast<std::size_t>(x.dim()), 1);
  along[0] = x.size(0);
  along[1] = x.size(1);
  const std::int64_t area =
      std::accumulate(image.begin(), image.end(), std::int64_t{1}, std::multiplies<>());
  const Tensor planes = at::arange(x.size(0) * x.size(1), at::kLong).view(along) * area;
  return {from_lowest(std::get<0>(found)), places + planes};
}

Tensor mean_of_windows(const Tensor& x, const std::vector<std::int64_t>& kernel,
                       const std::vector<std::int64_t>& strides) {
  if (kernel.size() == 1) return at::avg_pool1d(x, kernel, strides);
  if (kernel.size() == 2) return at::avg_pool2d(x, kernel, strides);
  return at::avg_pool3d(x, kernel, strides);
}

Tensors average_pool(const NodeArguments& node) {
  const auto kernel = node.integers("kernel_shape");
  const auto strides = node.integers("strides");
  std::vector<std::int64_t> pads = node.integers("pads");
  if (pads.empty()) pads.resize(2 * kernel.size(), 0);
  const Tensor mean = mean_of_windows(with_border(node[0], pads, 0), kernel, strides);
  if (node.integer("count_include_pad", 0) == 1) return {mean};
  const Tensor counted = with_border(at::ones_like(node[0]), pads, 0);
  return {mean / mean_of_windows(counted, kernel, strides)};
}

Reduction over_image(const Tensor& x) {
  Reduction over;
  for (std::int64_t d = x.dim() - 1; d >= 2; --d) over.axes.push_back(d);
  return over;
}

Tensors global_average(const NodeArguments& node) {
  return {node[0].mean(over_image(node[0]).axes, /*keepdim=*/true)};
}

Tensors global_maximum(const NodeArguments& node) {
  return {from_lowest(node[0].amax(over_image(node[0]).axes, /*keepdim=*/true))};
}

Tensors batch_normalization(const NodeArguments& node) {
  return {at::batch_norm(node[0], node[1], node[2], node[3], node[4], /*training=*/false, 0,
                         node.number("epsilon", 1e-5), false)};
}

Tensors instance_normalization(const NodeArguments& node) {
  return {at::instance_norm(node[0], node[1], node[2], {}, {}, /*use_input_stats=*/true, 0,
                            node.number("epsilon", 1e-5), false)};
}

Tensors layer_normalization(const NodeArguments& node) {
  const std::int64_t axis = node.integer("axis", -1);
  const std::int64_t first = axis < 0 ? axis + node[0].dim() : axis;
  const auto sizes = node[0].sizes().slice(static_cast<std::size_t>(first)).vec();
  return {at::layer_norm(node[0], sizes, node[1], optional_input(node, 2),
                         node.number("epsilon", 1e-5))};
}

// One step of a recurrent layer: `state` holds the hidden state, and for LSTM also the cell's.
// `from_input` and `from_hidden` are the products with the weights, gate by gate.
using Step = void (*)(const NodeArguments& node, const Tensor& from_input,
                      const Tensor& from_hidden, Tensors& state);

void step_of_rnn(const NodeArguments& node, const Tensor& from_input, const Tensor& from_hidden,
                 Tensors& state) {
  const auto activations = node.texts("activations");
  const Tensor sum = from_input + from_hidden;
  state[0] = !activations.empty() && activations[0] == "Relu" ? sum.relu() : sum.tanh();
}

// The gates are update, reset and new.
void step_of_gru(const NodeArguments& node, const Tensor& from_input, const Tensor& from_hidden,
                 Tensors& state) {
  if (node.integer("linear_before_reset", 0) != 1) throw std::logic_error("unlike LibTorch's GRU");
  const auto inputs = from_input.chunk(3, -1);
  const auto hidden = from_hidden.chunk(3, -1);
  const Tensor update = (inputs[0] + hidden[0]).sigmoid();
  const Tensor reset = (inputs[1] + hidden[1]).sigmoid();
  const Tensor candidate = (inputs[2] + reset * hidden[2]).tanh();
  state[0] = (1 - update) * candidate + update * state[0];
}

// The gates are input, output, forget and cell.
void step_of_lstm(const NodeArguments&, const Tensor& from_input, const Tensor& from_hidden,
                  Tensors& state) {
  const auto gates = (from_input + from_hidden).chunk(4, -1);
  state[1] = gates[2].sigmoid() * state[1] + gates[0].sigmoid() * gates[3].tanh();
  state[0] = gates[1].sigmoid() * state[1].tanh();
}

// X: [sequence, batch, input]. The other inputs have a first dimension for the directions.
Tensors recurrent(const NodeArguments& node, Step step, std::size_t states) {
  const Tensor& x = node[0];
  const std::int64_t size = node.integer("hidden_size", 0);
  const std::int64_t directions = node.text("direction", "forward") == "bidirectional" ? 2 : 1;
  if (node[1].size(0) != directions) throw std::logic_error("weights for other directions");
  std::vector<Tensors> results(1 + states);
  for (std::int64_t d = 0; d < directions; ++d) {
    Tensors state;
    for (std::size_t s = 0; s < states; ++s) {
      state.push_back(node.has(5 + s) ? node[5 + s][d] : at::zeros({x.size(1), size}, x.options()));
    }
    Tensors biases(2, at::zeros({node[1].size(1)}, x.options()));
    if (node.has(3)) biases = node[3][d].chunk(2, 0);
    Tensors sequence(static_cast<std::size_t>(x.size(0)));
    for (std::int64_t i = 0; i < x.size(0); ++i) {
      const std::int64_t t = d == 0 ? i : x.size(0) - 1 - i;
      const Tensor from_input = at::linear(x[t], node[1][d], biases[0]);
      step(node, from_input, at::linear(state[0], node[2][d], biases[1]), state);
      sequence[static_cast<std::size_t>(t)] = state[0];
    }
    results[0].push_back(at::stack(sequence));
    for (std::size_t s = 0; s < states; ++s) results[1 + s].push_back(state[s]);
  }
  Tensors outputs = {at::stack(results[0], 1)};
  for (std::size_t s = 0; s < states; ++s) outputs.push_back(at::stack(results[1 + s]));
  return outputs;
}

Tensors rnn(const NodeArguments& node) { return recurrent(node, step_of_rnn, 1); }
Tensors gru(const NodeArguments& node) { return recurrent(node, step_of_gru, 1); }
Tensors lstm(const NodeArguments& node) { return recurrent(node, step_of_lstm, 2); }

}  // namespace

const NodeEvaluations& sum_evaluations() {
  static const NodeEvaluations kEvaluations = {{"ArgMax", index_of_largest},
                                               {"ArgMin", index_of_smallest},
                                               {"AveragePool", average_pool},
                                               {"BatchNormalization", batch_normalization},
                                               {"Conv", convolution},
                                               {"ConvTranspose", transposed_convolution},
                                               {"CumSum", running_sum},
                                               {"Einsum", einsum},
                                               {"GRU", gru},
                                               {"Gemm", general_product},
                                               {"GlobalAveragePool", global_average},
                                               {"GlobalMaxPool", global_maximum},
                                               {"InstanceNormalization", instance_normalization},
                                               {"LSTM", lstm},
                                               {"LayerNormalization", layer_normalization},
                                               {"LogSoftmax", log_softmax},
                                               {"MatMul", matrix_product},
                                               {"MaxPool", max_pool},
                                               {"RNN", rnn},
                                               {"ReduceL1", reduce_l1},
                                               {"ReduceL2", reduce_l2},
                                               {"ReduceLogSumExp", reduce_log_sum_exp},
                                               {"ReduceMax", reduce_max},
                                               {"ReduceMean", reduce_mean},
                                               {"ReduceMin", reduce_min},
                                               {"ReduceProd", reduce_product},
                                               {"ReduceSum", reduce_sum},
                                               {"Softmax", softmax}};
  return kEvaluations;
}

}  // namespace lockstep::testing_support
