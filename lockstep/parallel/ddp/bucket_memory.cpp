#include <lockstep/parallel/ddp/bucket_memory.h>

#include <unistd.h>

#include <algorithm>

#include <lockstep/core/error.h>
#include <lockstep/core/log.h>
#include <lockstep/optim/distinct.h>

namespace lockstep::detail {
namespace {

// Gradients begin at cache lines, so that SIMD loops over them are aligned and share no line.
constexpr std::int64_t kAlignmentBytes = 64;

std::int64_t rounded_up(std::int64_t value, std::int64_t unit) {
  return (value + unit - 1) / unit * unit;
}

std::int64_t padded_elements(const torch::Tensor& tensor) {
  return rounded_up(tensor.numel(),
                    kAlignmentBytes / static_cast<std::int64_t>(tensor.element_size()));
}

// The parameter's own strides, so that autograd and the optimizer traverse both in the same order.
std::vector<std::int64_t> gradient_strides(const torch::Tensor& parameter) {
  if (parameter.is_non_overlapping_and_dense()) return parameter.strides().vec();
  return torch::empty_like(parameter, torch::MemoryFormat::Contiguous).strides().vec();
}

// Each rank's slice is one piece of the tensor: slices of whole pages lie one after the other in
// the segment that the ranks map.
torch::Tensor allocate_shared(ProcessGroup& group, std::int64_t elements, torch::ScalarType dtype) {
  const torch::Tensor own = group.allocate({elements / group.size()}, dtype);
  const std::vector<torch::Tensor> slices = group.peer_views(own);
  for (std::size_t rank = 1; rank < slices.size(); ++rank) {
    const auto* before = static_cast<const std::byte*>(slices[rank - 1].const_data_ptr());
    LOCKSTEP_CHECK(slices[rank].const_data_ptr() == before + own.nbytes(),
                   "the slices of shared memory do not lie side by side");
  }
  LOCKSTEP_CHECK(!slices.empty(), "this group shares no memory");
  return torch::from_blob(slices[0].data_ptr(), {elements}, [own](void*) {}, own.options());
}

std::int64_t total_unit(const GradBucket& bucket, ProcessGroup& group, ParameterMemory memory) {
  const auto element = static_cast<std::int64_t>(bucket.parameters.front().element_size());
  const std::int64_t bytes =
      memory == ParameterMemory::kShared ? sysconf(_SC_PAGESIZE) : kAlignmentBytes;
  return bytes / element * group.size();
}

// A tensor at this place in `flat`, detached, because zero_grad() refuses views known to autograd.
torch::Tensor view_of(const torch::Tensor& flat, at::IntArrayRef sizes, at::IntArrayRef strides,
                      std::int64_t offset) {
  return flat.as_strided(sizes, strides, flat.storage_offset() + offset).detach();
}

}  // namespace

GradBucket make_bucket(const std::vector<NamedParameter>& members, ProcessGroup& group,
                       ParameterMemory memory) {
  GradBucket bucket;
  std::int64_t elements = 0;
  for (const auto& member : members) {
    bucket.parameters.push_back(member.tensor);
    elements += padded_elements(member.tensor);
  }
  elements = rounded_up(std::max<std::int64_t>(elements, 1), total_unit(bucket, group, memory));
  bucket.buffer = group.allocate({elements}, members.front().tensor.scalar_type());
  std::int64_t offset = 0;
  for (const auto& [name, parameter] : members) {
    if (parameter.device() != bucket.buffer.device()) {
      throw ConfigError(
          lockstep::str("parameter '", name, "' is on ", parameter.device(),
                        ", the process group communicates tensors on ", bucket.buffer.device(),
                        "; set ProcessGroupOptions::device or move the module first"));
    }
    bucket.gradients.push_back(
        view_of(bucket.buffer, parameter.sizes(), gradient_strides(parameter), offset));
    offset += padded_elements(parameter);
  }
  return bucket;
}

void move_parameters(GradBucket& bucket, ProcessGroup& group, ParameterMemory memory) {
  const torch::NoGradGuard no_grad;
  const bool shared = memory == ParameterMemory::kShared;
  const auto dtype = bucket.buffer.scalar_type();
  const torch::Tensor flat = shared ? allocate_shared(group, bucket.buffer.numel(), dtype)
                                    : group.allocate({bucket.buffer.numel()}, dtype);
  std::vector<torch::Tensor> views;
  for (const torch::Tensor& gradient : bucket.gradients) {
    views.push_back(view_of(flat, gradient.sizes(), gradient.strides(),
                            gradient.storage_offset() - bucket.buffer.storage_offset()));
  }
  if (!shared || group.rank() == 0) {
    for (std::size_t i = 0; i < views.size(); ++i) views[i].copy_(bucket.parameters[i]);
  }
  // Otherwise a rank could overwrite parameters that rank 0 still reads, or read them too early.
  if (shared) group.barrier();
  for (std::size_t i = 0; i < views.size(); ++i) bucket.parameters[i].set_data(views[i]);
  bucket.flat_parameters = flat;
}

void check_parameter_memory(ProcessGroup& group, ParameterMemory memory) {
  if (memory != ParameterMemory::kShared) return;
  const torch::Tensor probe = group.allocate({1}, torch::kFloat32);
  if (!group.peer_views(probe).empty()) return;
  throw ConfigError(
      lockstep::str("DistributedDataParallel: parameter_memory kShared needs ranks that share "
                    "memory, backend ",
                    group.backend(), " does not; use kFlat"));
}

void leave_shared_memory(GradBucket& bucket) noexcept {
  const torch::NoGradGuard no_grad;
  for (torch::Tensor& parameter : bucket.parameters) {
    if (!parameter.is_alias_of(bucket.flat_parameters)) continue;  // its owner has moved it
    try {
      parameter.set_data(parameter.clone());
    } catch (const std::exception& error) {
      log_warning("a parameter stays in shared memory: ", first_line(error));
    }
  }
}

void check_movable(const std::vector<NamedParameter>& parameters, ParameterMemory memory) {
  if (memory == ParameterMemory::kAsIs) return;
  NamedTensors named;
  for (const auto& [name, tensor] : parameters) {
    if (!tensor.is_non_overlapping_and_dense()) {
      throw ConfigError(lockstep::str("DistributedDataParallel: parameter '", name,
                                      "' with strides ", tensor.strides(),
                                      " has gaps and can't be moved; make it contiguous or use "
                                      "parameter_memory kAsIs"));
    }
    named.emplace_back(name, tensor);
  }
  if (const auto pair = optim::first_overlap(named)) {
    throw ConfigError(lockstep::str("DistributedDataParallel: parameters '", pair->first, "' and '",
                                    pair->second,
                                    "' share memory, which moving them would end; use "
                                    "parameter_memory kAsIs"));
  }
}

}  // namespace lockstep::detail
