#include <lockstep/parallel/zero_redundancy_optimizer.h>

#include <algorithm>
#include <unordered_set>
#include <utility>

#include <lockstep/core/error.h>
#include <lockstep/optim/clip_grad.h>
#include <lockstep/parallel/ddp/bucket_slices.h>
#include <lockstep/parallel/ddp/reducer.h>
#include <lockstep/parallel/zero/sharded_step.h>

namespace lockstep {
namespace {

std::string name_of(const torch::Tensor& parameter, const torch::nn::Module& module) {
  for (const auto& item : module.named_parameters()) {
    if (item.value().is_same(parameter)) return item.key();
  }
  return "?";  // not in this module
}

std::vector<ParameterGroup> group_of_all(const torch::nn::Module& module,
                                         const OptimizerOptions& options) {
  ParameterGroup all{.parameters = {}, .options = options};
  for (const auto& item : module.named_parameters()) {
    all.parameters.emplace_back(item.key(), item.value());
  }
  return {std::move(all)};
}

std::vector<ParameterGroup> with_all_parameters(std::vector<ParameterGroup> given,
                                                const std::vector<GradBucket>& buckets,
                                                const torch::nn::Module& module) {
  std::vector<ParameterGroup> groups = detail::checked_groups(std::move(given));
  std::unordered_set<const torch::TensorImpl*> grouped;
  for (const ParameterGroup& group : groups) {
    for (const auto& [name, tensor] : group.parameters)
      grouped.insert(tensor.unsafeGetTensorImpl());
  }
  for (const GradBucket& bucket : buckets) {
    for (const torch::Tensor& parameter : bucket.parameters) {
      if (grouped.contains(parameter.unsafeGetTensorImpl())) continue;
      throw ConfigError(lockstep::str("ZeroRedundancyOptimizer: parameter '",
                                      name_of(parameter, module),
                                      "' is in no group; add it to one, or freeze it before "
                                      "DistributedDataParallel is made"));
    }
  }
  return groups;
}

const std::vector<GradBucket>& flat_buckets(const DdpCore& core) {
  if (core.options().parameter_memory == ParameterMemory::kAsIs) {
    throw ConfigError(
        "ZeroRedundancyOptimizer: the parameters are in memory of their own; set "
        "DdpOptions::parameter_memory to kFlat, or on one host to kShared");
  }
  const auto& buckets = core.reducer()->grad_buckets();
  for (const GradBucket& bucket : buckets) {
    if (bucket.buffer.defined()) continue;
    throw ConfigError(
        "ZeroRedundancyOptimizer: a parameter has sparse gradients, which cannot be sharded; set "
        "sparse = false in the embedding or use DistributedDataParallel with an optimizer of its "
        "own");
  }
  return buckets;
}

// In float64, so that the sum over the ranks does not overflow.
torch::Tensor sum_of_squares(const Tensors& gradients, torch::Device device) {
  auto sum = torch::zeros({}, torch::TensorOptions().dtype(torch::kFloat64).device(device));
  // A device's norm kernel takes all tensors at once and accumulates in pieces already.
  if (!device.is_cpu() && !gradients.empty()) {
    return sum.add_(get_total_norm(gradients).to(torch::kFloat64).square_());
  }
  // Sum in pieces: millions of squares need more precision than float32, but not all as float64 in
  // memory.
  constexpr std::int64_t kPiece = std::int64_t{1} << 16;
  for (const torch::Tensor& gradient : gradients) {
    const torch::Tensor numbers = gradient.is_complex() ? at::view_as_real(gradient) : gradient;
    for (const torch::Tensor& piece : numbers.split(kPiece)) {
      sum += torch::linalg_vector_norm(piece, 2, {}, false, torch::kFloat64).square();
    }
  }
  return sum;
}

// A type that can hold the total norm, which is real: with one bucket's float16, the others' parts
// might overflow.
torch::ScalarType common_type(const std::vector<GradBucket>& buckets) {
  torch::ScalarType type = buckets.front().buffer.scalar_type();
  for (const GradBucket& bucket : buckets) {
    type = c10::promoteTypes(type, bucket.buffer.scalar_type());
  }
  return c10::toRealValueType(type);
}

}  // namespace

ZeroRedundancyOptimizer::ZeroRedundancyOptimizer(DdpCore& core, const torch::nn::Module& module,
                                                 const OptimizerOptions& options)
    : ZeroRedundancyOptimizer(core, module, group_of_all(module, options)) {}

ZeroRedundancyOptimizer::ZeroRedundancyOptimizer(DdpCore& core, const torch::nn::Module& module,
                                                 std::vector<ParameterGroup> groups)
    : group_(core.group()),
      buckets_(&flat_buckets(core)),
      sharded_(std::make_shared<detail::ShardedStep>(
          with_all_parameters(std::move(groups), *buckets_, module), group_,
          core.options().parameter_memory)) {
  // Buckets change for the last time at the end of the first backward that communicated.
  core.register_comm_hook(
      [sharded = sharded_, times = &core.reducer()->times()](GradBucket& bucket) {
        return sharded->reduce(bucket, /*layout_is_final=*/times->steps() > 0);
      });
}

void ZeroRedundancyOptimizer::step() { sharded_->step(*buckets_); }

void ZeroRedundancyOptimizer::step_unless(const torch::Tensor& found_inf) {
  sharded_->step_unless(*buckets_, found_inf);
}

void ZeroRedundancyOptimizer::zero_grad() {
  const torch::NoGradGuard no_grad;
  for (const GradBucket& bucket : *buckets_) {
    bucket.buffer.zero_();
    // With zeros, momentum and weight decay would still move a parameter that was frozen.
    for (const torch::Tensor& parameter : bucket.parameters) {
      if (!parameter.requires_grad()) parameter.mutable_grad().reset();
    }
  }
  sharded_->forget_gradients();
}

Tensors ZeroRedundancyOptimizer::gradients() { return sharded_->mean_gradients(*buckets_); }

Tensors ZeroRedundancyOptimizer::gradients_of(const Tensors& parameters) {
  const torch::NoGradGuard no_grad;
  sharded_->mean_gradients(*buckets_);
  std::unordered_set<const torch::TensorImpl*> wanted;
  for (const torch::Tensor& parameter : parameters) wanted.insert(parameter.unsafeGetTensorImpl());
  Tensors shares;
  for (const GradBucket& bucket : *buckets_) {
    const parallel::ElementRange slice = parallel::slice_of(bucket, group_.rank(), group_.size());
    for (std::size_t i = 0; i < bucket.parameters.size(); ++i) {
      const torch::Tensor& parameter = bucket.parameters[i];
      const bool is_wanted = wanted.contains(parameter.unsafeGetTensorImpl());
      if (!is_wanted || !parameter.grad().defined()) continue;
      const std::int64_t offset = parallel::offset_of(bucket, i);
      const parallel::ElementRange share = {
          std::max(offset, slice.begin), std::min(offset + bucket.gradients[i].numel(), slice.end)};
      if (share.size() > 0) shares.push_back(parallel::narrowed(bucket.buffer, share));
    }
  }
  return shares;
}

torch::Tensor ZeroRedundancyOptimizer::clip_grad_norm(double max_norm) {
  const torch::NoGradGuard no_grad;
  const Tensors shares = gradients();
  const torch::Tensor sum = sum_of_squares(shares, buckets_->front().buffer.device());
  sharded_->all_reduce(sum, ReduceOp::kSum);
  const torch::Tensor norm = sum.sqrt().to(common_type(*buckets_));
  clip_grads_with_norm_(shares, max_norm, norm);
  return norm;
}

void ZeroRedundancyOptimizer::reduce_found_inf(torch::Tensor& found_inf) {
  sharded_->all_reduce(found_inf, ReduceOp::kMax);
}

std::size_t ZeroRedundancyOptimizer::groups() const { return sharded_->rules().size(); }
double ZeroRedundancyOptimizer::lr(std::size_t group) const { return sharded_->rules().lr(group); }
void ZeroRedundancyOptimizer::set_lr(std::size_t group, double lr) {
  sharded_->rules().set_lr(group, lr);
}
void ZeroRedundancyOptimizer::set_lr(double lr) { sharded_->rules().set_lr_of_all(lr); }
void ZeroRedundancyOptimizer::scale_lr(double factor) { sharded_->rules().scale_lr(factor); }
double ZeroRedundancyOptimizer::momentum(std::size_t group) const {
  return sharded_->rules().momentum(group);
}
void ZeroRedundancyOptimizer::set_momentum(double momentum) {
  sharded_->rules().set_momentum_of_all(momentum);
}

NamedTensors ZeroRedundancyOptimizer::state_dict(int root) {
  return sharded_->gather_state(*buckets_, root);
}

void ZeroRedundancyOptimizer::load_state_dict(const NamedTensors& state, int root) {
  sharded_->scatter_state(*buckets_, state, root);
}

double ZeroRedundancyOptimizer::communication_seconds() const {
  return sharded_->communication_seconds();
}

std::int64_t ZeroRedundancyOptimizer::state_bytes() const { return sharded_->state_bytes(); }

}  // namespace lockstep
