// Operations that only move elements: views, transpositions, concatenation, parts.
#include <algorithm>
#include <limits>
#include <numeric>

#include <lockstep/export/lowering/operators.h>

namespace lockstep::onnx {
namespace {

constexpr std::int64_t kBeyondTheEnd = std::numeric_limits<std::int64_t>::max();

void lower_identity(RecordedOperation& op, const Operator&) { op.bind(op.tensor(0)); }

// to() and similar: the type of the result determines the conversion.
void lower_conversion(RecordedOperation& op, const Operator&) {
  op.bind(op.tensor_as(0, op.result_type()));
}

// The sizes of the result come from the trace, including those that follow the batch.
void lower_view(RecordedOperation& op, const Operator&) {
  op.bind(op.reshape(op.tensor(0), op.result_sizes()));
}

void lower_flatten(RecordedOperation& op, const Operator&) {
  if (op.rank(0) == 0) return lower_view(op, {});
  const std::int64_t first = op.axis(op.integer_or(1, 0), op.rank(0));
  const std::int64_t last = op.axis(op.integer_or(2, -1), op.rank(0));
  const bool to_rows = first == 1 && last == op.rank(0) - 1 && op.rank(0) > 1;
  if (!to_rows) return lower_view(op, {});
  op.result("Flatten", {op.tensor(0)}, {{"axis", 1}});
}

void lower_unsqueeze(RecordedOperation& op, const Operator&) {
  op.bind(op.unsqueeze(op.tensor(0), {op.axis(op.integer(1), op.rank(0) + 1)}));
}

std::vector<std::int64_t> in_order(std::int64_t rank) {
  std::vector<std::int64_t> order(static_cast<std::size_t>(rank));
  std::iota(order.begin(), order.end(), 0);
  return order;
}

void lower_transpose(RecordedOperation& op, const Operator&) {
  const std::int64_t rank = op.rank(0);
  if (rank == 0) return op.bind(op.tensor(0));
  auto order = in_order(rank);
  std::swap(order[static_cast<std::size_t>(op.axis(op.integer(1), rank))],
            order[static_cast<std::size_t>(op.axis(op.integer(2), rank))]);
  op.bind(op.transpose(op.tensor(0), order));
}

// mT(x): the last two dimensions change places.
void lower_matrix_transpose(RecordedOperation& op, const Operator&) {
  const std::int64_t rank = op.rank(0);
  if (rank < 2) op.reject(str("an input of ", rank, " dimensions, expected at least 2"));
  auto order = in_order(rank);
  std::swap(order.end()[-1], order.end()[-2]);
  op.bind(op.transpose(op.tensor(0), order));
}

void lower_t(RecordedOperation& op, const Operator&) {
  if (op.rank(0) < 2) return op.bind(op.tensor(0));
  op.bind(op.transpose(op.tensor(0), {1, 0}));
}

void lower_permute(RecordedOperation& op, const Operator&) {
  auto order = op.integers(1);
  for (std::int64_t& each : order) each = op.axis(each, op.rank(0));
  op.bind(op.transpose(op.tensor(0), order));
}

// The named dimensions move to their destinations; the others fill the rest in order.
void lower_movedim(RecordedOperation& op, const Operator&) {
  const std::int64_t rank = op.rank(0);
  const auto sources = op.integers(1);
  const auto destinations = op.integers(2);
  std::vector<std::int64_t> order(static_cast<std::size_t>(rank), -1);
  auto rest = in_order(rank);
  for (std::size_t i = 0; i < sources.size(); ++i) {
    const std::int64_t source = op.axis(sources[i], rank);
    order[static_cast<std::size_t>(op.axis(destinations[i], rank))] = source;
    std::erase(rest, source);
  }
  auto next = rest.begin();
  for (std::int64_t& each : order) {
    if (each < 0) each = *next++;
  }
  op.bind(op.transpose(op.tensor(0), order));
}

void lower_expand(RecordedOperation& op, const Operator&) {
  op.result("Expand", {op.tensor(0), op.graph().sizes(op.result_sizes())});
}

void lower_broadcast_tensors(RecordedOperation& op, const Operator&) {
  Names names = op.tensors(0);
  const auto from = op.sizes_of_members(0);
  const auto to = op.list_sizes();
  for (std::size_t i = 0; i < names.size(); ++i) {
    names[i] = op.expanded(names[i], from.at(i), to.at(i));
  }
  op.bind_list(names);
}

void lower_repeat(RecordedOperation& op, const Operator&) {
  Extents times = op.extents(1);
  Extents sizes = op.sizes(0);
  std::string x = op.tensor(0);
  if (times.size() < sizes.size()) {  // only for tile(); repeat() requires all dimensions
    times.insert(times.begin(), sizes.size() - times.size(), static_extent(1));
  }
  if (sizes.size() < times.size()) {
    sizes.insert(sizes.begin(), times.size() - sizes.size(), static_extent(1));
    x = op.reshape(x, sizes);
  }
  op.result("Tile", {x, op.graph().sizes(times)});
}

// repeat_interleave(x, repeats, dim): adds a dimension after `dim`, expands and merges it.
void lower_repeat_interleave(RecordedOperation& op, const Operator&) {
  if (!op.has(1) || op.is_tensor(1)) op.reject("repeats must be a number");
  const std::int64_t repeats = op.integer(1);
  std::string x = op.tensor(0);
  Extents sizes = op.sizes(0);
  std::int64_t axis = op.has(2) ? op.axis(op.integer(2), op.rank(0)) : 0;
  if (!op.has(2)) {
    if (repeats == 0) op.reject("repeats of 0 without a dimension");
    const Extent& all = op.result_sizes().at(0);
    if (all.size % repeats != 0 || all.offset % repeats != 0) op.reject("sizes that vary");
    sizes = {{.size = all.size / repeats,
              .per_batch = all.per_batch / repeats,
              .offset = all.offset / repeats}};
    x = op.reshape(x, sizes);
  }
  sizes.insert(sizes.begin() + axis + 1, static_extent(repeats));
  const std::string apart = op.unsqueeze(x, {axis + 1});
  op.bind(op.reshape(op.add("Expand", {apart, op.graph().sizes(sizes)}), op.result_sizes()));
}

// Each member of a list of tensors is converted separately to the type of the result.
Names members_as_result(RecordedOperation& op) {
  Names names = op.tensors(0);
  const torch::jit::Node& list = *op.node().input(0)->node();
  if (list.kind() != c10::prim::ListConstruct) return names;
  const auto members = list.inputs();
  for (std::size_t i = 0; i < names.size() && i < members.size(); ++i) {
    const auto type = members[i]->type()->cast<c10::TensorType>();
    if (type != nullptr && type->scalarType()) {
      names[i] = op.cast(names[i], *type->scalarType(), op.result_type());
    }
  }
  return names;
}

// LibTorch's cat() skips a tensor of sizes [0] beside tensors of more dimensions.
Names concatenated_members(RecordedOperation& op, std::int64_t rank) {
  Names names = members_as_result(op);
  const torch::jit::Node& list = *op.node().input(0)->node();
  if (rank == 1 || list.kind() != c10::prim::ListConstruct) return names;
  Names kept;
  for (std::size_t i = 0; i < names.size(); ++i) {
    const auto type = list.input(i)->type()->cast<c10::TensorType>();
    const bool is_skipped = type != nullptr && type->dim() == 1U;
    if (!is_skipped) kept.push_back(names[i]);
  }
  return kept;
}

void lower_cat(RecordedOperation& op, const Operator&) {
  const auto rank = static_cast<std::int64_t>(op.result_sizes().size());
  const Names members = concatenated_members(op, rank);
  op.result("Concat", members, {{"axis", op.axis(op.integer_or(1, 0), rank)}});
}

void lower_stack(RecordedOperation& op, const Operator&) {
  const auto rank = static_cast<std::int64_t>(op.result_sizes().size());
  const std::int64_t axis = op.axis(op.integer_or(1, 0), rank);
  Names apart;
  for (const std::string& name : members_as_result(op)) {
    apart.push_back(op.unsqueeze(name, {axis}));
  }
  op.result("Concat", apart, {{"axis", axis}});
}

// The axes to add to a tensor of `rank` dimensions for hstack(), vstack() or dstack(), which need
// at least 1, 2 or 3.
std::vector<std::int64_t> axes_to_add(std::size_t rank, std::int64_t least) {
  if (rank == 0) return in_order(least);
  if (rank == 1 && least == 2) return {0};
  if (rank == 1 && least == 3) return {0, 2};
  if (rank == 2 && least == 3) return {2};
  return {};
}

// hstack(), vstack() or dstack(): cat() along the first possible of the dimensions 1, 0 and 2.
void lower_stack_of_least(RecordedOperation& op, std::int64_t least, std::int64_t axis) {
  const std::size_t rank = op.result_sizes().size();
  Names names = members_as_result(op);
  const auto sizes = op.sizes_of_members(0);
  for (std::size_t i = 0; i < names.size(); ++i) {
    const auto added = axes_to_add(sizes.at(i).size(), least);
    if (sizes[i].size() + added.size() != rank) op.reject("members of several ranks");
    if (!added.empty()) names[i] = op.unsqueeze(names[i], added);
  }
  op.result("Concat", names, {{"axis", rank == 1 ? 0 : axis}});
}
void lower_hstack(RecordedOperation& op, const Operator&) { lower_stack_of_least(op, 1, 1); }
void lower_vstack(RecordedOperation& op, const Operator&) { lower_stack_of_least(op, 2, 0); }
void lower_dstack(RecordedOperation& op, const Operator&) { lower_stack_of_least(op, 3, 2); }

// Consecutive parts with the sizes in the trace: split(), chunk() and similar.
void lower_parts(RecordedOperation& op, const Operator&) {
  const std::int64_t axis = op.axis(op.integer_or(2, 0), op.rank(0));
  const auto members = op.list_sizes();
  std::vector<std::int64_t> parts;
  for (const Extents& sizes : members) {
    parts.push_back(op.fixed(sizes.at(static_cast<std::size_t>(axis)), "a part's size"));
  }
  // As with tensor_split() at indices that do not ascend.
  const std::int64_t total = std::accumulate(parts.begin(), parts.end(), std::int64_t{0});
  const Extent size = op.sizes(0).at(static_cast<std::size_t>(axis));
  if (size.is_static() && size.size != total) op.reject("parts that overlap");
  if (parts.size() == 1) return op.bind_list({op.tensor(0)});
  op.bind_list(op.graph().add("Split", {op.tensor(0), op.graph().integers(parts)}, {{"axis", axis}},
                              parts.size()));
}

std::string picked(RecordedOperation& op, const std::string& x, std::int64_t axis,
                   std::int64_t index) {
  const std::string at = op.graph().scalar(static_cast<double>(index), at::kLong);
  return op.add("Gather", {x, at}, {{"axis", axis}});
}

void lower_unbind(RecordedOperation& op, const Operator&) {
  const std::int64_t axis = op.axis(op.integer_or(1, 0), op.rank(0));
  const std::string x = op.tensor(0);
  Names names;
  const auto count = static_cast<std::int64_t>(op.list_sizes().size());
  op.fixed(op.sizes(0).at(static_cast<std::size_t>(axis)), "unbind()'s dimension");
  for (std::int64_t i = 0; i < count; ++i) names.push_back(picked(op, x, axis, i));
  op.bind_list(names);
}

void lower_select(RecordedOperation& op, const Operator&) {
  op.bind(picked(op, op.tensor(0), op.axis(op.integer(1), op.rank(0)), op.integer(2)));
}

// slice(x, dim, start, end, step)
void lower_slice(RecordedOperation& op, const Operator&) {
  const std::int64_t axis = op.axis(op.integer_or(1, 0), op.rank(0));
  const Extent begin = op.has(2) ? op.extent(2) : static_extent(0);
  const Extent end = op.has(3) ? op.extent(3) : static_extent(kBeyondTheEnd);
  const std::int64_t step = op.integer_or(4, 1);
  const Extent size = op.sizes(0).at(static_cast<std::size_t>(axis));
  const Extent result = op.result_sizes().at(static_cast<std::size_t>(axis));
  const bool to_end = end == static_extent(kBeyondTheEnd);
  // x.slice(0, 0, 100) takes all rows of the recorded batches, but would cut a larger one.
  if (!size.is_static() && result == size && end.is_static() && end.size > 0 && !to_end) {
    op.reject(str("a fixed end, ", end.size, ", of a dimension that follows the batch"));
  }
  const bool whole = begin == static_extent(0) && step == 1 && result == size && end.size > 0;
  if (whole) return op.bind(op.tensor(0));
  GraphBuilder& graph = op.graph();
  op.result("Slice", {op.tensor(0), graph.sizes({begin}), graph.sizes({end}),
                      graph.integers({axis}), graph.integers({step})});
}

// narrow(x, dim, start, length)
void lower_narrow(RecordedOperation& op, const Operator&) {
  const std::int64_t axis = op.axis(op.integer(1), op.rank(0));
  const Extent size = op.sizes(0).at(static_cast<std::size_t>(axis));
  std::int64_t begin = op.integer(2);
  if (begin < 0) begin += op.fixed(size, "narrow()'s dimension");
  op.bind(op.slice(op.tensor(0), axis, begin, begin + op.integer(3)));
}

void lower_flip(RecordedOperation& op, const Operator&) {
  std::string x = op.tensor(0);
  for (const std::int64_t dimension : op.integers(1)) {
    x = op.slice(x, op.axis(dimension, op.rank(0)), -1, std::numeric_limits<std::int64_t>::min(),
                 -1);
  }
  op.bind(x);
}

std::string rolled(RecordedOperation& op, const std::string& x, std::int64_t axis,
                   std::int64_t size, std::int64_t shift) {
  const std::int64_t cut = size == 0 ? 0 : ((-shift) % size + size) % size;
  if (cut == 0) return x;
  return op.add("Concat", {op.slice(x, axis, cut, size), op.slice(x, axis, 0, cut)},
                {{"axis", axis}});
}

void lower_roll(RecordedOperation& op, const Operator&) {
  const auto shifts = op.integers(1);
  const auto dimensions = op.has(2) ? op.integers(2) : std::vector<std::int64_t>{};
  std::string x = op.tensor(0);
  if (dimensions.empty()) {
    std::int64_t count = 1;
    for (const Extent& size : op.sizes(0)) count *= op.fixed(size, "the number of elements");
    x = op.reshape(x, {static_extent(count)});
    return op.bind(op.reshape(rolled(op, x, 0, count, shifts.at(0)), op.result_sizes()));
  }
  for (std::size_t i = 0; i < dimensions.size(); ++i) {
    const std::int64_t axis = op.axis(dimensions[i], op.rank(0));
    const Extent& size = op.sizes(0).at(static_cast<std::size_t>(axis));
    x = rolled(op, x, axis, op.fixed(size, "roll()'s dimension"), shifts[i]);
  }
  op.bind(x);
}

// An image without a batch gets one of 1.
void lower_pixel_shuffle(RecordedOperation& op, const Operator&) {
  const std::int64_t rank = op.rank(0);
  if (rank != 4 && rank != 3) op.reject(str("an input of ", rank, " dimensions, expected 3 or 4"));
  const std::string x = rank == 3 ? op.unsqueeze(op.tensor(0), {0}) : op.tensor(0);
  const std::string shuffled =
      op.add("DepthToSpace", {x}, {{"blocksize", op.integer(1)}, {"mode", "CRD"}});
  op.bind(rank == 3 ? op.squeeze(shuffled, {0}) : shuffled);
}

// ONNX's SpaceToDepth puts the position in a block before the channel, LibTorch after it.
void lower_pixel_unshuffle(RecordedOperation& op, const Operator&) {
  const std::int64_t rank = op.rank(0);
  if (rank != 4 && rank != 3) op.reject(str("an input of ", rank, " dimensions, expected 3 or 4"));
  const Extents& sizes = op.sizes(0);
  const std::int64_t block = op.integer(1);
  const auto blocks = [&](std::size_t d) {
    return static_extent(op.fixed(sizes[d], "an image's size") / block);
  };
  const std::size_t height = sizes.size() - 2;
  Extents split(sizes.begin(), sizes.end() - 2);
  split.insert(split.end(),
               {blocks(height), static_extent(block), blocks(height + 1), static_extent(block)});
  const std::vector<std::int64_t> order = rank == 4 ? std::vector<std::int64_t>{0, 1, 3, 5, 2, 4}
                                                    : std::vector<std::int64_t>{0, 2, 4, 1, 3};
  op.bind(op.reshape(op.transpose(op.reshape(op.tensor(0), split), order), op.result_sizes()));
}

void lower_channel_shuffle(RecordedOperation& op, const Operator&) {
  const Extents& sizes = op.sizes(0);
  const std::int64_t groups = op.integer(1);
  const std::int64_t channels = op.fixed(sizes.at(1), "the number of channels");
  Extents split = sizes;
  split[1] = static_extent(groups);
  split.insert(split.begin() + 2, static_extent(channels / groups));
  auto order = in_order(static_cast<std::int64_t>(split.size()));
  std::swap(order[1], order[2]);
  op.bind(op.reshape(op.transpose(op.reshape(op.tensor(0), split), order), sizes));
}

void lower_triangle(RecordedOperation& op, const Operator& entry) {
  const bool upper = std::string_view(entry.onnx) == "upper";
  const std::string diagonal =
      op.graph().scalar(static_cast<double>(op.integer_or(1, 0)), at::kLong);
  op.result("Trilu", {op.tensor(0), diagonal}, {{"upper", upper ? 1 : 0}});
}

constexpr Operator kShapes[] = {
    {"alias", lower_identity},
    {"broadcast_tensors", lower_broadcast_tensors},
    {"broadcast_to", lower_expand},
    {"cat", lower_cat},
    {"channel_shuffle", lower_channel_shuffle},
    {"chunk", lower_parts},
    {"clone", lower_identity},
    {"contiguous", lower_identity},
    {"detach", lower_identity},
    {"dstack", lower_dstack},
    {"expand", lower_expand},
    {"expand_as", lower_expand},
    {"flatten", lower_flatten},
    {"flip", lower_flip},
    {"hstack", lower_hstack},
    {"lift_fresh_copy", lower_identity},
    {"mT", lower_matrix_transpose},
    {"movedim", lower_movedim},
    {"narrow", lower_narrow},
    {"permute", lower_permute},
    {"pixel_shuffle", lower_pixel_shuffle},
    {"pixel_unshuffle", lower_pixel_unshuffle},
    {"ravel", lower_view},
    {"repeat", lower_repeat},
    {"repeat_interleave", lower_repeat_interleave},
    {"reshape", lower_view},
    {"reshape_as", lower_view},
    {"roll", lower_roll},
    {"select", lower_select},
    {"slice", lower_slice},
    {"split", lower_parts},
    {"split_with_sizes", lower_parts},
    {"squeeze", lower_view},
    {"stack", lower_stack},
    {"t", lower_t},
    {"tensor_split", lower_parts},
    {"tile", lower_repeat},
    {"to", lower_conversion},
    {"transpose", lower_transpose},
    {"tril", lower_triangle, "lower"},
    {"triu", lower_triangle, "upper"},
    {"type_as", lower_conversion},
    {"unbind", lower_unbind},
    {"unflatten", lower_view},
    {"unsafe_chunk", lower_parts},
    {"unsafe_split", lower_parts},
    {"unsafe_split_with_sizes", lower_parts},
    {"unsqueeze", lower_unsqueeze},
    {"view", lower_view},
    {"view_as", lower_view},
    {"vstack", lower_vstack},
};

}  // namespace

Family shape_operators() { return kShapes; }

}  // namespace lockstep::onnx
