#include <lockstep/parallel/zero/sharded_step.h>

#include <algorithm>
#include <utility>

#include <lockstep/core/clock.h>
#include <lockstep/core/error.h>
#include <lockstep/optim/tensor_kind.h>
#include <lockstep/parallel/ddp/phased_work.h>

namespace lockstep::detail {
namespace {

bool all_keep_zeros(const GroupRules& rules) {
  for (std::size_t g = 0; g < rules.size(); ++g) {
    if (!keeps_zeros(rules[g])) return false;
  }
  return true;
}

std::vector<detail::NamedParameter> names_in(const std::vector<ParameterGroup>& groups) {
  std::vector<detail::NamedParameter> names;
  for (const ParameterGroup& group : groups) {
    for (const auto& [name, tensor] : group.parameters) names.push_back({name, tensor});
  }
  return names;
}

std::unordered_map<const torch::TensorImpl*, std::size_t> group_of_parameters(
    const std::vector<ParameterGroup>& groups) {
  std::unordered_map<const torch::TensorImpl*, std::size_t> group_of;
  for (std::size_t g = 0; g < groups.size(); ++g) {
    for (const auto& [name, tensor] : groups[g].parameters) {
      group_of.emplace(tensor.unsafeGetTensorImpl(), g);
    }
  }
  return group_of;
}

// Whether the elements of both tensors, which are alike, lie at the same addresses.
bool same_elements(const torch::Tensor& a, const torch::Tensor& b) {
  return a.numel() == 0 || (a.const_data_ptr() == b.const_data_ptr() && a.strides() == b.strides());
}

// Empty if `parameter` lies at `place` in its bucket with the layout of `view`, the place of its
// gradient, and has no other gradient.
std::string why_not_in_place(const torch::Tensor& parameter, const torch::Tensor& view,
                             const void* place) {
  if (!optim::alike(parameter, view)) {
    return lockstep::str("was ", optim::kind_text(view),
                         " when DistributedDataParallel was constructed and is now ",
                         optim::kind_text(parameter), "; construct it after changing the module");
  }
  if (parameter.numel() > 0 &&
      (parameter.const_data_ptr() != place || parameter.strides() != view.strides())) {
    return "was moved after DistributedDataParallel was constructed, so no step would update it; "
           "load with copy_() or before wrapping";
  }
  const torch::Tensor& gradient = parameter.grad();
  if (!gradient.defined() || gradient.is_same(view)) return "";
  if (gradient.layout() == torch::kStrided && !gradient.is_conj() && !gradient.is_neg() &&
      optim::alike(gradient, view) && same_elements(gradient, view)) {
    return "";
  }
  return "has a different gradient tensor than the one backward() wrote, so the step would ignore "
         "it; modify the tensors that gradients() returns in place";
}

// Throws ConfigError unless `found_inf` is a float of one element on `device`.
void require_found_inf(const torch::Tensor& found_inf, torch::Device device) {
  if (found_inf.scalar_type() == torch::kFloat32 && found_inf.numel() == 1 &&
      found_inf.device() == device) {
    return;
  }
  throw ConfigError(lockstep::str("ZeroRedundancyOptimizer: step_unless: found_inf is ",
                                  optim::kind_text(found_inf), ", expected one Float on ", device,
                                  ", where the parameters are; make the GradScaler for that "
                                  "device"));
}

}  // namespace

ShardedStep::ShardedStep(const std::vector<ParameterGroup>& groups, ProcessGroup group,
                         ParameterMemory memory)
    : names_(names_in(groups)),
      group_of_(group_of_parameters(groups)),
      rules_(groups),
      group_(std::move(group)),
      shared_(memory == ParameterMemory::kShared),
      keeps_zeros_(all_keep_zeros(rules_)),
      reduced_(names_) {
  for (std::size_t g = 1; g < rules_.size(); ++g) {
    if (rules_[g].state_names() == rules_[0].state_names()) continue;
    throw ConfigError(lockstep::str("ZeroRedundancyOptimizer: parameter group ", g, " remembers [",
                                    join(rules_[g].state_names()), "], group 0 [",
                                    join(rules_[0].state_names()),
                                    "]; give all groups a momentum, or amsgrad, or none"));
  }
}

std::vector<parallel::SliceRun> ShardedStep::runs_of(const GradBucket& bucket) const {
  return parallel::runs_with_gradients(bucket, shards_[bucket.index].slice,
                                       state_->steps_of_bucket(bucket.index),
                                       groups_of_buckets_[bucket.index], keeps_zeros_);
}

std::string ShardedStep::name_of(const torch::Tensor& parameter) const {
  const auto named = std::find_if(names_.begin(), names_.end(), [&](const auto& candidate) {
    return candidate.tensor.is_same(parameter);
  });
  LOCKSTEP_CHECK(named != names_.end(), "a parameter of a bucket has no name");
  return named->name;
}

// The step reads and writes the buckets. A rank that moved a parameter would silently train a copy,
// and a gradient elsewhere would be ignored.
void ShardedStep::require_in_place(const std::vector<GradBucket>& buckets) {
  for (const GradBucket& bucket : buckets) {
    for (std::size_t i = 0; i < bucket.parameters.size(); ++i) {
      const torch::Tensor& parameter = bucket.parameters[i];
      const std::string problem =
          why_not_in_place(parameter, bucket.gradients[i], parallel::place_of(bucket, i));
      if (problem.empty()) continue;
      const std::string error = lockstep::str("ZeroRedundancyOptimizer: rank ", group_.rank(),
                                              ": parameter '", name_of(parameter), "' ", problem);
      group_.abort(error);
      throw ConfigError(error);
    }
  }
}

// Adapts slices and state to the current layout of the buckets.
void ShardedStep::follow_layout(const std::vector<GradBucket>& buckets) {
  if (state_ && layout_ == buckets.front().layout) return;
  fetch_counts();
  const NamedTensors before = used_ ? state_->gather(0) : NamedTensors();
  state_.emplace(buckets, names_, rules_[0], group_);
  if (used_) state_->scatter(before, 0);
  layout_ = buckets.front().layout;
  shards_.clear();
  groups_of_buckets_.clear();
  for (std::size_t b = 0; b < buckets.size(); ++b) {
    const GradBucket& bucket = buckets[b];
    const parallel::ElementRange slice = parallel::slice_of(bucket, group_.rank(), group_.size());
    parallel::Shard shard{slice,
                          parallel::narrowed(bucket.flat_parameters, slice),
                          parallel::narrowed(bucket.buffer, slice),
                          state_->of_bucket(b),
                          {}};
    std::vector<std::size_t> groups;
    for (const torch::Tensor& parameter : bucket.parameters) {
      groups.push_back(group_of_.at(parameter.unsafeGetTensorImpl()));
    }
    groups_of_buckets_.push_back(std::move(groups));
    if (shared_) shard.peer_gradients = group_.peer_views(shard.gradients);
    shards_.push_back(std::move(shard));
  }
}

// --- Backward

std::shared_ptr<Work> ShardedStep::reduce(const GradBucket& bucket, bool layout_is_final) {
  if (const std::string name = reduced_.erase(bucket); !name.empty()) {
    throw ConfigError(lockstep::str(
        "ZeroRedundancyOptimizer: rank ", group_.rank(), ": backward() added to the gradient of '",
        name,
        "', which an earlier one had reduced; call zero_grad() after each step(), and of "
        "gradients that belong to one step accumulate them under no_sync(), all but the last"));
  }
  if (shared_) return std::make_shared<PhasedWork>(nullptr, std::vector<PhasedWork::Phase>{});
  reduced_.insert(bucket);
  // If the layout can still change, so can the slices: all-reduce instead.
  if (!layout_is_final) return group_.async_all_reduce(bucket.buffer, ReduceOp::kAverage);
  const parallel::ElementRange slice = parallel::slice_of(bucket, group_.rank(), group_.size());
  return group_.async_reduce_scatter_tensor(parallel::narrowed(bucket.buffer, slice), bucket.buffer,
                                            ReduceOp::kAverage);
}

// A barrier that counts as communication, because ranks wait in it for slower ones.
void ShardedStep::meet() {
  const SecondsScope scope(communication_seconds_);
  group_.barrier();
}

// Only this rank reads its slice of its own buffer; the others read their slices of it until the
// second barrier.
void ShardedStep::reduce_shared(const std::vector<GradBucket>& buckets) {
  meet();
  for (const GradBucket& bucket : buckets)
    parallel::reduce_shard(shards_[bucket.index], runs_of(bucket));
  meet();
  for (const GradBucket& bucket : buckets) {
    reduced_.insert(bucket);
    bucket.buffer.unsafeGetTensorImpl()->bump_version();  // autograd did not see the reduction
  }
}

Tensors ShardedStep::mean_gradients(const std::vector<GradBucket>& buckets) {
  const torch::NoGradGuard no_grad;
  follow_layout(buckets);
  if (shared_ && reduced_.empty()) reduce_shared(buckets);
  Tensors gradients;
  for (const GradBucket& bucket : buckets) {
    for (const parallel::SliceRun& run : runs_of(bucket)) {
      gradients.push_back(parallel::narrowed(shards_[bucket.index].gradients, run.elements));
    }
  }
  return gradients;
}

void ShardedStep::all_reduce(const torch::Tensor& tensor, ReduceOp op) {
  const SecondsScope scope(communication_seconds_);
  group_.all_reduce(tensor, op);
}

// --- The step

void ShardedStep::step(const std::vector<GradBucket>& buckets) {
  const torch::NoGradGuard no_grad;
  require_in_place(buckets);
  follow_layout(buckets);
  fetch_counts();
  if (shared_) {
    step_shared(buckets);
  } else {
    step_flat(buckets, [&](const GradBucket& bucket) {
      parallel::update_shard(rules_, shards_[bucket.index], runs_of(bucket));
    });
  }
  count_step(buckets);
  note_writes(buckets);
  used_ = true;
}

// Goes from the last bucket to the first: the last buckets hold the first layers, which the next
// forward needs first. A bucket is sent while the next one is updated.
void ShardedStep::step_flat(const std::vector<GradBucket>& buckets, const UpdateBucket& update) {
  std::vector<WorkPtr> gathers;
  for (std::size_t b = buckets.size(); b-- > 0;) {
    update(buckets[b]);
    gathers.push_back(
        group_.async_all_gather_into_tensor(buckets[b].flat_parameters, shards_[b].parameters));
  }
  const SecondsScope scope(communication_seconds_);
  for (const auto& gather : gathers) gather->wait();
}

// After the first barrier all gradients are complete and no rank uses the parameters any more;
// after the second all parameters are updated and no rank reads gradients any more.
void ShardedStep::step_shared(const std::vector<GradBucket>& buckets) {
  const bool reduced = !reduced_.empty();
  meet();
  for (const GradBucket& bucket : buckets) {
    const parallel::Shard& shard = shards_[bucket.index];
    const auto runs = runs_of(bucket);
    reduced ? parallel::update_shard(rules_, shard, runs)
            : parallel::reduce_and_update_shard(rules_, shard, runs);
  }
  meet();
}

// Counts a step of all parameters, on every rank.
void ShardedStep::count_step(const std::vector<GradBucket>& buckets) {
  for (const GradBucket& bucket : buckets) {
    auto& steps = state_->steps_of_bucket(bucket.index);
    for (std::size_t i = 0; i < steps.size(); ++i) {
      if (bucket.parameters[i].grad().defined() && rules_[0].counts_steps()) ++steps[i];
    }
  }
}

// Autograd did not see the writes, so it must be told that saved values are invalid.
void ShardedStep::note_writes(const std::vector<GradBucket>& buckets) {
  for (const GradBucket& bucket : buckets) {
    for (const torch::Tensor& parameter : bucket.parameters) {
      if (parameter.grad().defined()) parameter.unsafeGetTensorImpl()->bump_version();
    }
  }
}

// --- Steps that the device may skip

void ShardedStep::step_unless(const std::vector<GradBucket>& buckets,
                              const torch::Tensor& found_inf) {
  if (shared_) {
    throw ConfigError(
        "ZeroRedundancyOptimizer: step_unless: ranks that share parameters decide on the host; "
        "use step(), or set DdpOptions::parameter_memory to kFlat");
  }
  require_found_inf(found_inf, buckets.front().buffer.device());
  const torch::NoGradGuard no_grad;
  require_in_place(buckets);
  follow_layout(buckets);
  count_on_device(buckets);
  device_counts_->advance(found_inf);
  const Tensors lrs = lrs_on(buckets.front().buffer.device());
  const auto step_of = [&](const parallel::SliceRun& run) {
    const auto& count = device_counts_->counts()[static_cast<std::size_t>(run.steps)];
    return DeviceStep{.lr = lrs[run.group], .number = count.number, .found_inf = found_inf};
  };
  step_flat(buckets, [&](const GradBucket& bucket) {
    parallel::update_shard_on_device(rules_, shards_[bucket.index], device_runs_of(bucket),
                                     step_of);
  });
  note_writes(buckets);
  used_ = true;
}

// Parameters with one count may be in one run, whatever the count is by now.
std::vector<parallel::SliceRun> ShardedStep::device_runs_of(const GradBucket& bucket) const {
  return parallel::runs_with_gradients(bucket, shards_[bucket.index].slice, count_of_[bucket.index],
                                       groups_of_buckets_[bucket.index], keeps_zeros_);
}

// Regroups the counts if other parameters have gradients than before.
void ShardedStep::count_on_device(const std::vector<GradBucket>& buckets) {
  std::vector<bool> takes_part;
  for (const GradBucket& bucket : buckets) {
    for (const torch::Tensor& each : bucket.parameters) takes_part.push_back(each.grad().defined());
  }
  if (device_counts_ && device_counts_->fit(takes_part)) return;
  fetch_counts();
  std::vector<std::int64_t> steps = state_->all_steps();
  device_counts_.emplace(takes_part, steps.data(), rules_[0].counts_steps(),
                         buckets.front().buffer.device());
  std::vector<std::int64_t> count_of(steps.size());
  for (std::size_t c = 0; c < device_counts_->counts().size(); ++c) {
    for (const std::size_t member : device_counts_->counts()[c].members) {
      count_of[member] = static_cast<std::int64_t>(c);
    }
  }
  count_of_.clear();
  auto next = count_of.cbegin();
  for (const GradBucket& bucket : buckets) {
    const auto end = next + static_cast<std::ptrdiff_t>(bucket.parameters.size());
    count_of_.emplace_back(next, end);
    next = end;
  }
}

// Brings the counts back to the host, which waits for the device.
void ShardedStep::fetch_counts() {
  if (!device_counts_) return;
  std::vector<std::int64_t> steps = state_->all_steps();
  device_counts_->fetch(steps.data());
  state_->set_all_steps(steps);
  device_counts_.reset();
}

Tensors ShardedStep::lrs_on(torch::Device device) const {
  const auto options = torch::TensorOptions().dtype(lr_type(device)).device(device);
  Tensors lrs;
  for (std::size_t g = 0; g < rules_.size(); ++g) {
    lrs.push_back(torch::full({}, rules_[g].lr(), options));
  }
  return lrs;
}

// --- The state

NamedTensors ShardedStep::gather_state(const std::vector<GradBucket>& buckets, int root) {
  follow_layout(buckets);
  fetch_counts();
  return state_->gather(root);
}

void ShardedStep::scatter_state(const std::vector<GradBucket>& buckets, const NamedTensors& whole,
                                int root) {
  follow_layout(buckets);
  fetch_counts();
  state_->scatter(whole, root);
  used_ = true;
}

}  // namespace lockstep::detail
