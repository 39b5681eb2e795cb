#include <lockstep/parallel/ddp/reducer.h>

#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/function.h>

#include <algorithm>

#include <lockstep/core/capture_scope.h>
#include <lockstep/core/error.h>
#include <lockstep/core/log.h>
#include <lockstep/optim/tensor_kind.h>
#include <lockstep/parallel/ddp/misuse_hint.h>
#include <lockstep/parallel/ddp/phased_work.h>
#include <lockstep/parallel/ddp/reducer_state.h>
#include <lockstep/parallel/ddp/sparse_reduction.h>

namespace lockstep::detail {
namespace {

std::string some_of(const std::vector<std::string>& names) {
  constexpr std::size_t kShown = 5;
  if (names.size() <= kShown) return join(names);
  return str(join(std::vector(names.begin(), names.begin() + kShown)), " and ",
             names.size() - kShown, " more");
}

// Whether a backward runs inside a node of another one, as in checkpointing.
bool inside_of_a_node() { return torch::autograd::get_current_node() != nullptr; }

}  // namespace

// --- A backward

// If an error interrupts this rank's backward, the others must not wait for the rest of it.
template <class Function>
void Reducer::State::ending_group_on_error(Function&& function) {
  try {
    parallel::with_hint("in a backward()", function);
  } catch (const std::exception& error) {
    group_.abort(first_line(error));
    throw;
  } catch (...) {  // autograd propagates only std::exception
    const Error error(
        str("rank ", group_.rank(), ": a communication hook threw ", kForeignException));
    group_.abort(error.what());
    throw error;
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
  if (slot.calls == 1 && !order_known_)
    arrived_.push_back(static_cast<std::size_t>(&slot - slots_.data()));
  if (learns()) return;  // no reduction starts before the graph is known
  check_call(slot);
  if (slot.calls < slot.expected_calls) return;
  slot.gradient().defined() ? mark_ready(slot) : mark_unused(slot);
  start_full_buckets();
  help();
}

// Autograd makes a new tensor for the gradient if there is none (after zero_grad()); its values are
// copied to the bucket, and the view becomes the parameter's gradient. Functions may also return no
// gradient at all.
void Reducer::State::keep_in_bucket(Slot& slot) {
  torch::Tensor& gradient = slot.gradient();
  if (!gradient.defined() || gradient.is_same(slot.view)) return;
  check_gradient(slot, gradient);
  if (slot.sparse) return;
  const torch::NoGradGuard no_grad;
  slot.view.copy_(gradient);
  gradient = slot.view;
}

void Reducer::State::check_gradient(const Slot& slot, const torch::Tensor& gradient) {
  // The bucket holds only values, and a mean over the ranks depends on graphs of other processes.
  if (gradient.requires_grad()) {
    throw ConfigError(lockstep::str(
        "rank ", group_.rank(), ": the gradient of parameter '", slot.name(),
        "' has a graph (create_graph), which DistributedDataParallel cannot keep when it averages "
        "the gradient; get gradients with a graph from torch::autograd::grad(), which the wrapper "
        "does not see, and add what depends on them to the loss of one backward()"));
  }
  if (gradient.is_sparse() != slot.sparse) {
    throw ConfigError(lockstep::str("rank ", group_.rank(), ": parameter '", slot.name(),
                                    "' has a ", slot.sparse ? "dense" : "sparse", " gradient; ",
                                    slot.sparse ? "take it out of" : "name it in",
                                    " DdpOptions::sparse_parameters",
                                    slot.sparse ? "" : ", or use a dense layer"));
  }
  if (slot.sparse) return;
  check_place(slot, gradient, "its gradient");
  const torch::Tensor& parameter = slot.parameter.tensor;
  if (strides_told_ || parameter.strides() == slot.view.strides() ||
      !parameter.is_non_overlapping_and_dense()) {
    return;
  }
  strides_told_ = true;
  log_warning(lockstep::str(
      "DistributedDataParallel: parameter '", slot.name(), "' has strides ", parameter.strides(),
      " and had ", slot.view.strides(),
      " when it was wrapped, so that "
      "every gradient is copied slowly; change the memory format first, then wrap the module"));
}

void Reducer::State::check_place(const Slot& slot, const torch::Tensor& tensor,
                                 const char* what) const {
  if (optim::alike(tensor, slot.view)) return;
  throw ConfigError(lockstep::str(
      "rank ", group_.rank(), ": parameter '", slot.name(), "' was ", optim::kind_text(slot.view),
      " when DistributedDataParallel was constructed and ", what, " is now ",
      optim::kind_text(tensor), "; construct it after changing the module"));
}

void Reducer::State::check_parameters() const {
  for (const Slot& slot : slots_) {
    if (!slot.sparse) check_place(slot, slot.parameter.tensor, "the parameter");
  }
}

void Reducer::State::expect_backward() {
  forward_seen_ = true;
  if (torch::GradMode::is_enabled()) {
    // Backwards of forwards under no_sync() are recognised only by their graphs, so they may never
    // begin here. Nor does a backward begin if all parameters are frozen, like a critic's while its
    // generator trains.
    const bool trains = std::any_of(slots_.begin(), slots_.end(), [](const Slot& slot) {
      return slot.parameter.tensor.requires_grad();
    });
    if (synchronize && trains) ++forwards_;
    forward_graphs_.begin();
  }
  ending_group_on_error([&] { check_parameters(); });
}

void Reducer::State::follow_backward() {
  if (!in_backward_) begin(/*within_backward=*/true);
  const int task = torch::autograd::get_current_graph_task_id();
  if (task == followed_task_) return;
  followed_task_ = task;
  torch::autograd::Engine::get_default_engine().queue_callback([self = shared_from_this()] {
    self->ending_group_on_error([&] { self->on_backward_end(); });
  });
}

// The current backward runs inside a node of another one. The nodes that follow run in the outer
// backward's graph, which cannot be reached in any other way.
class Reducer::State::OuterHook final : public torch::autograd::FunctionPreHook {
 public:
  explicit OuterHook(std::weak_ptr<State> owner) : owner_(std::move(owner)) {}
  torch::autograd::variable_list operator()(
      const torch::autograd::variable_list& gradients) override {
    const auto owner = owner_.lock();
    if (owner && owner->in_backward_)
      owner->ending_group_on_error([&] { owner->follow_backward(); });
    return gradients;
  }

 private:
  std::weak_ptr<State> owner_;
};

void Reducer::State::follow_outer_backward() {
  followed_task_ = -1;
  const auto node = torch::autograd::get_current_node();
  for (const auto& edge : node->next_edges()) {
    if (!edge.is_valid()) continue;
    edge.function->add_pre_hook(std::make_unique<OuterHook>(weak_from_this()));
    return;
  }
}

void Reducer::State::begin(bool within_backward) {
  if (!forward_seen_) {
    throw ConfigError(
        str("rank ", group_.rank(),
            ": backward() runs, but no forward() ran through "
            "DistributedDataParallel; call the wrapper's forward(), not the module's"));
  }
  if (options_.parameter_memory == ParameterMemory::kShared && !comm_hook_) {
    throw ConfigError(str(
        "rank ", group_.rank(),
        ": parameter_memory kShared is for ZeroRedundancyOptimizer, which must "
        "be made before the first backward(): any other optimizer would step the one copy of the "
        "parameters once for each rank"));
  }
  if (is_capturing()) require_capturable();
  if (forwards_ == 0 && within_backward && !backward_told_ && !forward_graphs_.in_this_backward()) {
    backward_told_ = true;
    log_warning("DistributedDataParallel, rank ", group_.rank(),
                ": backward() runs over a graph that no forward() of "
                "the wrapper has recorded; call the wrapper's forward(), not the module's");
  }
  if (forwards_ > 0) --forwards_;
  in_backward_ = true;
  times.begin(buckets.size());
  if (learns()) return;
  const bool searches = options_.find_unused_parameters && !options_.static_graph;
  if (searches) {
    std::vector<bool> used = within_backward ? parallel::parameters_in_graph(tensors_)
                                             : std::vector<bool>(slots_.size(), false);
    for (std::size_t i = 0; i < slots_.size(); ++i) {
      if (!used[i]) mark_unused(slots_[i]);
      // Gradients accumulated earlier without communication also count.
      if (slots_[i].gradient().defined()) used[i] = true;
    }
    used_->start(used);
  } else {
    for (Slot& slot : slots_) {
      if (!within_backward || (options_.static_graph && slot.expected_calls == 0))
        mark_unused(slot);
    }
  }
  start_full_buckets();
}

// A graph replays what one backward did on the device. Decisions that backward takes on the host
// would be fixed at the capture.
void Reducer::State::require_capturable() const {
  const auto refuse = [&](const char* problem) {
    throw ConfigError(lockstep::str("rank ", group_.rank(),
                                    ": DistributedDataParallel: a backward() "
                                    "that is captured in a graph ",
                                    problem));
  };
  if (options_.find_unused_parameters && !options_.static_graph) {
    refuse(
        "cannot look for unused parameters, which the host does each time; set static_graph = "
        "true");
  }
  if (comm_hook_)
    refuse("cannot run a communication hook, which the host calls each time; remove the hook");
  const bool is_sparse =
      std::any_of(slots_.begin(), slots_.end(), [](const Slot& slot) { return slot.sparse; });
  if (is_sparse)
    refuse(
        "cannot reduce sparse gradients, whose sizes the host reads; set sparse = false in the "
        "layers");
  if (!order_known_ || learns())
    refuse("cannot be the first one, which orders the buckets; run some before");
  const std::string reason = group_.why_not_capturable();
  if (!reason.empty()) refuse(reason.c_str());
}

// No more gradients will arrive for it in this backward: it contributes what it has, or zeros.
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
    throw ConfigError(
        lockstep::str("rank ", group_.rank(), ": parameter '", slot.name(), "' ", text...));
  };
  if (options_.static_graph && slot.calls > slot.expected_calls) {
    fail("received ", slot.calls, " gradients in this backward() and ", slot.expected_calls,
         " in the first: the graph changed; set static_graph = false",
         slot.expected_calls == 0 ? " and find_unused_parameters = true" : "");
  }
  if (slot.unused) {
    fail(
        "received a gradient that the graph of this backward() does not show: a part of the model "
        "runs a "
        "backward() of its own (checkpointing); use static_graph instead of "
        "DdpOptions::find_unused_parameters");
  }
  if (slot.ready) {
    fail(
        "is marked ready twice: it received a second gradient within one backward(), from a "
        "backward() "
        "inside of it (checkpointing of layers that share it); set static_graph = true if every "
        "step does so");
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
    return parallel::async_mean_sparse(
        first.gradient().defined() ? first.gradient() : parallel::empty_sparse(parameter), group_,
        first.mean);
  }
  if (!comm_hook_) return group_.async_all_reduce(bucket.buffer, ReduceOp::kAverage);
  auto work = comm_hook_(bucket);
  if (!work)
    throw ConfigError("a communication hook returned no Work; return a completed one instead");
  return work;
}

// Shared memory has no thread of its own, so this makes progress on what the peers have enabled. A
// stream needs no help, and querying it takes time and is illegal while a graph is captured.
void Reducer::State::help() {
  if (group_.runs_on_stream()) return;
  while (ended_ < works_.size() && works_[ended_]->is_completed()) times.end(ended_++);
}

void Reducer::State::on_backward_end() {
  if (!in_backward_) return;  // a nested backward has already ended it
  const bool complete = !learns() && works_.size() == buckets.size();
  if (!complete && inside_of_a_node()) return follow_outer_backward();
  if (!complete && !learns()) fail_for_missing_gradients();
  finish();
}

void Reducer::State::finish() {
  times.computed();
  if (learns()) learn_graph();
  detail::wait_for_all(works_, [this](std::size_t bucket) {
    if (times.is_on_device() && bucket >= ended_) times.end(bucket);
  });
  if (used_ && !union_known_) {
    used_->finish();
    union_known_ = options_.static_graph;
  }
  take_results();
  times.reduced();
  const bool rebuilds =
      !order_known_ && (options_.static_graph || !options_.find_unused_parameters);
  order_known_ = true;
  reset();
  if (rebuilds) rebuild();
}

// At the first backward with static_graph: the number of gradients of each parameter, on this rank,
// and which parameters are used on any rank.
void Reducer::State::learn_graph() {
  std::vector<bool> used;
  bool took_part = false;
  for (Slot& slot : slots_) {
    slot.expected_calls = slot.calls;
    took_part = took_part || slot.calls > 0;
    if (!slot.ready)
      slot.calls > 0 && slot.gradient().defined() ? mark_ready(slot) : mark_unused(slot);
    used.push_back(slot.gradient().defined());
  }
  graph_known_ = took_part;
  if (!union_known_) used_->start(used);
  start_full_buckets();
}

// Sets gradients that only other ranks computed, and those that had no place in a buffer.
void Reducer::State::take_results() {
  for (std::size_t i = 0; i < slots_.size(); ++i) {
    Slot& slot = slots_[i];
    if (!slot.unused && !slot.sparse) continue;
    const bool wanted = !used_ || slot.gradient().defined() || used_->anywhere(i);
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
  const char* const advice = options_.static_graph
                                 ? "they did in the first: the graph changed; set static_graph = "
                                   "false and find_unused_parameters = true"
                                 : "set DdpOptions::find_unused_parameters = true if the loss need "
                                   "not depend on all of them, or freeze them with "
                                   "requires_grad_(false) before the module is wrapped";
  throw ConfigError(str("rank ", group_.rank(), ": ", names.size(), " of ",
                        amount_of(static_cast<std::int64_t>(slots_.size()), "parameter"),
                        " received no gradient in backward(): ", some_of(names), "; ", advice));
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
  if (!state_) return;
  state_->remove_hooks();
  state_->leave_shared_memory();
}
Reducer::Reducer(Reducer&&) noexcept = default;
Reducer& Reducer::operator=(Reducer&& other) noexcept {
  std::swap(state_, other.state_);
  return *this;
}

void Reducer::register_comm_hook(CommHook hook) { state_->register_comm_hook(std::move(hook)); }
void Reducer::expect_backward() { state_->expect_backward(); }
void Reducer::forward_ended() { state_->forward_ended(); }
void Reducer::set_synchronize(bool synchronize) { state_->synchronize = synchronize; }
bool Reducer::synchronizes() const { return state_->synchronize; }
void Reducer::require_idle() const { state_->require_idle(); }
void Reducer::reduce_without_backward() { state_->reduce_without_backward(); }
const std::vector<GradBucket>& Reducer::grad_buckets() const { return state_->buckets; }
const StepRecorder& Reducer::times() const { return state_->times; }
void Reducer::settle_times() const { state_->times.settle(); }
std::int64_t Reducer::arrivals() const { return state_->arrivals; }

}  // namespace lockstep::detail
