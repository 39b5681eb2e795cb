// Operators on shapes and indices.
#include <algorithm>
#include <functional>
#include <numeric>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include <ATen/TensorIndexing.h>
#include <torch/types.h>

#include <tests/export/evaluation/graph_evaluator.h>

namespace lockstep::testing_support {
namespace {

using torch::Tensor;

std::int64_t from_front(std::int64_t axis, std::int64_t rank) {
  const std::int64_t result = axis < 0 ? axis + rank : axis;
  if (result < 0 || result >= rank) throw std::logic_error("an axis that is out of range");
  return result;
}

// Indices count from behind if they are negative.
Tensor indices_from_front(const Tensor& indices, std::int64_t size) {
  return at::where(indices < 0, indices + size, indices);
}

Tensors shape(const NodeArguments& node) {
  const auto sizes = node[0].sizes();
  const std::int64_t begin = node.integer("start", 0);
  const std::int64_t end = node.integer("end", node[0].dim());
  return {at::tensor(sizes.slice(begin, end - begin), at::kLong)};
}

Tensors concatenate(const NodeArguments& node) {
  return {at::cat(node.all(), node.integer("axis", 0))};
}

Tensors split(const NodeArguments& node) {
  return node[0].split_with_sizes(node.elements(1), node.integer("axis", 0));
}

Tensors expand(const NodeArguments& node) {
  return {at::broadcast_tensors({node[0], at::empty(node.elements(1))})[0]};
}

Tensors tile(const NodeArguments& node) { return {node[0].repeat(node.elements(1))}; }

// A size of 0 is that of the input, unless allowzero is set.
Tensors reshape(const NodeArguments& node) {
  std::vector<std::int64_t> sizes = node.elements(1);
  const bool allows_zero = node.integer("allowzero", 0) == 1;
  for (std::size_t d = 0; d < sizes.size(); ++d) {
    if (sizes[d] == 0 && !allows_zero) sizes[d] = node[0].size(static_cast<std::int64_t>(d));
  }
  return {node[0].reshape(sizes)};
}

Tensors flatten(const NodeArguments& node) {
  const auto axis = static_cast<std::size_t>(node.integer("axis", 1));
  const auto sizes = node[0].sizes();
  const auto product = [](at::IntArrayRef each) {
    return std::accumulate(each.begin(), each.end(), std::int64_t{1}, std::multiplies<>());
  };
  return {node[0].reshape({product(sizes.slice(0, axis)), product(sizes.slice(axis))})};
}

Tensors transpose(const NodeArguments& node) { return {node[0].permute(node.integers("perm"))}; }

Tensors squeeze(const NodeArguments& node) {
  std::vector<std::int64_t> axes;
  for (const std::int64_t axis : node.elements(1)) {
    axes.push_back(from_front(axis, node[0].dim()));
    if (node[0].size(axis) != 1) throw std::logic_error("a dimension that is not of size 1");
  }
  std::sort(axes.rbegin(), axes.rend());
  Tensor result = node[0];
  for (const std::int64_t axis : axes) result = result.squeeze(axis);
  return {result};
}

Tensors unsqueeze(const NodeArguments& node) {
  std::vector<std::int64_t> axes = node.elements(1);
  const std::int64_t rank = node[0].dim() + static_cast<std::int64_t>(axes.size());
  for (std::int64_t& axis : axes) axis = from_front(axis, rank);
  std::sort(axes.begin(), axes.end());
  Tensor result = node[0];
  for (const std::int64_t axis : axes) result = result.unsqueeze(axis);
  return {result};
}

// x[begin:end:step], as in Python.
Tensor part_of(const Tensor& x, std::int64_t axis, std::int64_t begin, std::int64_t end,
               std::int64_t step) {
  const std::int64_t size = x.size(axis);
  if (begin < 0) begin += size;
  if (end < 0) end += size;
  const std::int64_t least = step > 0 ? 0 : -1;
  begin = std::clamp(begin, least, step > 0 ? size : size - 1);
  end = std::clamp(end, least, step > 0 ? size : size - 1);
  std::vector<std::int64_t> taken;
  for (std::int64_t i = begin; step > 0 ? i < end : i > end; i += step) taken.push_back(i);
  return x.index_select(axis, at::tensor(taken, at::kLong));
}

Tensors slice(const NodeArguments& node) {
  const auto begins = node.elements(1);
  const auto ends = node.elements(2);
  const auto axes = node.elements(3);
  const auto steps = node.elements(4);
  Tensor result = node[0];
  for (std::size_t i = 0; i < axes.size(); ++i) {
    const std::int64_t axis = from_front(axes[i], result.dim());
    result = part_of(result, axis, begins.at(i), ends.at(i), steps.at(i));
  }
  return {result};
}

// The positions that a border along one dimension repeats.
Tensor bordered_positions(const std::string& mode, std::int64_t size, std::int64_t before,
                          std::int64_t after) {
  const Tensor positions = at::arange(-before, size + after, at::kLong);
  if (mode == "edge") return positions.clamp(0, size - 1);
  if (mode != "reflect") throw std::logic_error("padding of an unknown mode, " + mode);
  const Tensor inside = positions.abs();
  return at::where(inside >= size, 2 * (size - 1) - inside, inside);
}

Tensors pad(const NodeArguments& node) {
  const std::vector<std::int64_t> pads = node.elements(1);
  const std::string mode = node.text("mode", "constant");
  const auto rank = static_cast<std::size_t>(node[0].dim());
  if (pads.size() != 2 * rank) throw std::logic_error("padding for another number of dimensions");
  if (mode == "constant") {
    std::vector<std::int64_t> from_last;
    for (std::size_t d = rank; d-- > 0;) {
      from_last.push_back(pads[d]);
      from_last.push_back(pads[rank + d]);
    }
    const at::Scalar value = node.has(2) ? node[2].item() : at::Scalar(0);
    return {at::constant_pad_nd(node[0], from_last, value)};
  }
  Tensor result = node[0];
  for (std::size_t d = 0; d < rank; ++d) {
    if (pads[d] == 0 && pads[rank + d] == 0) continue;
    const auto axis = static_cast<std::int64_t>(d);
    const Tensor taken = bordered_positions(mode, result.size(axis), pads[d], pads[rank + d]);
    result = result.index_select(axis, taken);
  }
  return {result};
}

Tensors gather(const NodeArguments& node) {
  const std::int64_t axis = from_front(node.integer("axis", 0), node[0].dim());
  const Tensor indices = indices_from_front(node[1].to(at::kLong), node[0].size(axis));
  std::vector<std::int64_t> sizes = node[0].sizes().vec();
  const auto place = sizes.erase(sizes.begin() + static_cast<std::ptrdiff_t>(axis));
  sizes.insert(place, node[1].sizes().begin(), node[1].sizes().end());
  return {node[0].index_select(axis, indices.flatten()).reshape(sizes)};
}

Tensors gather_elements(const NodeArguments& node) {
  const std::int64_t axis = from_front(node.integer("axis", 0), node[0].dim());
  return {node[0].gather(axis, indices_from_front(node[1], node[0].size(axis)))};
}

// The last dimension of the indices has one index for each of the first dimensions.
Tensors gather_vectors(const NodeArguments& node) {
  std::vector<at::indexing::TensorIndex> indices;
  for (const Tensor& each : node[1].unbind(-1)) indices.emplace_back(each);
  return {node[0].index(indices)};
}

Tensors scatter_elements(const NodeArguments& node) {
  const std::int64_t axis = from_front(node.integer("axis", 0), node[0].dim());
  const Tensor indices = indices_from_front(node[1], node[0].size(axis));
  if (node[1].sizes() != node[2].sizes()) throw std::logic_error("updates of another size");
  const std::string reduction = node.text("reduction", "none");
  if (reduction == "add") return {node[0].scatter_add(axis, indices, node[2])};
  if (reduction != "none") throw std::logic_error("an unknown reduction, " + reduction);
  return {node[0].scatter(axis, indices, node[2])};
}

Tensors triangle(const NodeArguments& node) {
  const std::int64_t diagonal = node.has(1) ? node[1].item<std::int64_t>() : 0;
  const bool is_upper = node.integer("upper", 1) == 1;
  return {is_upper ? node[0].triu(diagonal) : node[0].tril(diagonal)};
}

Tensors range(const NodeArguments& node) {
  return {at::arange(node[0].item(), node[1].item(), node[2].item(), node[0].options())};
}

Tensors depth_to_space(const NodeArguments& node) {
  if (node.text("mode", "DCR") != "CRD") throw std::logic_error("another order than LibTorch's");
  return {at::pixel_shuffle(node[0], node.integer("blocksize", 0))};
}

Tensors columns_to_image(const NodeArguments& node) {
  std::vector<std::int64_t> pads = node.integers("pads");
  if (pads.size() != 4 || pads[0] != pads[2] || pads[1] != pads[3]) {
    throw std::logic_error("padding that differs at the two ends");
  }
  pads.resize(2);
  return {at::col2im(node[0], node.elements(1), node.elements(2), node.integers("dilations"), pads,
                     node.integers("strides"))};
}

// The first `count` elements in order. Equal ones stay in order.
Tensors top(const NodeArguments& node) {
  const std::int64_t axis = from_front(node.integer("axis", -1), node[0].dim());
  const bool descending = node.integer("largest", 1) == 1;
  const auto [values, indices] = node[0].sort(std::optional<bool>(true), axis, descending);
  const std::int64_t count = node.elements(1).at(0);
  return {values.narrow(axis, 0, count), indices.narrow(axis, 0, count)};
}

Tensors resize(const NodeArguments& node) {
  const Tensor& x = node[0];
  const std::vector<std::int64_t> whole = node.elements(3);
  if (whole.size() != static_cast<std::size_t>(x.dim()) || whole[0] != x.size(0) ||
      whole[1] != x.size(1)) {
    throw std::logic_error("sizes that change the batch or the channels");
  }
  const std::vector<std::int64_t> sizes(whole.begin() + 2, whole.end());
  const std::string mode = node.text("mode", "nearest");
  const std::string coordinates = node.text("coordinate_transformation_mode", "half_pixel");
  if (mode == "nearest") {
    if (coordinates != "asymmetric" || node.text("nearest_mode", "") != "floor") {
      throw std::logic_error("other pixels than LibTorch's");
    }
    // Elsewhere LibTorch rounds, so that it may choose another pixel than ONNX.
    for (std::size_t d = 0; d < sizes.size(); ++d) {
      if (sizes[d] % x.size(static_cast<std::int64_t>(d) + 2) != 0)
        throw std::logic_error("sizes that are no multiples");
    }
    if (sizes.size() == 1) return {at::upsample_nearest1d(x, sizes)};
    if (sizes.size() == 2) return {at::upsample_nearest2d(x, sizes)};
    return {at::upsample_nearest3d(x, sizes)};
  }
  const bool corners = coordinates == "align_corners";
  if (!corners && coordinates != "half_pixel") throw std::logic_error("unknown coordinates");
  const bool smooths = node.integer("antialias", 0) == 1;
  const bool is_cubic = mode == "cubic";
  if (is_cubic && node.number("cubic_coeff_a", -0.75) != (smooths ? -0.5 : -0.75)) {
    throw std::logic_error("another polynomial than LibTorch's");
  }
  if (smooths && node.integer("exclude_outside", 0) != 1) {
    throw std::logic_error("weights beyond the border");
  }
  if (smooths && is_cubic) return {at::_upsample_bicubic2d_aa(x, sizes, corners)};
  if (smooths) return {at::_upsample_bilinear2d_aa(x, sizes, corners)};
  if (is_cubic) return {at::upsample_bicubic2d(x, sizes, corners)};
  if (mode != "linear") throw std::logic_error("an unknown mode of resizing, " + mode);
  if (sizes.size() == 1) return {at::upsample_linear1d(x, sizes, corners)};
  if (sizes.size() == 2) return {at::upsample_bilinear2d(x, sizes, corners)};
  return {at::upsample_trilinear3d(x, sizes, corners)};
}

}  // namespace

const NodeEvaluations& shape_evaluations() {
  static const NodeEvaluations kEvaluations = {{"Col2Im", columns_to_image},
                                               {"Concat", concatenate},
                                               {"DepthToSpace", depth_to_space},
                                               {"Expand", expand},
                                               {"Flatten", flatten},
                                               {"Gather", gather},
                                               {"GatherElements", gather_elements},
                                               {"GatherND", gather_vectors},
                                               {"Pad", pad},
                                               {"Range", range},
                                               {"Reshape", reshape},
                                               {"Resize", resize},
                                               {"ScatterElements", scatter_elements},
                                               {"Shape", shape},
                                               {"Slice", slice},
                                               {"Split", split},
                                               {"Squeeze", squeeze},
                                               {"Tile", tile},
                                               {"TopK", top},
                                               {"Transpose", transpose},
                                               {"Trilu", triangle},
                                               {"Unsqueeze", unsqueeze}};
  return kEvaluations;
}

}  // namespace lockstep::testing_support
