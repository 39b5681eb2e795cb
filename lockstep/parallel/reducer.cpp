#include <lockstep/parallel/reducer.h>

#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <optional>

#include <lockstep/core/error.h>
#include <lockstep/core/log.h>
#include <lockstep/parallel/phased_work.h>
#include <lockstep/parallel/sparse_reduction.h>
#include <lockstep/parallel/used_parameters.h>

namespace lockstep {
namespace {

struct Slot {
  NamedParameter parameter;
  bool sparse = false;
  std::size_t bucket = 0;
  torch::Tensor view;  ///< the gradient inside the bucket's buffer; none of sparse ones
  /// Where the mean of a sparse gradient arrives.
  std::shared_ptr<torch::Tensor> mean = nullptr;
  // In the present backward:
  bool ready = false;   ///< nothing more will come
  bool unused = false;  ///< ready without a gradient of its own
  int calls = 0;        ///< of its hook
  /// With static_graph, once known: calls in every backward.
  int expected_calls = 0;
  torch::autograd::PostAccumulateGradHook* hook = nullptr;  ///< ours, while it is in place

  const std::string& name() const { return parameter.name; }
  torch::Tensor& gradient() const { return parameter.tensor.mutable_grad(); }
};

// What a bucket waits for.
struct Members {
  std::vector<std::size_t> slots;
  std::size_t missing = 0;  ///< of them, not ready in this backward
};

std::string some_of(const std::vector<std::string>& names) {
  constexpr std::size_t kShown = 5;
  if (names.size() <= kShown) return join(names);
  return str(join(std::vector(names.begin(), names.begin() + kShown)), " and ",
             names.size() - kShown, " more");
}

// One for each parameter; autograd calls it when the parameter's gradient has been accumulated.
class GradientHook final : public torch::autograd::PostAccumulateGradHook {
 public:
  explicit GradientHook(std::function<void()> call) : call_(std::move(call)) {}
  void operator()(const torch::autograd::Variable&) override { call_(); }

 private:
  std::function<void()> call_;
};

// Whether a backward runs inside of a node of another one, as checkpointing does it.
bool inside_of_a_node() { return torch::autograd::get_current_node() != nullptr; }

}  // namespace

class Reducer::State : public std::enable_shared_from_this<Reducer::State> {
 public:
  State(std::vector<NamedParameter> parameters, const std::vector<bool>& sparse, ProcessGroup group,
        const ReducerOptions& options);

  void add_hooks();
  void remove_hooks();
  void register_comm_hook(CommHook hook);
  void watch_output(const torch::Tensor& output);
  void require_idle() const;
  void reduce_without_backward();

  bool synchronize = true;
  bool forward_seen = false;
  std::int64_t arrivals = 0;
  std::vector<GradBucket> buckets;
  StepRecorder times;

 private:
  // --- Buckets (once, and once more)
  void make_buckets(const std::vector<std::size_t>& order);
  std::vector<std::vector<std::size_t>> assignment(const std::vector<std::size_t>& order) const;
  void rebuild();

  // --- A backward, from its first gradient to its end
  void on_gradient(std::size_t index);
  void accept_gradient(Slot& slot);
  void keep_in_bucket(Slot& slot);
  void check_gradient(const Slot& slot, const torch::Tensor& gradient);
  void follow_backward();
  void begin(bool within_backward);
  void mark_unused(Slot& slot);
  void mark_ready(Slot& slot);
  void start_full_buckets();
  std::shared_ptr<Work> start(std::size_t index);
  void help();
  void on_backward_end();
  void finish();
  void learn_graph();
  void take_results();
  void reset();

  // --- Errors
  template <class Function>
  void ending_group_on_error(Function&& function);
  [[noreturn]] void fail_for_missing_gradients();
  void check_call(const Slot& slot) const;

  bool learns() const { return options_.static_graph && !graph_known_; }

  ProcessGroup group_;
  const ReducerOptions options_;
  std::vector<Slot> slots_;
  std::vector<torch::Tensor> tensors_;  // the parameters
  std::vector<Members> members_;        // of each bucket
  CommHook comm_hook_;
  std::optional<UsedParameters> used_;     // over all ranks
  std::vector<std::size_t> arrived_;       // in the first backward
  bool order_known_ = false;  // the buckets follow it, as far as they ever will
  bool graph_known_ = false;  // static_graph: expected_calls are
  bool union_known_ = false;  // static_graph: used_ is
  bool strides_told_ = false;
  // Of the present backward:
  bool in_backward_ = false;
  int followed_task_ = -1;  // the graph whose end calls on_backward_end()
  std::vector<std::shared_ptr<Work>> works_;  // of the buckets started, in order
  std::size_t ended_ = 0;                     // of them, seen to have ended
};

Reducer::State::State(std::vector<NamedParameter> parameters, const std::vector<bool>& sparse,
                      ProcessGroup group, const ReducerOptions& options)
    : group_(std::move(group)), options_(options) {
  check_parameter_memory(parameters, group_, options.parameter_memory);
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    tensors_.push_back(parameters[i].tensor);
    slots_.push_back({.parameter = std::move(parameters[i]), .sparse = sparse[i]});
    if (sparse[i]) slots_.back().mean = std::make_shared<torch::Tensor>();
  }
  if (options.find_unused_parameters || options.static_graph) used_.emplace(slots_.size(), group_);
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
      // Of buckets that are rebuilt: the gradients stay what they are.
      if (slot.gradient().defined()) keep_in_bucket(slot);
    }
    buckets.push_back(std::move(bucket));
    members_.push_back({slots, slots.size()});
  }
}

// All ranks are at the end of the same backward. Ranks may have seen different orders.
void Reducer::State::rebuild() {
  std::vector<std::int64_t> order;
  if (arrived_.size() < slots_.size()) {  // a rank without a backward of its own
    for (const std::size_t index : reverse_order(slots_.size())) {
      if (std::find(arrived_.begin(), arrived_.end(), index) == arrived_.end()) arrived_.push_back(index);
    }
  }
  for (const std::size_t index : arrived_) order.push_back(static_cast<std::int64_t>(index));
  torch::Tensor agreed = torch::tensor(order, torch::kInt64).to(tensors_.front().device());
  group_.broadcast(agreed, 0);
  agreed = agreed.cpu();
  std::vector<std::size_t> first_come;
  for (std::size_t i = 0; i < order.size(); ++i) {
    first_come.push_back(static_cast<std::size_t>(agreed[static_cast<std::int64_t>(i)].item<std::int64_t>()));
  }
  const auto wanted = assignment(first_come);
  const bool same = std::equal(wanted.begin(), wanted.end(), members_.begin(), members_.end(),
                               [](const auto& a, const Members& b) { return a == b.slots; });
  if (same) return;
  make_buckets(first_come);
  times.clear();
}

// --- Hooks

// A tensor has one place for such a hook. A hook of ours there belongs to an earlier wrapper of the same
// module, which ours replaces.
void Reducer::State::add_hooks() {
  for (std::size_t index = 0; index < slots_.size(); ++index) {
    Slot& slot = slots_[index];
    const auto& present = torch::autograd::impl::post_acc_grad_hooks(slot.parameter.tensor);
    if (present && dynamic_cast<GradientHook*>(present.get()) == nullptr) {
      throw ConfigError(lockstep::str("parameter '", slot.name(), "' has a post-accumulate-grad hook of "
                                      "somebody else; remove it before DistributedDataParallel"));
    }
    auto hook = std::make_unique<GradientHook>([weak = weak_from_this(), index] {
      if (const auto state = weak.lock()) state->on_gradient(index);
    });
    slot.hook = hook.get();
    torch::autograd::impl::set_post_acc_grad_hooks(slot.parameter.tensor, std::move(hook));
  }
}

void Reducer::State::remove_hooks() {
  for (Slot& slot : slots_) {
    if (torch::autograd::impl::post_acc_grad_hooks(slot.parameter.tensor).get() != slot.hook) continue;
    torch::autograd::impl::set_post_acc_grad_hooks(slot.parameter.tensor, nullptr);
  }
}

void Reducer::State::register_comm_hook(CommHook hook) {
  if (!hook) throw ConfigError("register_comm_hook: the hook is empty");
  if (comm_hook_) throw ConfigError("register_comm_hook: there is a hook already; one can be registered");
  if (in_backward_ || times.steps() > 0) {
    throw ConfigError("register_comm_hook: gradients have been reduced already; register the hook before "
                      "the first backward()");
  }
  comm_hook_ = std::move(hook);
}

void Reducer::State::watch_output(const torch::Tensor& output) {
  if (!learns() || !output.requires_grad()) return;
  output.register_hook([weak = weak_from_this()](const torch::Tensor&) {
    const auto state = weak.lock();
    if (!state || !state->synchronize || !state->learns()) return;
    state->ending_group_on_error([&] { state->follow_backward(); });
  });
}

void Reducer::State::require_idle() const {
  if (!in_backward_) return;
  throw CommError(str("rank ", group_.rank(),
                      ": an earlier backward() ended with an exception after some gradients were "
                      "reduced; the ranks no longer agree, start the training again"));
}

// --- A backward

// An error leaves this rank's backward half-way: the others must not wait for the rest.
template <class Function>
void Reducer::State::ending_group_on_error(Function&& function) {
  try {
    function();
  } catch (const std::exception& error) {
    group_.abort(error.what());
    throw;
  } catch (...) {
    group_.abort("a communication hook threw what is no std::exception");
    throw;
  }
}

void Reducer::State::on_gradient(std::size_t index) {
  ending_group_on_error([&] { accept_gradient(slots_[index]); });
}

void Reducer::State::accept_gradient(Slot& slot) {
  keep_in_bucket(slot);
  ++arrivals;
  if (!synchronize) return;
  follow_backward();
  ++slot.calls;
  if (slot.calls == 1 && !order_known_) arrived_.push_back(static_cast<std::size_t>(&slot - slots_.data()));
  if (learns()) return;  // nothing starts before all is known
  check_call(slot);
  if (slot.calls < slot.expected_calls) return;
  mark_ready(slot);
  start_full_buckets();
  help();
}

// Autograd makes a new tensor for the gradient when there is none (after zero_grad()); its values move
// into the bucket, and from then on the parameter's gradient is the view.
void Reducer::State::keep_in_bucket(Slot& slot) {
  torch::Tensor& gradient = slot.gradient();
  if (gradient.is_same(slot.view)) return;
  check_gradient(slot, gradient);
  if (slot.sparse) return;
  const torch::NoGradGuard no_grad;
  slot.view.copy_(gradient);
  gradient = slot.view;
}

void Reducer::State::check_gradient(const Slot& slot, const torch::Tensor& gradient) {
  if (gradient.is_sparse() != slot.sparse) {
    throw ConfigError(lockstep::str(
        "parameter '", slot.name(), "' has a ", slot.sparse ? "dense" : "sparse", " gradient; ",
        slot.sparse ? "take it out of" : "name it in", " DdpOptions::sparse_parameters",
        slot.sparse ? "" : ", or use a dense layer"));
  }
  if (slot.sparse) return;
  if (gradient.sizes() != slot.view.sizes() || gradient.scalar_type() != slot.view.scalar_type() ||
      gradient.device() != slot.view.device()) {
    throw ConfigError(lockstep::str(
        "parameter '", slot.name(), "' was ", slot.view.scalar_type(), ' ', slot.view.sizes(), " on ",
        slot.view.device(), " when DistributedDataParallel was made and its gradient is ",
        gradient.scalar_type(), ' ', gradient.sizes(), " on ", gradient.device(),
        " now; change the module first, then wrap it"));
  }
  const torch::Tensor& parameter = slot.parameter.tensor;
  if (strides_told_ || parameter.strides() == slot.view.strides() ||
      !parameter.is_non_overlapping_and_dense()) {
    return;
  }
  strides_told_ = true;
  log_warning(lockstep::str("DistributedDataParallel: parameter '", slot.name(), "' has strides ",
                            parameter.strides(), " and had ", slot.view.strides(), " when it was wrapped, so that "
                            "every gradient is copied slowly; change the memory format first, then wrap the module"));
}

void Reducer::State::follow_backward() {
  if (!in_backward_) begin(/*within_backward=*/true);
  const int task = torch::autograd::get_current_graph_task_id();
  if (task == followed_task_) return;
  followed_task_ = task;
  torch::autograd::Engine::get_default_engine().queue_callback(
      [self = shared_from_this()] { self->ending_group_on_error([&] { self->on_backward_end(); }); });
}

void Reducer::State::begin(bool within_backward) {
  if (!forward_seen) {
    throw ConfigError(str("rank ", group_.rank(), ": backward() runs, but no forward() ran through "
                          "DistributedDataParallel; call the wrapper's forward(), not the module's"));
  }
  in_backward_ = true;
  times.begin(buckets.size());
  if (learns()) return;
  const bool searches = options_.find_unused_parameters && !options_.static_graph;
  if (searches) {
    std::vector<bool> used =
        within_backward ? parameters_in_graph(tensors_) : std::vector<bool>(slots_.size(), false);
    for (std::size_t i = 0; i < slots_.size(); ++i) {
      if (!used[i]) mark_unused(slots_[i]);
      // What accumulated before, without communication, counts too.
      if (slots_[i].gradient().defined()) used[i] = true;
    }
    used_->start(used);
  } else {
    for (Slot& slot : slots_) {
      if (!within_backward || (options_.static_graph && slot.expected_calls == 0)) mark_unused(slot);
    }
  }
  start_full_buckets();
}

void Reducer::State::mark_unused(Slot& slot) {
  slot.unused = true;
  mark_ready(slot);
  if (slot.sparse) return;
  if (slot.gradient().defined()) {
    keep_in_bucket(slot);
  } else {
    const torch::NoGradGuard no_grad;
    slot.view.zero_();
  }
}

void Reducer::State::mark_ready(Slot& slot) {
  slot.ready = true;
  if (--members_[slot.bucket].missing == 0) times.ready(slot.bucket);
}

void Reducer::State::check_call(const Slot& slot) const {
  const auto fail = [&](const auto&... text) {
    throw ConfigError(lockstep::str("rank ", group_.rank(), ": parameter '", slot.name(), "' ", text...));
  };
  if (options_.static_graph && slot.calls > slot.expected_calls) {
    fail("received ", slot.calls, " gradients in this backward() and ", slot.expected_calls,
         " in the first: the graph changed; set static_graph = false",
         slot.expected_calls == 0 ? " and find_unused_parameters = true" : "");
  }
  if (slot.unused) {
    fail("received a gradient that the graph of this backward() does not show: a part of the model runs a "
         "backward() of its own (checkpointing); use static_graph instead of find_unused_parameters");
  }
  if (slot.ready) {
    fail("is marked ready twice: it received a second gradient within one backward(), from a backward() "
         "inside of it (checkpointing of layers that share it); set static_graph = true if every step does so");
  }
}

void Reducer::State::start_full_buckets() {
  while (works_.size() < buckets.size() && members_[works_.size()].missing == 0) {
    times.start(works_.size());
    works_.push_back(start(works_.size()));
  }
}

std::shared_ptr<Work> Reducer::State::start(std::size_t index) {
  GradBucket& bucket = buckets[index];
  const Slot& first = slots_[members_[index].slots.front()];
  if (first.sparse) {
    const torch::Tensor& parameter = first.parameter.tensor;
    const torch::Tensor gradient = first.gradient().defined()
                                       ? first.gradient()
                                       : torch::sparse_coo_tensor(parameter.sizes(), parameter.options());
    return async_mean_sparse(gradient, group_, first.mean);
  }
  if (!comm_hook_) return group_.async_all_reduce(bucket.buffer, ReduceOp::kAverage);
  auto work = comm_hook_(bucket);
  if (!work) throw ConfigError("a communication hook returned no Work; return a completed one instead");
  return work;
}

// Shared memory has no thread of its own; this moves what the peers have made possible.
void Reducer::State::help() {
  while (ended_ < works_.size() && works_[ended_]->is_completed()) times.end(ended_++);
}

void Reducer::State::on_backward_end() {
  if (!in_backward_) return;  // a backward inside of this one saw the end
  if (inside_of_a_node()) {
    followed_task_ = -1;
    if (learns() || works_.size() < buckets.size()) return;  // the outer one goes on
  }
  if (!learns() && works_.size() < buckets.size()) fail_for_missing_gradients();
  finish();
}

void Reducer::State::finish() {
  times.computed();
  if (learns()) learn_graph();
  wait_for_all(works_);
  if (used_ && !union_known_) {
    used_->finish();
    union_known_ = options_.static_graph;
  }
  take_results();
  times.reduced();
  const bool rebuilds = !order_known_ && (options_.static_graph || !options_.find_unused_parameters);
  order_known_ = true;
  reset();
  if (rebuilds) rebuild();
}

// The first backward with static_graph: who received how many gradients, here and anywhere.
void Reducer::State::learn_graph() {
  std::vector<bool> used;
  bool took_part = false;
  for (Slot& slot : slots_) {
    slot.expected_calls = slot.calls;
    took_part = took_part || slot.calls > 0;
    if (slot.calls > 0) {
      mark_ready(slot);
    } else if (!slot.ready) {
      mark_unused(slot);
    }
    used.push_back(slot.gradient().defined());
  }
  graph_known_ = took_part;
  if (!union_known_) used_->start(used);
  start_full_buckets();
}

// Gradients that this rank did not compute, but others did, and those that had no place in a buffer.
void Reducer::State::take_results() {
  for (std::size_t i = 0; i < slots_.size(); ++i) {
    Slot& slot = slots_[i];
    if (!slot.unused && !slot.sparse) continue;
    const bool wanted = !used_ || used_->anywhere(i) || slot.gradient().defined();
    if (slot.sparse) {
      if (wanted) slot.gradient() = *slot.mean;
      slot.mean->reset();
    } else if (wanted) {
      slot.gradient() = slot.view;
    }
  }
}

void Reducer::State::fail_for_missing_gradients() {
  std::vector<std::string> names;
  for (const Slot& slot : slots_) {
    if (!slot.ready) names.push_back(slot.name());
  }
  const char* const advice =
      options_.static_graph
          ? "they did in the first: the graph changed; set static_graph = false and find_unused_parameters = true"
          : "set find_unused_parameters = true if the loss need not depend on all of them, or freeze them with "
            "requires_grad_(false) before the module is wrapped";
  throw ConfigError(str("rank ", group_.rank(), ": ", names.size(), " of ", slots_.size(),
                        " parameters received no gradient in backward(): ", some_of(names), "; ", advice));
}

void Reducer::State::reduce_without_backward() {
  require_idle();
  ending_group_on_error([&] {
    begin(/*within_backward=*/false);
    finish();
  });
}

void Reducer::State::reset() {
  works_.clear();
  ended_ = 0;
  followed_task_ = -1;
  for (Members& members : members_) members.missing = members.slots.size();
  for (Slot& slot : slots_) {
    slot.ready = slot.unused = false;
    slot.calls = 0;
  }
  in_backward_ = false;
}

// --- The handle

Reducer::Reducer(std::vector<NamedParameter> parameters, const std::vector<bool>& sparse,
                 ProcessGroup group, const ReducerOptions& options)
    : state_(std::make_shared<State>(std::move(parameters), sparse, std::move(group), options)) {
  state_->add_hooks();
}

Reducer::~Reducer() {
  if (state_) state_->remove_hooks();
}
Reducer::Reducer(Reducer&&) noexcept = default;
Reducer& Reducer::operator=(Reducer&& other) noexcept {
  std::swap(state_, other.state_);
  return *this;
}

void Reducer::register_comm_hook(CommHook hook) { state_->register_comm_hook(std::move(hook)); }
void Reducer::expect_backward() { state_->forward_seen = true; }
void Reducer::watch_output(const torch::Tensor& output) { state_->watch_output(output); }
void Reducer::set_synchronize(bool synchronize) { state_->synchronize = synchronize; }
bool Reducer::synchronizes() const { return state_->synchronize; }
void Reducer::require_idle() const { state_->require_idle(); }
void Reducer::reduce_without_backward() { state_->reduce_without_backward(); }
const std::vector<GradBucket>& Reducer::grad_buckets() const { return state_->buckets; }
const StepRecorder& Reducer::times() const { return state_->times; }
std::int64_t Reducer::arrivals() const { return state_->arrivals; }

}  // namespace lockstep
