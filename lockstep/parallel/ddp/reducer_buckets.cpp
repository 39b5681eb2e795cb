#include <torch/csrc/autograd/variable.h>

#include <algorithm>

#include <lockstep/core/error.h>
#include <lockstep/parallel/ddp/reducer_state.h>

namespace lockstep::detail {

void refuse_other_hooks(const std::vector<NamedParameter>& parameters) {
  for (const auto& [name, tensor] : parameters) {
    const auto& present = torch::autograd::impl::post_acc_grad_hooks(tensor);
    if (present && dynamic_cast<parallel::ReducerHook*>(present.get()) == nullptr) {
      throw ConfigError(lockstep::str("parameter '", name,
                                      "' already has a post-accumulate-grad hook; remove it before "
                                      "constructing DistributedDataParallel"));
    }
  }
}

Reducer::State::State(std::vector<NamedParameter> parameters, const std::vector<bool>& sparse,
                      ProcessGroup group, const ReducerOptions& options)
    : group_(std::move(group)), options_(options) {
  check_parameter_memory(group_, options.parameter_memory);
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    tensors_.push_back(parameters[i].tensor);
    slots_.push_back({.parameter = std::move(parameters[i]), .sparse = sparse[i]});
    if (sparse[i]) slots_.back().mean = std::make_shared<torch::Tensor>();
  }
  if (options.find_unused_parameters || options.static_graph) used_.emplace(slots_.size(), group_);
  times.measure_on(tensors_.front().device());
  make_buckets(reverse_order(slots_.size()));
}

// --- Buckets

std::vector<std::vector<std::size_t>> Reducer::State::assignment(
    const std::vector<std::size_t>& order) const {
  std::vector<bool> alone;
  for (const Slot& slot : slots_) alone.push_back(slot.sparse);
  return assign_buckets(tensors_, order, options_.caps, alone);
}

void Reducer::State::make_buckets(const std::vector<std::size_t>& order) {
  const torch::NoGradGuard no_grad;
  const std::uint64_t layout = buckets.empty() ? 0 : buckets.front().layout + 1;
  const auto assigned = assignment(order);
  buckets.clear();
  members_.clear();
  for (const auto& slots : assigned) {
    std::vector<NamedParameter> named;
    for (const std::size_t index : slots) named.push_back(slots_[index].parameter);
    GradBucket bucket;
    if (slots_[slots.front()].sparse) {
      bucket.parameters = {named.front().tensor};
    } else {
      bucket = make_bucket(named, group_, options_.parameter_memory);
      if (options_.parameter_memory != ParameterMemory::kAsIs) {
        move_parameters(bucket, group_, options_.parameter_memory);
      }
    }
    bucket.index = buckets.size();
    bucket.is_last = bucket.index + 1 == assigned.size();
    bucket.layout = layout;
    for (std::size_t i = 0; i < slots.size(); ++i) {
      Slot& slot = slots_[slots[i]];
      slot.bucket = bucket.index;
      if (slot.sparse) continue;
      slot.view = bucket.gradients[i];
      // Gradients keep their values when buckets are rebuilt.
      if (slot.gradient().defined()) keep_in_bucket(slot);
    }
    buckets.push_back(std::move(bucket));
    members_.push_back({slots, slots.size()});
  }
}

// All ranks are at the end of the same backward, but may have seen different orders. New buckets
// follow the parameters, so that a rank whose parameters changed since its forward would lay them
// out differently.
void Reducer::State::rebuild() {
  check_parameters();
  std::vector<std::int64_t> order;
  if (arrived_.size() < slots_.size()) {  // on a rank without its own backward
    for (const std::size_t index : reverse_order(slots_.size())) {
      if (std::find(arrived_.begin(), arrived_.end(), index) == arrived_.end())
        arrived_.push_back(index);
    }
  }
  for (const std::size_t index : arrived_) order.push_back(static_cast<std::int64_t>(index));
  torch::Tensor agreed = torch::tensor(order, torch::kInt64).to(tensors_.front().device());
  group_.broadcast(agreed, 0);
  agreed = agreed.cpu();
  std::vector<std::size_t> first_come;
  for (std::size_t i = 0; i < order.size(); ++i) {
    first_come.push_back(
        static_cast<std::size_t>(agreed[static_cast<std::int64_t>(i)].item<std::int64_t>()));
  }
  const auto wanted = assignment(first_come);
  const bool same = std::equal(wanted.begin(), wanted.end(), members_.begin(), members_.end(),
                               [](const auto& a, const Members& b) { return a == b.slots; });
  if (same) return;
  make_buckets(first_come);
  times.clear();
}

// --- Hooks

// A tensor has room for only one such hook. A Lockstep hook found here belongs to an earlier
// wrapper of the same module, which this one replaces; refuse_other_hooks() has excluded all
// others.
void Reducer::State::add_hooks() {
  for (std::size_t index = 0; index < slots_.size(); ++index) {
    auto hook =
        std::make_unique<parallel::ReducerHook>(weak_from_this(), [weak = weak_from_this(), index] {
          if (const auto state = weak.lock()) state->on_gradient(index);
        });
    torch::autograd::impl::set_post_acc_grad_hooks(slots_[index].parameter.tensor, std::move(hook));
  }
}

void Reducer::State::remove_hooks() {
  for (Slot& slot : slots_) {
    if (has_hook(slot))
      torch::autograd::impl::set_post_acc_grad_hooks(slot.parameter.tensor, nullptr);
  }
}

void Reducer::State::leave_shared_memory() noexcept {
  if (options_.parameter_memory != ParameterMemory::kShared) return;
  for (GradBucket& bucket : buckets) detail::leave_shared_memory(bucket);
}

void Reducer::State::register_comm_hook(CommHook hook) {
  if (!hook) throw ConfigError("register_comm_hook: the hook is empty");
  if (comm_hook_)
    throw ConfigError("register_comm_hook: there is a hook already; one can be registered");
  if (in_backward_ || times.steps() > 0) {
    throw ConfigError(
        "register_comm_hook: gradients have been reduced already; register the hook before "
        "the first backward()");
  }
  comm_hook_ = std::move(hook);
}

bool Reducer::State::has_hook(const Slot& slot) const {
  const auto& present = torch::autograd::impl::post_acc_grad_hooks(slot.parameter.tensor);
  const auto* hook = dynamic_cast<const parallel::ReducerHook*>(present.get());
  return hook != nullptr && hook->belongs_to(weak_from_this());
}

void Reducer::State::require_idle() const {
  if (!has_hook(slots_.front())) {
    throw ConfigError(lockstep::str("rank ", group_.rank(),
                                    ": another DistributedDataParallel took over parameter '",
                                    slots_.front().name(),
                                    "', so that this one reduces nothing; use the newer one, or "
                                    "wrap the module again"));
  }
  if (!in_backward_) return;
  throw CommError(str("rank ", group_.rank(),
                      ": an earlier backward() ended with an exception after some gradients were "
                      "reduced; the ranks no longer agree, start the training again"));
}

}  // namespace lockstep::detail
