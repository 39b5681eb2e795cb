// Selection of elements by indices, and windows over images.
#include <algorithm>

#include <ATen/TensorIndexing.h>
#include <torch/types.h>

#include <lockstep/export/lowering/operators.h>

namespace lockstep::onnx {
namespace {

void lower_embedding(RecordedOperation& op, const Operator&) {
  op.result("Gather", {op.tensor(0), op.tensor(1)}, {{"axis", 0}});
}

// An index without dimensions selects one element, whose dimension stays.
void lower_index_select(RecordedOperation& op, const Operator&) {
  const std::string index = op.rank(2) == 0 ? op.unsqueeze(op.tensor(2), {0}) : op.tensor(2);
  op.result("Gather", {op.tensor(0), index}, {{"axis", op.axis(op.integer(1), op.rank(0))}});
}

void lower_gather(RecordedOperation& op, const Operator&) {
  op.result("GatherElements", {op.tensor(0), op.tensor(2)},
            {{"axis", op.axis(op.integer(1), op.rank(0))}});
}

// take_along_dim(x, indices, dim): both are broadcast in all other dimensions. Without a dimension
// the indices count all elements.
void lower_take_along_dim(RecordedOperation& op, const Operator&) {
  if (!op.has(2)) {
    const std::string all = op.graph().integers({-1});
    return op.result(
        "GatherElements",
        {op.add("Reshape", {op.tensor(0), all}), op.add("Reshape", {op.tensor(1), all})},
        {{"axis", 0}});
  }
  const std::int64_t axis = op.axis(op.integer(2), op.rank(0));
  Extents sizes = op.result_sizes();
  const std::string index = op.expanded(op.tensor(1), op.sizes(1), sizes);
  const auto along = static_cast<std::size_t>(axis);
  sizes.at(along) = op.sizes(0).at(along);
  op.result("GatherElements", {op.expanded(op.tensor(0), op.sizes(0), sizes), index},
            {{"axis", axis}});
}

void lower_take(RecordedOperation& op, const Operator&) {
  const std::string flat = op.add("Reshape", {op.tensor(0), op.graph().integers({-1})});
  op.result("Gather", {flat, op.tensor(1)}, {{"axis", 0}});
}

// The indexed dimensions of x[i, :, j], in order. Their indices are int64, as GatherND requires.
struct IndexedDimensions {
  Names indices;
  std::vector<std::int64_t> axes;

  bool have_a_gap() const {
    return axes.back() - axes.front() + 1 != static_cast<std::int64_t>(axes.size());
  }
};

IndexedDimensions indexed_dimensions(RecordedOperation& op) {
  IndexedDimensions result;
  const Names names = op.tensors(1);
  const auto members = op.node().input(1)->node()->inputs();
  for (std::size_t d = 0; d < names.size(); ++d) {
    if (names[d].empty()) continue;
    const auto type = members[d]->type()->cast<c10::TensorType>();
    const auto element = type == nullptr ? std::nullopt : type->scalarType();
    if (!element || *element == at::kBool || *element == at::kByte) {
      op.reject("a mask as index gives sizes that vary; use where() or masked_fill()");
    }
    result.indices.push_back(op.cast(names[d], *element, at::kLong));
    result.axes.push_back(static_cast<std::int64_t>(d));
  }
  return result;
}

// The order of dimensions that moves the first `count` of `rank` dimensions to position `to`.
std::vector<std::int64_t> order_with_moved(std::size_t rank, std::size_t count, std::size_t to) {
  std::vector<std::int64_t> order;
  for (std::size_t d = 0; d < rank; ++d) order.push_back(static_cast<std::int64_t>(d));
  std::rotate(order.begin(), order.begin() + static_cast<std::ptrdiff_t>(count),
              order.begin() + static_cast<std::ptrdiff_t>(count + to));
  return order;
}

// index(x, [None, i, j]): moves the indexed dimensions to the front, where GatherND takes their
// indices side by side. The indices' common dimensions, the result's first, move back to the place
// of the first indexed dimension, unless there is a gap between the indexed ones, as in x[i, :, j].
void lower_index(RecordedOperation& op, const Operator&) {
  const IndexedDimensions indexed = indexed_dimensions(op);
  if (indexed.indices.empty()) return op.bind(op.tensor(0));
  const std::size_t count = indexed.indices.size();
  const auto first = static_cast<std::size_t>(indexed.axes.front());
  if (count == 1) {
    return op.result("Gather", {op.tensor(0), indexed.indices[0]},
                     {{"axis", indexed.axes.front()}});
  }
  const std::size_t rank = op.sizes(0).size();
  const std::size_t result_rank = op.result_sizes().size();
  const std::size_t index_rank = result_rank - (rank - count);
  const std::size_t place = indexed.have_a_gap() ? 0 : first;
  const auto begin = op.result_sizes().begin() + static_cast<std::ptrdiff_t>(place);
  const Extents common(begin, begin + static_cast<std::ptrdiff_t>(index_rank));
  Names columns;
  for (const std::string& index : indexed.indices) {
    const std::string spread = op.add("Expand", {index, op.graph().sizes(common)});
    columns.push_back(op.unsqueeze(spread, {static_cast<std::int64_t>(index_rank)}));
  }
  const std::string at =
      op.add("Concat", columns, {{"axis", static_cast<std::int64_t>(index_rank)}});
  std::vector<std::int64_t> forward = indexed.axes;
  for (std::int64_t d = 0; d < static_cast<std::int64_t>(rank); ++d) {
    if (std::find(indexed.axes.begin(), indexed.axes.end(), d) == indexed.axes.end()) {
      forward.push_back(d);
    }
  }
  const bool in_order = std::is_sorted(forward.begin(), forward.end());
  const std::string x = in_order ? op.tensor(0) : op.transpose(op.tensor(0), forward);
  const std::string found = op.add("GatherND", {x, at});
  if (place == 0) return op.bind(found);
  op.bind(op.transpose(found, order_with_moved(result_rank, index_rank, place)));
}

// diagonal(x, offset, dim1, dim2): a new last dimension with the elements, which GatherND takes
// from the two dimensions moved to the front.
void lower_diagonal(RecordedOperation& op, const Operator&) {
  const std::int64_t rank = op.rank(0);
  const std::int64_t count = op.fixed(op.result_sizes().back(), "the length of the diagonal");
  const std::int64_t offset = op.integer_or(1, 0);
  std::vector<std::int64_t> order = {op.axis(op.integer_or(2, 0), rank),
                                     op.axis(op.integer_or(3, 1), rank)};
  for (std::int64_t d = 0; d < rank; ++d) {
    if (d != order[0] && d != order[1]) order.push_back(d);
  }
  const at::Tensor steps = at::arange(count, at::kLong);
  const at::Tensor places = at::stack(
      {steps + std::max<std::int64_t>(-offset, 0), steps + std::max<std::int64_t>(offset, 0)}, 1);
  const std::string x = op.transpose(op.tensor(0), order);
  const std::string found = op.add("GatherND", {x, op.graph().constant(places, "")});
  const auto result_rank = static_cast<std::size_t>(rank - 1);
  op.bind(op.transpose(found, order_with_moved(result_rank, 1, result_rank - 1)));
}

// The part of scatter()'s source that has an index: the source may be larger.
std::string cut_to_index(RecordedOperation& op, std::string source) {
  const Extents& sizes = op.sizes(3);
  const Extents& index = op.sizes(2);
  for (std::size_t d = 0; d < index.size(); ++d) {
    if (sizes.at(d) == index[d]) continue;
    const std::int64_t end = op.fixed(index[d], "a dimension of an index smaller than its source");
    source = op.slice(source, static_cast<std::int64_t>(d), 0, end);
  }
  return source;
}

// scatter(x, dim, index, src) with a tensor or a number.
void lower_scatter(RecordedOperation& op, const Operator& entry) {
  if (op.arguments() > 4) op.reject("reduce is not lowered; use scatter_add()");
  const at::ScalarType type = op.result_type();
  Attributes attributes = {{"axis", op.axis(op.integer(1), op.rank(0))}};
  std::string source = op.tensor_as(3, type);
  if (!op.is_tensor(3)) {
    source = op.add("Expand", {source, op.graph().sizes(op.sizes(2))});
  } else {
    source = cut_to_index(op, source);
  }
  const std::string reduction = entry.onnx;
  const std::string x = op.tensor_as(0, type);
  if (reduction.empty()) return op.result("ScatterElements", {x, op.tensor(2), source}, attributes);
  attributes.emplace_back("reduction", reduction);
  // onnxruntime does not add up float16.
  const ElementType element = op.graph().type_of(x);
  const bool is_half = element == ElementType::kFloat16;
  const auto in = [&](const std::string& name, ElementType wanted) {
    return is_half ? op.graph().cast(name, wanted) : name;
  };
  const std::string sums = op.add(
      "ScatterElements",
      {in(x, ElementType::kFloat), op.tensor(2), in(source, ElementType::kFloat)}, attributes);
  op.bind(in(sums, element));
}

void lower_one_hot(RecordedOperation& op, const Operator&) {
  const std::int64_t classes = op.integer_or(1, -1);
  if (classes < 1) op.reject("num_classes must be given");
  const std::string all = op.graph().constant(at::arange(classes, at::kLong), "");
  const std::string hot = op.add("Equal", {op.unsqueeze(op.tensor(0), {op.rank(0)}), all});
  op.bind(op.cast(hot, at::kBool, at::kLong));
}

// The indices that windows of `size` select along a dimension: [size, windows].
at::Tensor window_indices(std::int64_t size, std::int64_t windows, std::int64_t stride,
                          std::int64_t dilation) {
  return (at::arange(size, at::kLong) * dilation).unsqueeze(1) +
         (at::arange(windows, at::kLong) * stride).unsqueeze(0);
}

// x.unfold(dim, size, step): a new last dimension with the window.
void lower_unfold(RecordedOperation& op, const Operator&) {
  const std::int64_t rank = op.rank(0);
  const std::int64_t axis = op.axis(op.integer(1), rank);
  const Extent& result = op.result_sizes().at(static_cast<std::size_t>(axis));
  const std::int64_t windows = op.fixed(result, "unfold()'s dimension");
  const at::Tensor indices = window_indices(op.integer(2), windows, op.integer(3), 1);
  const std::string taken =
      op.add("Gather", {op.tensor(0), op.graph().constant(indices, "")}, {{"axis", axis}});
  std::vector<std::int64_t> order;
  for (std::int64_t d = 0; d <= rank; ++d) {
    if (d != axis) order.push_back(d);
  }
  order.push_back(axis);
  op.bind(op.transpose(taken, order));
}

// im2col(x, kernel, dilation, padding, stride): [N, C, H, W] to [N, C kh kw, windows].
void lower_im2col(RecordedOperation& op, const Operator&) {
  if (op.rank(0) != 4) op.reject(str("an input of ", op.rank(0), " dimensions, expected 4"));
  const auto kernel = op.integers(1);
  const auto dilation = op.integers(2);
  const auto padding = op.integers(3);
  const auto stride = op.integers(4);
  const std::string pads =
      op.graph().integers({0, 0, padding.at(0), padding.at(1), 0, 0, padding.at(0), padding.at(1)});
  std::string x = op.add("Pad", {op.tensor(0), pads});
  for (const std::size_t d : {0, 1}) {
    const std::int64_t size = op.fixed(op.sizes(0)[d + 2], "an image's size") + 2 * padding[d];
    const std::int64_t windows = (size - dilation[d] * (kernel[d] - 1) - 1) / stride[d] + 1;
    const at::Tensor indices = window_indices(kernel[d], windows, stride[d], dilation[d]);
    // The first Gather splits one dimension into two.
    x = op.add("Gather", {x, op.graph().constant(indices, "")},
               {{"axis", static_cast<std::int64_t>(d == 0 ? 2 : 4)}});
  }
  op.bind(op.reshape(op.transpose(x, {0, 1, 2, 4, 3, 5}), op.result_sizes()));
}

// col2im(x, output_size, kernel, dilation, padding, stride)
void lower_col2im(RecordedOperation& op, const Operator&) {
  if (op.opset() < 18) op.reject("it needs opset 18 or newer");
  if (op.rank(0) != 3) op.reject(str("an input of ", op.rank(0), " dimensions, expected 3"));
  auto pads = op.integers(4);
  pads.insert(pads.end(), {pads.at(0), pads.at(1)});
  op.result(
      "Col2Im",
      {op.tensor(0), op.graph().integers(op.integers(1)), op.graph().integers(op.integers(2))},
      {{"dilations", op.integers(3)}, {"pads", pads}, {"strides", op.integers(5)}});
}

constexpr Operator kIndexing[] = {
    {"col2im", lower_col2im},
    {"diagonal", lower_diagonal},
    {"embedding", lower_embedding},
    {"gather", lower_gather},
    {"im2col", lower_im2col},
    {"index", lower_index},
    {"index_select", lower_index_select},
    {"one_hot", lower_one_hot},
    {"scatter", lower_scatter},
    {"scatter_add", lower_scatter, "add"},
    {"take", lower_take},
    {"take_along_dim", lower_take_along_dim},
    {"unfold", lower_unfold},
};

}  // namespace

Family indexing_operators() { return kIndexing; }

}  // namespace lockstep::onnx
