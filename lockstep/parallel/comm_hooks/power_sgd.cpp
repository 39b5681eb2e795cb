#include <lockstep/parallel/comm_hooks/power_sgd.h>

#include <ATen/CPUGeneratorImpl.h>

#include <map>
#include <random>
#include <unordered_map>

#include <lockstep/core/error.h>
#include <lockstep/parallel/comm_hooks/power_sgd_bucket.h>
#include <lockstep/parallel/comm_hooks/step_counter.h>
#include <lockstep/parallel/ddp/phased_work.h>

namespace lockstep {
namespace {

using torch::Tensor;
using NamedTensors = PowerSgd::NamedTensors;

void check(const PowerSgdOptions& options) {
  const auto require = [](bool holds, const char* name, const char* bound, auto got) {
    if (!holds)
      throw ConfigError(lockstep::str("PowerSgd: ", name, " must be ", bound, ", got ", got));
  };
  require(options.matrix_approximation_rank >= 1, "matrix_approximation_rank", "at least 1",
          options.matrix_approximation_rank);
  require(options.start_power_sgd_iter >= 0, "start_power_sgd_iter", "at least 0",
          options.start_power_sgd_iter);
  require(options.min_compression_rate > 0, "min_compression_rate", "above 0",
          options.min_compression_rate);
  require(options.orthogonalization_epsilon >= 0, "orthogonalization_epsilon", "at least 0",
          options.orthogonalization_epsilon);
}

// numpy.random.RandomState(seed).randint(1'000'000'000), which seeds PyTorch's Q.
class Seeds {
 public:
  explicit Seeds(std::uint32_t seed) : engine_(seed) {}

  std::uint64_t next() {
    constexpr std::uint32_t kBound = 1'000'000'000, kMask = (1U << 30) - 1;
    ++drawn_;
    for (;;) {
      const std::uint32_t value = static_cast<std::uint32_t>(engine_()) & kMask;
      if (value < kBound) return value;
    }
  }
  std::int64_t drawn() const { return drawn_; }
  void draw_until(std::int64_t count) {
    while (drawn_ < count) next();
  }

 private:
  std::mt19937 engine_;
  std::int64_t drawn_ = 0;
};

// A Q that overflowed is unknown: it must be drawn again, in whatever bucket it is.
bool q_is_known(const Tensor& q) { return q.defined() && q.isfinite().all().item<bool>(); }

// The state of one parameter, independent of its bucket.
struct Remembered {
  Tensor parameter;  // held, so that its address stays a unique key
  Tensor q;          // [columns, rank]; undefined if unknown
  Tensor error;      // [rows, columns]; undefined if unknown
};

}  // namespace

double PowerSgdStatistics::compression_rate() const {
  if (elements_after_compression == 0) return 0;
  return static_cast<double>(elements_before_compression) /
         static_cast<double>(elements_after_compression);
}

class PowerSgd::State {
 public:
  State(ProcessGroup group, const PowerSgdOptions& options)
      : group_(std::move(group)), options_(options), seeds_(options.random_seed) {}

  std::shared_ptr<Work> reduce(GradBucket& bucket);
  PowerSgdStatistics statistics() const;
  NamedTensors save(const torch::nn::Module& module) const;
  void load(const torch::nn::Module& module, const NamedTensors& state);

 private:
  using BucketPtr = std::shared_ptr<parallel::PowerSgdBucket>;
  BucketPtr bucket_for(const GradBucket& bucket);
  void remember(parallel::PowerSgdBucket& made, const GradBucket& bucket);
  void fill_q(parallel::PowerSgdBucket& bucket);
  void check_fit(const std::string& name, const Tensor& value, const Tensor& parameter,
                 bool is_q) const;

  ProcessGroup group_;
  PowerSgdOptions options_;
  Seeds seeds_;
  parallel::StepCounter steps_;
  std::int64_t before_ = 0, after_ = 0;
  std::map<std::size_t, BucketPtr> buckets_;  // by bucket index
  std::unordered_map<const c10::TensorImpl*, Remembered> remembered_;
};

std::shared_ptr<Work> PowerSgd::State::reduce(GradBucket& grad_bucket) {
  if (steps_.step_of(grad_bucket.index) < options_.start_power_sgd_iter) {
    return group_.async_all_reduce(grad_bucket.buffer, ReduceOp::kAverage);
  }
  const torch::NoGradGuard no_grad;
  const BucketPtr bucket = bucket_for(grad_bucket);
  before_ += bucket->elements_before_compression();
  after_ += bucket->elements_after_compression();
  if (bucket->batches().empty())
    return group_.async_all_reduce(grad_bucket.buffer, ReduceOp::kAverage);

  if (!bucket->q_is_known) fill_q(*bucket);
  bucket->q_is_known = options_.warm_start;
  bucket->begin(grad_bucket.gradients);
  auto second = [bucket, gradients = grad_bucket.gradients,
                 group = group_]() mutable -> std::shared_ptr<Work> {
    const torch::NoGradGuard second_no_grad;
    if (!bucket->compute_q(gradients))
      return nullptr;  // on all ranks, because their first messages are equal
    auto decompress = [bucket, gradients]() -> std::shared_ptr<Work> {
      const torch::NoGradGuard decompress_no_grad;
      bucket->finish(gradients);
      return nullptr;
    };
    return std::make_shared<PhasedWork>(
        group.async_all_reduce(bucket->second_message, ReduceOp::kAverage),
        std::vector<PhasedWork::Phase>{std::move(decompress)});
  };
  return std::make_shared<PhasedWork>(
      group_.async_all_reduce(bucket->first_message, ReduceOp::kAverage),
      std::vector<PhasedWork::Phase>{std::move(second)});
}

PowerSgd::State::BucketPtr PowerSgd::State::bucket_for(const GradBucket& grad_bucket) {
  std::erase_if(buckets_,
                [&](const auto& each) { return each.second->layout() != grad_bucket.layout; });
  BucketPtr& known = buckets_[grad_bucket.index];
  if (known) return known;
  LOCKSTEP_CHECK(grad_bucket.parameters.size() == grad_bucket.gradients.size());
  auto made = std::make_shared<parallel::PowerSgdBucket>(grad_bucket, options_);
  if (!made->batches().empty()) {
    const auto type = c10::toRealValueType(grad_bucket.buffer.scalar_type());
    made->take_memory(group_.allocate({made->elements()}, type), grad_bucket);
    remember(*made, grad_bucket);
  }
  return known = made;
}

// Fills the new bucket with the known state of its parameters, from another layout or a loaded
// state, and makes the parameters refer to the new bucket's memory.
void PowerSgd::State::remember(parallel::PowerSgdBucket& made, const GradBucket& grad_bucket) {
  made.q_is_known = options_.warm_start;
  for (parallel::PowerSgdBucket::Batch& batch : made.batches()) {
    for (std::size_t j = 0; j < batch.members.size(); ++j) {
      const Tensor& parameter = grad_bucket.parameters[batch.members[j]];
      Remembered& remembered = remembered_[parameter.unsafeGetTensorImpl()];
      remembered.parameter = parameter;
      const auto move_to = [](Tensor& from, const Tensor& to) {
        if (from.defined()) to.copy_(from);
        from = to;
      };
      const auto row = static_cast<std::int64_t>(j);
      if (!q_is_known(remembered.q)) made.q_is_known = false;
      move_to(remembered.q, batch.q[row]);
      if (batch.error.defined()) move_to(remembered.error, batch.error[row]);
    }
  }
}

// All ranks draw the same numbers. PyTorch seeds its generator once per bucket.
void PowerSgd::State::fill_q(parallel::PowerSgdBucket& bucket) {
  const auto generator = at::detail::createCPUGenerator(seeds_.next());
  for (const parallel::PowerSgdBucket::Batch& batch : bucket.batches()) {
    batch.q.copy_(torch::randn(batch.q.sizes(), generator, torch::dtype(batch.q.scalar_type())));
  }
}

PowerSgdStatistics PowerSgd::State::statistics() const { return {steps_.begun(), before_, after_}; }

NamedTensors PowerSgd::State::save(const torch::nn::Module& module) const {
  NamedTensors state = {{"iteration", torch::tensor(steps_.begun())},
                        {"seeds_drawn", torch::tensor(seeds_.drawn())}};
  for (const auto& item : module.named_parameters()) {
    const auto found = remembered_.find(item.value().unsafeGetTensorImpl());
    if (found == remembered_.end()) continue;
    const auto& [parameter, q, error] = found->second;
    if (options_.warm_start && q_is_known(q)) state.emplace_back("q." + item.key(), q.clone());
    if (error.defined()) state.emplace_back("error." + item.key(), error.clone());
  }
  return state;
}

void PowerSgd::State::check_fit(const std::string& name, const Tensor& value,
                                const Tensor& parameter, bool is_q) const {
  const Tensor matrix = parallel::as_matrix(parameter.detach());
  std::vector<std::int64_t> expected = matrix.sizes().vec();
  if (is_q) {
    const auto [rows, columns] = std::pair(expected[0], expected[1]);
    expected = {columns, std::min({rows, columns, options_.matrix_approximation_rank})};
  }
  if (value.sizes() == at::IntArrayRef(expected)) return;
  throw CheckpointError(lockstep::str("PowerSgd: '", name, "' has shape ", value.sizes(),
                                      ", expected ", at::IntArrayRef(expected),
                                      "; load it with the same model and rank"));
}

void PowerSgd::State::load(const torch::nn::Module& module, const NamedTensors& state) {
  const torch::NoGradGuard no_grad;
  const auto parameters = module.named_parameters();
  std::unordered_map<const c10::TensorImpl*, Remembered> remembered;
  std::int64_t iteration = -1, drawn = -1;
  for (const auto& [name, value] : state) {
    if (!value.defined()) {
      throw CheckpointError("PowerSgd: '" + name +
                            "' is undefined; load what state_dict() returned");
    }
    if (name == "iteration" || name == "seeds_drawn") {
      if (value.numel() != 1) {
        throw CheckpointError(lockstep::str("PowerSgd: '", name, "' has shape ", value.sizes(),
                                            ", expected a single number"));
      }
      (name == "iteration" ? iteration : drawn) = value.item<std::int64_t>();
      continue;
    }
    const bool is_q = name.starts_with("q.");
    const Tensor* parameter = nullptr;
    if (is_q || name.starts_with("error."))
      parameter = parameters.find(name.substr(name.find('.') + 1));
    if (parameter == nullptr) {
      throw CheckpointError("PowerSgd: the state has '" + name +
                            "', which is not a parameter of the module");
    }
    check_fit(name, value, *parameter, is_q);
    Remembered& entry = remembered[parameter->unsafeGetTensorImpl()];
    entry.parameter = *parameter;
    (is_q ? entry.q : entry.error) = value.clone();
  }
  if (iteration < 0 || drawn < 0) {
    throw CheckpointError(
        "PowerSgd: the state has no 'iteration' or no 'seeds_drawn'; it must come from "
        "state_dict()");
  }
  remembered_ = std::move(remembered);
  buckets_.clear();
  steps_ = parallel::StepCounter(iteration);
  seeds_ = Seeds(options_.random_seed);
  seeds_.draw_until(drawn);
}

PowerSgd::PowerSgd(ProcessGroup group, const PowerSgdOptions& options) {
  check(options);
  state_ = std::make_shared<State>(std::move(group), options);
}

CommHook PowerSgd::hook() const {
  return [state = state_](GradBucket& bucket) { return state->reduce(bucket); };
}

PowerSgdStatistics PowerSgd::statistics() const { return state_->statistics(); }

NamedTensors PowerSgd::state_dict(const torch::nn::Module& module) const {
  return state_->save(module);
}

void PowerSgd::load_state_dict(const torch::nn::Module& module, const NamedTensors& state) {
  state_->load(module, state);
}

}  // namespace lockstep
