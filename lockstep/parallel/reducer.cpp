#include <lockstep/parallel/reducer.h>

#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/variable.h>

#include <lockstep/core/clock.h>
#include <lockstep/core/error.h>

namespace lockstep {
namespace {

// Gradients begin at cache lines, so that their SIMD loops are aligned and never share one.
constexpr std::int64_t kAlignmentBytes = 64;

struct Bucket {
  torch::Tensor flat;
  std::size_t size = 0;     ///< number of gradients
  std::size_t missing = 0;  ///< of them, not yet accumulated in this backward
};

struct Slot {
  std::string name;
  torch::Tensor parameter;
  torch::Tensor view;  ///< the gradient, inside the bucket's flat tensor
  std::size_t bucket = 0;
  bool ready = false;
  torch::autograd::PostAccumulateGradHook* hook = nullptr;  ///< ours, while it is in place
};

std::string some_of(const std::vector<std::string>& names) {
  constexpr std::size_t kShown = 5;
  if (names.size() <= kShown) return join(names);
  return str(join(std::vector(names.begin(), names.begin() + kShown)), " and ",
             names.size() - kShown, " more");
}

}  // namespace

class Reducer::State : public std::enable_shared_from_this<Reducer::State> {
 public:
  State(std::vector<NamedParameter> parameters, ProcessGroup group, const BucketCaps& caps)
      : group_(std::move(group)) {
    std::vector<torch::Tensor> tensors;
    for (auto& parameter : parameters) {
      tensors.push_back(parameter.tensor);
      slots_.push_back({.name = std::move(parameter.name), .parameter = std::move(parameter.tensor)});
    }
    for (const auto& members : assign_buckets(tensors, caps)) add_bucket(members);
  }

  void add_hooks();
  void remove_hooks();

  void on_gradient(std::size_t index);
  void on_backward_end();

  void require_idle() const {
    if (in_backward_) {
      throw CommError(str("rank ", group_.rank(),
                          ": an earlier backward() ended with an exception after some gradients were "
                          "reduced; the ranks no longer agree, start the training again"));
    }
  }

  bool synchronize = true;
  ReducerStatistics statistics;
  std::vector<Bucket> buckets;

 private:
  void add_bucket(const std::vector<std::size_t>& members);
  void keep_in_bucket(Slot& slot);
  void accept_gradient(Slot& slot);
  void start_full_buckets();
  [[noreturn]] void fail_for_missing_gradients();
  void reset();

  ProcessGroup group_;
  std::vector<Slot> slots_;
  std::vector<std::shared_ptr<Work>> works_;  // of the buckets started in this backward, in order
  bool in_backward_ = false;
};

namespace {

// One for each parameter; autograd calls it when the parameter's gradient has been accumulated.
class GradientHook final : public torch::autograd::PostAccumulateGradHook {
 public:
  explicit GradientHook(std::function<void()> call) : call_(std::move(call)) {}
  void operator()(const torch::autograd::Variable&) override { call_(); }

 private:
  std::function<void()> call_;
};

std::int64_t padded_elements(const torch::Tensor& tensor) {
  const std::int64_t unit = kAlignmentBytes / static_cast<std::int64_t>(tensor.element_size());
  return (tensor.numel() + unit - 1) / unit * unit;
}

}  // namespace

void Reducer::State::add_bucket(const std::vector<std::size_t>& members) {
  std::int64_t elements = 0;
  for (std::size_t index : members) elements += padded_elements(slots_[index].parameter);
  const torch::Tensor& first = slots_[members.front()].parameter;
  Bucket bucket{group_.allocate({elements}, first.scalar_type()), members.size(), members.size()};
  std::int64_t offset = 0;
  for (std::size_t index : members) {
    Slot& slot = slots_[index];
    if (slot.parameter.device() != bucket.flat.device()) {
      throw ConfigError(lockstep::str("parameter '", slot.name, "' is on ", slot.parameter.device(),
                            ", the process group communicates tensors on ", bucket.flat.device(),
                            "; set ProcessGroupOptions::device or move the module first"));
    }
    // The parameter's own strides, so that autograd and the optimizer walk both alike. detach():
    // zero_grad() refuses tensors that autograd knows as views.
    const bool dense = slot.parameter.is_non_overlapping_and_dense();
    const auto strides = dense ? slot.parameter.strides().vec()
                               : torch::empty_like(slot.parameter, torch::MemoryFormat::Contiguous)
                                     .strides().vec();
    slot.view = bucket.flat.as_strided(slot.parameter.sizes(), strides, offset).detach();
    slot.bucket = buckets.size();
    offset += padded_elements(slot.parameter);
  }
  buckets.push_back(std::move(bucket));
}

// A tensor has one place for such a hook. A hook of ours there belongs to an earlier wrapper of the same
// module, which ours replaces.
void Reducer::State::add_hooks() {
  for (std::size_t index = 0; index < slots_.size(); ++index) {
    Slot& slot = slots_[index];
    const auto& present = torch::autograd::impl::post_acc_grad_hooks(slot.parameter);
    if (present && dynamic_cast<GradientHook*>(present.get()) == nullptr) {
      throw ConfigError(lockstep::str("parameter '", slot.name, "' has a post-accumulate-grad hook of "
                                      "somebody else; remove it before DistributedDataParallel"));
    }
    auto hook = std::make_unique<GradientHook>([weak = weak_from_this(), index] {
      if (const auto state = weak.lock()) state->on_gradient(index);
    });
    slot.hook = hook.get();
    torch::autograd::impl::set_post_acc_grad_hooks(slot.parameter, std::move(hook));
  }
}

void Reducer::State::remove_hooks() {
  for (Slot& slot : slots_) {
    if (torch::autograd::impl::post_acc_grad_hooks(slot.parameter).get() != slot.hook) continue;
    torch::autograd::impl::set_post_acc_grad_hooks(slot.parameter, nullptr);
  }
}

// Autograd makes a new tensor for the gradient when there is none (after zero_grad()); its values move
// into the bucket, and from then on the parameter's gradient is the view.
void Reducer::State::keep_in_bucket(Slot& slot) {
  torch::Tensor& gradient = slot.parameter.mutable_grad();
  if (gradient.is_same(slot.view)) return;
  if (gradient.is_sparse()) {
    throw ConfigError(lockstep::str("parameter '", slot.name, "' has a sparse gradient; use a dense layer"));
  }
  const torch::NoGradGuard no_grad;
  slot.view.copy_(gradient);
  gradient = slot.view;
}

// An error here leaves this rank's backward half-way: the others must not wait for the rest.
void Reducer::State::on_gradient(std::size_t index) {
  try {
    accept_gradient(slots_[index]);
  } catch (const std::exception& error) {
    group_.abort(error.what());
    throw;
  }
}

void Reducer::State::accept_gradient(Slot& slot) {
  keep_in_bucket(slot);
  if (!synchronize) return;
  if (!in_backward_) {
    in_backward_ = true;
    torch::autograd::Engine::get_default_engine().queue_callback(
        [self = shared_from_this()] { self->on_backward_end(); });
  }
  if (slot.ready) {
    throw ConfigError(lockstep::str("parameter '", slot.name, "' received a second gradient before the first "
                                    "backward() was complete"));
  }
  slot.ready = true;
  if (--buckets[slot.bucket].missing == 0) start_full_buckets();
  // Shared memory has no thread of its own; this moves what the peers have made possible.
  if (!works_.empty()) works_.back()->is_completed();
}

void Reducer::State::start_full_buckets() {
  while (works_.size() < buckets.size() && buckets[works_.size()].missing == 0) {
    works_.push_back(group_.async_all_reduce(buckets[works_.size()].flat, ReduceOp::kAverage));
  }
}

void Reducer::State::on_backward_end() {
  if (works_.size() < buckets.size()) fail_for_missing_gradients();
  const auto start = Clock::now();
  for (const auto& work : works_) work->wait();
  statistics.exposed_seconds += seconds_since(start);
  statistics.reductions += static_cast<std::int64_t>(works_.size());
  reset();
}

void Reducer::State::fail_for_missing_gradients() {
  std::vector<std::string> names;
  for (const Slot& slot : slots_) {
    if (!slot.ready) names.push_back(slot.name);
  }
  const std::string message =
      str("rank ", group_.rank(), ": ", names.size(), " of ", slots_.size(),
          " parameters received no gradient in backward(): ", some_of(names),
          "; every parameter must take part in the loss, or be frozen with requires_grad_(false)");
  group_.abort(message);
  throw ConfigError(message);
}

void Reducer::State::reset() {
  works_.clear();
  for (Bucket& bucket : buckets) bucket.missing = bucket.size;
  for (Slot& slot : slots_) slot.ready = false;
  in_backward_ = false;
}

Reducer::Reducer(std::vector<NamedParameter> parameters, ProcessGroup group, const BucketCaps& caps)
    : state_(std::make_shared<State>(std::move(parameters), std::move(group), caps)) {
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

void Reducer::set_synchronize(bool synchronize) { state_->synchronize = synchronize; }
bool Reducer::synchronizes() const { return state_->synchronize; }
void Reducer::require_idle() const { state_->require_idle(); }

std::vector<torch::Tensor> Reducer::buckets() const {
  std::vector<torch::Tensor> flats;
  for (const Bucket& bucket : state_->buckets) flats.push_back(bucket.flat);
  return flats;
}

const ReducerStatistics& Reducer::statistics() const { return state_->statistics; }

}  // namespace lockstep
