// Checks for errors in a call that one rank can detect alone.
#include <lockstep/comm/group/prepare.h>

#include <ATen/MemoryOverlap.h>

#include <lockstep/comm/call/tensor_type.h>
#include <lockstep/comm/group/prepare_fail.h>
#include <lockstep/comm/kernels/reduce.h>

namespace lockstep::comm {
namespace {

// "tensor", or "outputs[2]" for an element of a list.
std::string named(const char* name, int index) {
  return index < 0 ? name : lockstep::str(name, '[', index, ']');
}

}  // namespace

void Prepare::check_tensor(const char* call, const char* name, const Tensor& tensor,
                           int index) const {
  if (!tensor.defined()) [[unlikely]] {
    fail(call, named(name, index), " is undefined; give a tensor");
  }
  if (tensor.layout() != torch::kStrided || tensor.is_quantized() || tensor.is_meta())
      [[unlikely]] {
    fail(call, named(name, index),
         " is sparse, quantized or without memory; expected a dense tensor");
  }
  if (tensor.is_conj() || tensor.is_neg()) [[unlikely]] {
    fail(call, named(name, index),
         " is a lazy conjugate or negative; call resolve_conj() or resolve_neg()");
  }
  using Memory = PrepareOptions::Memory;
  if (options_.memory == Memory::kHost && !tensor.is_cpu() && !tensor.is_cuda() &&
      tensor.device().type() != options_.device.type()) [[unlikely]] {
    fail(call, named(name, index), " is on ", tensor.device(), ", expected cpu or cuda");
  }
  if (staged(tensor) && is_captured(tensor.device())) [[unlikely]] {
    fail(call, named(name, index), " on ", tensor.device(),
         " goes through the host, which a captured stream cannot wait for; use NCCL, with a GPU "
         "for each rank, or call it outside the capture");
  }
  if (options_.memory == Memory::kDevice && tensor.device() != options_.device) [[unlikely]] {
    fail(call, named(name, index), " is on ", tensor.device(), ", expected ", options_.device,
         ", the device of the group");
  }
}

void Prepare::check_written(const char* call, const char* name, const Tensor& tensor,
                            int index) const {
  check_tensor(call, name, tensor, index);
  if (tensor.is_contiguous()) [[likely]]
    return;
  if (at::has_internal_overlap(tensor) == at::MemOverlap::Yes) {
    fail(call, named(name, index), " has several elements at one address (shape ", tensor.sizes(),
         ", strides ", tensor.strides(), "); clone() it first");
  }
}

void Prepare::check_root(const char* call, int root) const {
  if (root < 0 || root >= options_.size) [[unlikely]] {
    fail(call, "root must be from 0 to ", options_.size - 1, ", got ", root);
  }
}

void Prepare::check_reducible(const char* call, torch::ScalarType type, ReduceOp op) const {
  const detail::DataType ours = data_type_of(type);
  if (ours == detail::DataType::kFloat32 && op.kind <= ReduceOp::Kind::kMax) [[likely]]
    return;
  if (ours == detail::DataType::kByte) {
    fail(call, "the ", reduce_op_name(op.kind), " of ", type_name(type), " is not defined");
  }
  const std::string why_not = why_not_reducible(ours, op);
  if (!why_not.empty()) fail(call, why_not);
}

void Prepare::check_tensor_list(const char* call, const char* name, const Tensors& list,
                                const Tensor& like, const char* like_name) const {
  if (static_cast<int>(list.size()) != options_.size) {
    fail(call, name, " has ", list.size(), " tensors, expected ", options_.size,
         ", one for each rank");
  }
  for (int i = 0; i < options_.size; ++i) {
    const Tensor& tensor = list[static_cast<std::size_t>(i)];
    check_tensor(call, name, tensor, i);
    if (tensor.sizes() != like.sizes()) {
      fail(call, name, '[', i, "] has shape ", tensor.sizes(), ", expected ", like.sizes(),
           " like the ", like_name);
    }
    if (tensor.scalar_type() != like.scalar_type() || tensor.device() != like.device()) {
      fail(call, name, '[', i, "] is ", type_name(tensor.scalar_type()), " on ", tensor.device(),
           ", expected ", type_name(like.scalar_type()), " on ", like.device(), " like the ",
           like_name);
    }
  }
}

void Prepare::check_types(const char* call, const Tensor& output, const Tensor& input) const {
  if (output.scalar_type() != input.scalar_type() || output.device() != input.device())
      [[unlikely]] {
    fail(call, "output is ", type_name(output.scalar_type()), " on ", output.device(),
         ", expected ", type_name(input.scalar_type()), " on ", input.device(), " like the input");
  }
}

void Prepare::check_peer(const char* call, int peer, int tag) const {
  if (peer < 0 || peer >= options_.size) {
    fail(call, "peer must be from 0 to ", options_.size - 1, ", got ", peer);
  }
  if (peer == options_.rank) fail(call, "peer is rank ", peer, " of the group, this rank itself");
  if (tag < 0)
    fail(call, "tag must be at least 0, got ", tag, "; negative ones are the library's own");
}

// Only the two ranks of a pair know how much they exchange; all ranks see that there are splits.
void Prepare::describe_splits(const char* call, Collective& collective) const {
  const auto own = static_cast<std::size_t>(options_.rank);
  if (collective.input_splits[own] != collective.output_splits[own]) {
    fail(call, "gives itself ", collective.input_splits[own], " elements and expects ",
         collective.output_splits[own]);
  }
  collective.description.root = CallDescription::kWithSplits;
}

// Total number of elements of all pieces. Without splits all pieces have the same size.
std::int64_t Prepare::check_splits(const char* call, const char* name, const Tensor& tensor,
                                   const Splits& splits, Splits& elements) const {
  if (tensor.dim() == 0) fail(call, name, " has no dimension 0 to cut along");
  const std::int64_t rows = tensor.size(0);
  if (splits.empty() && rows % options_.size != 0) {
    fail(call, name, " has ", rows, " rows, expected a multiple of the ", options_.size,
         " ranks; or give splits");
  }
  if (!splits.empty() && static_cast<int>(splits.size()) != options_.size) {
    fail(call, name, "_splits has ", splits.size(), " numbers, expected ", options_.size,
         ", one for each rank");
  }
  std::int64_t sum = 0;
  for (const std::int64_t split : splits) {
    if (split < 0) fail(call, name, "_splits has ", split, ", expected at least 0");
    sum += split;
  }
  if (!splits.empty() && sum != rows) {
    fail(call, name, "_splits sum to ", sum, ", expected ", rows, ", the rows of ", name);
  }
  const std::int64_t units = tensor.numel() * units_per_element(tensor.scalar_type());
  const std::int64_t units_per_row = rows == 0 ? 0 : units / rows;
  for (int r = 0; r < options_.size; ++r) {
    const std::int64_t own =
        splits.empty() ? rows / options_.size : splits[static_cast<std::size_t>(r)];
    elements.push_back(own * units_per_row);
  }
  return units;
}

}  // namespace lockstep::comm
