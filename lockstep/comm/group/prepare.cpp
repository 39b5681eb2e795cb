#include <lockstep/comm/group/prepare.h>

#include <algorithm>

#include <lockstep/comm/call/tensor_type.h>
#include <lockstep/comm/group/flat.h>
#include <lockstep/comm/group/prepare_fail.h>

namespace lockstep::comm {
namespace {

std::uint64_t units_of(const torch::Tensor& tensor) {
  return static_cast<std::uint64_t>(tensor.numel() * units_per_element(tensor.scalar_type()));
}

void describe_piece(CallDescription& description, const torch::Tensor& piece) {
  description.type = data_type_of(piece.scalar_type());
  description.count = units_of(piece);
  description.shape = logical_shape(piece);
}

Prepared of_kind(CallKind kind) {
  Prepared prepared;
  prepared.call.description.kind = kind;
  return prepared;
}

// A linear reduction of complex numbers reduces the real and imaginary parts separately.
bool reduces_parts(const torch::Tensor& tensor, ReduceOp op) {
  using Kind = ReduceOp::Kind;
  return tensor.is_complex() &&
         (op.kind == Kind::kSum || op.kind == Kind::kAverage || op.kind == Kind::kPreMultipliedSum);
}

torch::Tensor parts_of(const torch::Tensor& tensor) { return at::view_as_real(tensor.detach()); }

// LibTorch's operators do this themselves, but a backend writes memory without them. A backward()
// through a value that was saved before the call then throws, as after any other change in place.
void note_write(const torch::Tensor& tensor) {
  if (!tensor.is_inference()) tensor.unsafeGetTensorImpl()->bump_version();
}

}  // namespace

// --- Memory --------------------------------------------------------------------------------------

// Options of the scratch memory for a tensor. The memory is pinned for a tensor on a GPU, so that
// copies are fast.
torch::TensorOptions Prepare::scratch_options(const Tensor& tensor) const {
  const auto options = torch::TensorOptions().dtype(tensor.scalar_type());
  return staged(tensor) ? options.pinned_memory(true) : options.device(tensor.device());
}

Prepared Prepare::in_place(CallKind kind, const Tensor& tensor, bool writes) const {
  Prepared prepared = of_kind(kind);
  CallDescription& description = prepared.call.description;
  description.type = data_type_of(tensor.scalar_type());
  description.count = units_of(tensor);
  const bool dense = is_memory_format(tensor);
  description.shape = dense ? shape_in_memory(tensor) : logical_shape(tensor);
  if (dense && !staged(tensor)) [[likely]] {
    if (writes) note_write(tensor);
    prepared.call.output = flat_alias(tensor);
    return prepared;
  }
  const torch::NoGradGuard no_grad;
  const auto options = scratch_options(tensor);
  Tensor copy = dense ? at::empty_strided(tensor.sizes(), tensor.strides(), options)
                      : at::empty(tensor.sizes(), options);
  fill(copy, tensor, prepared);
  prepared.call.output = flat_alias(copy);
  if (writes) prepared.copies.emplace_back(tensor, std::move(copy));
  return prepared;
}

// A copy from a device is left to the caller, so that it can overlap with computation.
void Prepare::fill(const Tensor& scratch, const Tensor& tensor, Prepared& prepared) const {
  if (staged(tensor)) {
    prepared.loads.emplace_back(scratch, tensor);
  } else {
    Tensor(scratch).copy_(tensor);
  }
}

torch::Tensor Prepare::read(const Tensor& tensor, Prepared& prepared) const {
  if (tensor.is_contiguous() && !staged(tensor)) [[likely]]
    return flat_alias(tensor);
  const torch::NoGradGuard no_grad;
  const Tensor memory = at::empty(tensor.sizes(), scratch_options(tensor));
  fill(memory, tensor, prepared);
  return flat_alias(memory);
}

torch::Tensor Prepare::read_list(const Tensors& list, Prepared& prepared) const {
  if (are_consecutive(list) && !staged(list[0])) return flat_alias(list);
  const torch::NoGradGuard no_grad;
  Tensors flat;
  for (const auto& tensor : list) flat.push_back(tensor.detach().reshape({-1}));
  return read(at::cat(flat), prepared);
}

// In a broadcast the root's tensor is only read, and the other ranks' tensors are only written.
void Prepare::only_root_gives(Prepared& prepared, int root) const {
  root == options_.rank ? prepared.copies.clear() : prepared.loads.clear();
}

torch::Tensor Prepare::write(const Tensor& tensor, Prepared& prepared) const {
  if (tensor.is_contiguous() && !staged(tensor)) [[likely]] {
    note_write(tensor);
    return flat_alias(tensor);
  }
  const torch::NoGradGuard no_grad;
  const Tensor memory = at::empty(tensor.sizes(), scratch_options(tensor));
  prepared.copies.emplace_back(tensor, memory);
  return flat_alias(memory);
}

torch::Tensor Prepare::write_list(const Tensors& list, Prepared& prepared, bool writes) const {
  if (are_consecutive(list) && !staged(list[0])) {
    if (writes) {
      for (const auto& tensor : list) note_write(tensor);
    }
    return flat_alias(list);
  }
  const torch::NoGradGuard no_grad;
  std::int64_t count = 0;
  for (const auto& tensor : list) count += tensor.numel();
  const Tensor memory = at::empty({count}, scratch_options(list[0]));
  std::int64_t offset = 0;
  for (const auto& tensor : list) {
    prepared.copies.emplace_back(tensor,
                                 memory.narrow(0, offset, tensor.numel()).view(tensor.sizes()));
    offset += tensor.numel();
  }
  return flat_alias(memory);
}

// --- Collectives ---------------------------------------------------------------------------------

Prepared Prepare::barrier() const { return of_kind(CallKind::kBarrier); }

Prepared Prepare::all_reduce(const Tensor& tensor, ReduceOp op, Algorithm algorithm) const {
  check_written("all_reduce", "tensor", tensor);
  if (reduces_parts(tensor, op)) [[unlikely]]
    return all_reduce(parts_of(tensor), op, algorithm);
  check_reducible("all_reduce", tensor.scalar_type(), op);
  Prepared prepared = in_place(CallKind::kAllReduce, tensor, /*writes=*/true);
  prepared.call.description.op = op;
  prepared.call.algorithm = algorithm;
  return prepared;
}

Prepared Prepare::broadcast(const Tensor& tensor, int root) const {
  check_root("broadcast", root);
  root == options_.rank ? check_tensor("broadcast", "tensor", tensor)
                        : check_written("broadcast", "tensor", tensor);
  Prepared prepared = in_place(CallKind::kBroadcast, tensor, root != options_.rank);
  prepared.call.description.root = root;
  only_root_gives(prepared, root);
  return prepared;
}

Prepared Prepare::reduce(const Tensor& tensor, int root, ReduceOp op) const {
  check_root("reduce", root);
  root == options_.rank ? check_written("reduce", "tensor", tensor)
                        : check_tensor("reduce", "tensor", tensor);
  if (reduces_parts(tensor, op)) [[unlikely]]
    return reduce(parts_of(tensor), root, op);
  check_reducible("reduce", tensor.scalar_type(), op);
  Prepared prepared = in_place(CallKind::kReduce, tensor, root == options_.rank);
  prepared.call.description.op = op;
  prepared.call.description.root = root;
  prepared.call.input = prepared.call.output;
  if (root != options_.rank) prepared.call.output = Tensor();
  return prepared;
}

Prepared Prepare::all_gather(const Tensors& outputs, const Tensor& input) const {
  check_tensor("all_gather", "input", input);
  check_tensor_list("all_gather", "outputs", outputs, input, "input");
  for (int i = 0; i < options_.size; ++i) {
    check_written("all_gather", "outputs", outputs[static_cast<std::size_t>(i)], i);
  }
  check_apart_but_own("all_gather", {"outputs", outputs}, {"input", input});
  Prepared prepared = of_kind(CallKind::kAllGather);
  describe_piece(prepared.call.description, input);
  prepared.call.input = read(input, prepared);
  prepared.call.output = write_list(outputs, prepared);
  return prepared;
}

Prepared Prepare::all_gather_into_tensor(const Tensor& output, const Tensor& input) const {
  constexpr const char* kCall = "all_gather_into_tensor";
  check_tensor(kCall, "input", input);
  check_written(kCall, "output", output);
  check_types(kCall, output, input);
  if (output.numel() != input.numel() * options_.size) {
    fail(kCall, "output has ", output.numel(), " elements, expected ",
         input.numel() * options_.size, ", ", options_.size, " ranks times those of the input");
  }
  check_apart_but_own(kCall, {"output", output}, {"input", input});
  Prepared prepared = of_kind(CallKind::kAllGather);
  describe_piece(prepared.call.description, input);
  prepared.call.input = read(input, prepared);
  prepared.call.output = write(output, prepared);
  return prepared;
}

Prepared Prepare::gather(const Tensor& input, const Tensors& outputs, int root) const {
  check_root("gather", root);
  check_tensor("gather", "input", input);
  Prepared prepared = of_kind(CallKind::kGather);
  describe_piece(prepared.call.description, input);
  prepared.call.description.root = root;
  prepared.call.input = read(input, prepared);
  if (root == options_.rank) {
    check_tensor_list("gather", "outputs", outputs, input, "input");
    for (int i = 0; i < options_.size; ++i) {
      check_written("gather", "outputs", outputs[static_cast<std::size_t>(i)], i);
    }
    check_apart_but_own("gather", {"outputs", outputs}, {"input", input});
    prepared.call.output = write_list(outputs, prepared);
  } else if (!outputs.empty()) {
    fail("gather", "outputs has ", outputs.size(),
         " tensors, expected none on a rank that is not the root");
  }
  return prepared;
}

Prepared Prepare::scatter(const Tensor& output, const Tensors& inputs, int root) const {
  check_root("scatter", root);
  check_written("scatter", "output", output);
  Prepared prepared = of_kind(CallKind::kScatter);
  describe_piece(prepared.call.description, output);
  prepared.call.description.root = root;
  if (root == options_.rank) {
    check_tensor_list("scatter", "inputs", inputs, output, "output");
    check_apart_but_own("scatter", {"output", output}, {"inputs", inputs});
    prepared.call.input = read_list(inputs, prepared);
  } else if (!inputs.empty()) {
    fail("scatter", "inputs has ", inputs.size(),
         " tensors, expected none on a rank that is not the root");
  }
  prepared.call.output = write(output, prepared);
  return prepared;
}

Prepared Prepare::reduce_scatter(const Tensor& output, const Tensors& inputs, ReduceOp op) const {
  check_written("reduce_scatter", "output", output);
  check_tensor_list("reduce_scatter", "inputs", inputs, output, "output");
  check_apart_but_own("reduce_scatter", {"output", output}, {"inputs", inputs});
  if (reduces_parts(output, op)) [[unlikely]] {
    Tensors parts;
    for (const auto& input : inputs) parts.push_back(parts_of(input));
    return reduce_scatter(parts_of(output), parts, op);
  }
  check_reducible("reduce_scatter", output.scalar_type(), op);
  Prepared prepared = of_kind(CallKind::kReduceScatter);
  describe_piece(prepared.call.description, output);
  prepared.call.description.op = op;
  prepared.call.input = read_list(inputs, prepared);
  prepared.call.output = write(output, prepared);
  return prepared;
}

Prepared Prepare::reduce_scatter_tensor(const Tensor& output, const Tensor& input,
                                        ReduceOp op) const {
  constexpr const char* kCall = "reduce_scatter_tensor";
  check_tensor(kCall, "input", input);
  check_written(kCall, "output", output);
  check_types(kCall, output, input);
  check_apart_but_own(kCall, {"output", output}, {"input", input});
  if (reduces_parts(output, op)) [[unlikely]]
    return reduce_scatter_tensor(parts_of(output), parts_of(input), op);
  check_reducible(kCall, output.scalar_type(), op);
  if (input.numel() != output.numel() * options_.size) {
    fail(kCall, "input has ", input.numel(), " elements, expected ", output.numel() * options_.size,
         ", ", options_.size, " ranks times those of the output");
  }
  Prepared prepared = of_kind(CallKind::kReduceScatter);
  describe_piece(prepared.call.description, output);
  prepared.call.description.op = op;
  prepared.call.input = read(input, prepared);
  prepared.call.output = write(output, prepared);
  return prepared;
}

// Always passes splits: a rank cannot know whether the other ranks' pieces have equal sizes.
Prepared Prepare::all_to_all(const Tensors& outputs, const Tensors& inputs) const {
  // The inputs come first, because the others are compared with the first of them.
  const std::pair<const char*, const Tensors&> sides[] = {{"inputs", inputs}, {"outputs", outputs}};
  for (const auto& [name, list] : sides) {
    if (static_cast<int>(list.size()) != options_.size) {
      fail("all_to_all", name, " has ", list.size(), " tensors, expected ", options_.size,
           ", one for each rank");
    }
    for (int i = 0; i < options_.size; ++i) {
      const Tensor& tensor = list[static_cast<std::size_t>(i)];
      &list == &outputs ? check_written("all_to_all", name, tensor, i)
                        : check_tensor("all_to_all", name, tensor, i);
      if (tensor.scalar_type() != inputs[0].scalar_type() ||
          tensor.device() != inputs[0].device()) {
        fail("all_to_all", name, '[', i, "] is ", type_name(tensor.scalar_type()), " on ",
             tensor.device(), ", expected ", type_name(inputs[0].scalar_type()), " on ",
             inputs[0].device(), " like inputs[0]");
      }
    }
  }
  check_apart_but_own("all_to_all", {"outputs", outputs}, {"inputs", inputs});
  Prepared prepared = of_kind(CallKind::kAllToAll);
  prepared.call.description.type = data_type_of(inputs[0].scalar_type());
  for (const auto& input : inputs) {
    prepared.call.input_splits.push_back(static_cast<std::int64_t>(units_of(input)));
  }
  for (const auto& output : outputs) {
    prepared.call.output_splits.push_back(static_cast<std::int64_t>(units_of(output)));
  }
  describe_splits("all_to_all", inputs[0], prepared.call);
  prepared.call.input = read_list(inputs, prepared);
  prepared.call.output = write_list(outputs, prepared);
  return prepared;
}

Prepared Prepare::all_to_all_single(const Tensor& output, const Tensor& input,
                                    const Splits& output_splits, const Splits& input_splits) const {
  constexpr const char* kCall = "all_to_all_single";
  check_tensor(kCall, "input", input);
  check_written(kCall, "output", output);
  check_types(kCall, output, input);
  check_apart(kCall, {"output", output}, {"input", input});
  Prepared prepared = of_kind(CallKind::kAllToAll);
  Collective& call = prepared.call;
  call.description.type = data_type_of(input.scalar_type());
  const auto sent = check_splits(kCall, "input", input, input_splits, call.input_splits);
  const auto received = check_splits(kCall, "output", output, output_splits, call.output_splits);
  if (input_splits.empty() && output_splits.empty()) {
    if (sent != received) {
      fail(kCall, "output has ", output.numel(), " elements, expected ", input.numel(),
           " like the input");
    }
    call.description.count = static_cast<std::uint64_t>(call.input_splits[0]);
    call.input_splits.clear();
    call.output_splits.clear();
  } else {
    describe_splits(kCall, input, call);
  }
  call.input = read(input, prepared);
  call.output = write(output, prepared);
  return prepared;
}

// --- Several tensors -----------------------------------------------------------------------------

std::vector<Prepared> Prepare::coalesced(CallKind kind, const char* call, const Tensors& tensors,
                                         bool writes) const {
  std::vector<std::pair<torch::ScalarType, Tensors>> types;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    check_written(call, "tensors", tensors[i], static_cast<int>(i));
    const auto type = tensors[i].scalar_type();
    auto place =
        std::find_if(types.begin(), types.end(), [&](const auto& t) { return t.first == type; });
    if (place == types.end()) place = types.insert(types.end(), {type, {}});
    place->second.push_back(tensors[i]);
  }
  check_apart(call, {"tensors", tensors}, {"", Tensors()});
  std::vector<Prepared> calls;
  for (const auto& [type, list] : types) {
    Prepared prepared = of_kind(kind);
    prepared.call.output = write_list(list, prepared, writes);
    const torch::NoGradGuard no_grad;
    for (const auto& [tensor, piece] : prepared.copies) fill(piece, tensor, prepared);
    prepared.call.description.type = data_type_of(type);
    prepared.call.description.count = static_cast<std::uint64_t>(prepared.call.output.numel());
    prepared.call.description.shape = logical_shape(prepared.call.output);
    calls.push_back(std::move(prepared));
  }
  return calls;
}

std::vector<Prepared> Prepare::all_reduce_coalesced(const Tensors& tensors, ReduceOp op) const {
  constexpr const char* kCall = "all_reduce_coalesced";
  Tensors reducible = tensors;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    check_written(kCall, "tensors", tensors[i], static_cast<int>(i));
    if (reduces_parts(tensors[i], op)) reducible[i] = parts_of(tensors[i]);
    check_reducible(kCall, reducible[i].scalar_type(), op);
  }
  auto calls = coalesced(CallKind::kAllReduce, kCall, reducible, /*writes=*/true);
  for (auto& prepared : calls) prepared.call.description.op = op;
  return calls;
}

std::vector<Prepared> Prepare::broadcast_coalesced(const Tensors& tensors, int root) const {
  check_root("broadcast_coalesced", root);
  auto calls =
      coalesced(CallKind::kBroadcast, "broadcast_coalesced", tensors, root != options_.rank);
  for (auto& prepared : calls) {
    prepared.call.description.root = root;
    only_root_gives(prepared, root);
  }
  return calls;
}

// --- Point-to-point ------------------------------------------------------------------------------

Prepared Prepare::send(const Tensor& tensor, int destination, int tag) const {
  check_send(tensor, destination, tag);
  Prepared prepared = of_kind(CallKind::kSend);
  describe_piece(prepared.call.description, tensor);
  prepared.call.description.root = destination;
  prepared.call.input = read(tensor, prepared);
  return prepared;
}

Prepared Prepare::recv(const Tensor& tensor, std::optional<int> source, int tag) const {
  check_recv(tensor, source, tag);
  Prepared prepared = of_kind(CallKind::kRecv);
  describe_piece(prepared.call.description, tensor);
  prepared.call.description.root = source.value_or(-1);
  prepared.call.output = write(tensor, prepared);
  return prepared;
}

}  // namespace lockstep::comm
