#include <lockstep/train/strategies/data_parallel_strategy.h>

#include <algorithm>
#include <functional>
#include <mutex>
#include <optional>
#include <utility>

#include <ATen/CPUGeneratorImpl.h>

#include <lockstep/core/cpu.h>
#include <lockstep/core/error.h>
#include <lockstep/parallel/data_parallel/core.h>
#include <lockstep/parallel/data_parallel/flattened.h>
#include <lockstep/parallel/pipeline/random_scope.h>
#include <lockstep/train/measuring/phase_scope.h>
#include <lockstep/train/optimization/step_seed.h>
#include <lockstep/train/strategies/output_task_of.h>
#include <lockstep/train/strategies/refuse_options_of_ddp.h>
#include <lockstep/train/strategies/stage_optimizers.h>
#include <lockstep/train/strategies/weighted_loss.h>

namespace lockstep::train {
namespace {

// With more replicas, each gets too few rows of a usual batch to be worth its overhead.
constexpr std::size_t kMostCpuReplicas = 8;

std::vector<torch::Device> usual_devices(torch::Device device) {
  if (!device.is_cpu()) return {device};
  const std::size_t replicas =
      std::clamp<std::size_t>(available_cpus().size(), 1, kMostCpuReplicas);
  std::vector<torch::Device> devices;  // g++ 12 warns of a vector that is filled at once
  while (devices.size() < replicas) devices.push_back(device);
  return devices;
}

torch::Tensor cpu_generator_state() {
  at::Generator generator = at::detail::getDefaultCPUGenerator();
  const std::scoped_lock lock(generator.mutex());
  return generator.get_state();
}

class DataParallelStrategy final : public Strategy {
 public:
  DataParallelStrategy(ProcessGroup group, const StrategyOptions& options)
      : group_(std::move(group)),
        devices_(options.devices),
        weights_(options.device_weights),
        dp_loss_(options.dp_loss) {
    refuse_options_of_ddp(name_, options);
    if (group_.size() == 1) return;
    throw ConfigError(lockstep::str("strategy dp trains in one process, but there are ",
                                    group_.size(), "; use strategy ddp"));
  }

  const std::string& name() const override { return name_; }
  ProcessGroup& group() override { return group_; }
  std::vector<torch::Device> devices() const override { return devices_; }
  void describe(RunInfo& info) const override {
    info.devices = static_cast<int>(devices_.size());
    info.device_weights = weights_;
    info.dp_loss = to_string(dp_loss_);
  }
  std::string batch_parts() const override {
    if (devices_.size() == 1) return "whole";
    const std::string replicas = lockstep::str(devices_.size(), " replicas");
    return weights_.empty() ? replicas : replicas + " by weights " + lockstep::join(weights_);
  }

  void place(torch::nn::Module& module, torch::Device device) override {
    if (devices_.empty()) devices_ = usual_devices(device);
    require_first_device(device);
    module.to(devices_.front());
  }

  void attach(detail::TaskBase& task, const StepSettings& settings) override {
    task_ = &output_task_of(task, name_);
    settings_ = settings;
    core_.emplace(task.module(), devices_, DataParallelOptions{.weights = weights_});
    takes_turns_ = has_all_processors() && settings.deterministic;
    draws_.assign(devices_.size(), std::nullopt);
  }
  bool has_all_processors() const override {
    return core_->has_replicas() && devices_.front().is_cpu();
  }

  std::unique_ptr<RunOptimizer> make_optimizer(const OptimizerGroups& groups) override {
    const NamedTensors trainable = trainable_parameters(task_->module());
    if (!has_all_processors() || trainable.empty()) {
      return make_replicated_optimizer(trainable, groups, group_);
    }
    return make_shared_out_optimizer(trainable, groups);
  }

  // The generators of the first device and of the CPU are seeded with `seed` itself.
  void seed(std::uint64_t seed, torch::Device) override {
    step_seed_ = seed;
    forward_ = 0;
    for (std::size_t r = devices_.size(); r-- > 0;) {
      seed_generators(r == 0 ? seed : step_seed(seed, 0, 0, static_cast<int>(r)), devices_[r]);
    }
  }

  torch::Tensor step(const LoadedBatch& loaded, const StepPart& part,
                     PhaseSeconds& phases) override {
    torch::Tensor loss;
    {
      const PhaseScope scope(phases.forward, "forward");
      const AutocastScope autocast(settings_.precision, settings_.device.type());
      const detail::OutputBatch batch = task_->output_batch(loaded);
      loss = dp_loss_ == DpLoss::kOnEach && core_->has_replicas()
                 ? loss_on_each(batch)
                 : task_->loss(forward(batch.inputs), batch.targets);
    }
    const PhaseScope scope(phases.backward, "backward");
    weighted_loss(loss, part, settings_.scaler).backward();
    return loss.detach();
  }

  void begin_evaluation() override {}  // the first replica uses the module's buffers
  void evaluate(const LoadedBatch& loaded, Metrics& metrics) override {
    const detail::OutputBatch batch = task_->output_batch(loaded);
    task_->evaluate(forward(batch.inputs), batch.targets, metrics);
  }

 private:
  using Part = std::vector<torch::Tensor>;
  using Function = std::function<torch::Tensor(torch::nn::Module& replica, const Part& part)>;

  // The caller has one thread (has_all_processors()), so each replica's thread steps a share of the
  // parameters.
  std::unique_ptr<RunOptimizer> make_shared_out_optimizer(const NamedTensors& trainable,
                                                          const OptimizerGroups& groups) {
    std::vector<StageOptimizer> shares;
    for (NamedTensors& share : shares_of(trainable, devices_.size())) {
      shares.push_back(
          {.optimizer = make_replicated_optimizer(share, groups, group_), .parameters = share});
    }
    const std::size_t count = shares.size();
    return make_stage_optimizers(std::move(shares), groups, std::nullopt,
                                 [this, count](const std::function<void(std::size_t)>& of) {
                                   core_->on_threads([&](std::size_t replica) {
                                     if (replica < count) of(replica);
                                   });
                                 });
  }

  // Batches, labels and precision belong to the run's device. "cuda" means the first GPU here.
  void require_first_device(torch::Device run) const {
    const torch::Device first = devices_.front();
    const bool same_index = !run.has_index() || !first.has_index() || run.index() == first.index();
    if (first.type() == run.type() && (first.is_cpu() || same_index)) return;
    throw ConfigError(lockstep::str("strategy ", name_, ": the run's device is ", run,
                                    ", but the first replica is on ", first,
                                    "; set TrainerOptions::device to ", first));
  }

  // The results of function(replica, its part of the batch) for each replica that has a part.
  std::vector<torch::Tensor> run(const detail::data_parallel::Step& step,
                                 const Function& function) {
    std::vector<torch::Tensor> of_all(devices_.size());
    const bool trains = takes_turns_ && at::GradMode::is_enabled();
    const bool in_turn = trains && may_draw(step);
    const torch::Tensor before = trains && !in_turn ? cpu_generator_state() : torch::Tensor();
    step.run([&](std::size_t replica) {
      const auto compute = [&] { return function(core_->replica(replica), step.part(replica)); };
      of_all[replica] = in_turn ? computed_in_turn(replica, compute) : compute();
    });
    if (before.defined() && !cpu_generator_state().equal(before)) refuse_late_draws();
    ++forward_;
    std::vector<torch::Tensor> of_active;
    for (const std::size_t replica : step.active()) of_active.push_back(of_all[replica]);
    return of_active;
  }

  // Whether any replica in `step` drew random numbers in its first forward, or has not run one yet.
  bool may_draw(const detail::data_parallel::Step& step) const {
    if (std::ranges::find(draws_, std::optional(true)) != draws_.end()) return true;
    return std::ranges::any_of(step.active(),
                               [this](std::size_t replica) { return !draws_[replica]; });
  }

  // Replicas on CPUs share one generator. Each gets exclusive use of it, seeded for this forward,
  // so that the numbers do not depend on the order of the replicas.
  template <class Compute>
  torch::Tensor computed_in_turn(std::size_t replica, const Compute& compute) {
    const pipeline::RandomScope scope(
        devices_[replica], {.cpu = true},
        pipeline::micro_batch_seed(step_seed_, static_cast<int>(replica), forward_));
    torch::Tensor output = compute();
    if (!draws_[replica]) draws_[replica] = scope.drawn().any();
    return output;
  }

  [[noreturn]] void refuse_late_draws() const {
    throw ConfigError(lockstep::str(
        "strategy ", name_,
        ": the module drew random numbers that it did not draw in its first "
        "forward, or a data set drew some on the loader's threads, so that this run would not "
        "repeat itself; remove deterministic, let the first forward draw, too, and the data set "
        "from its SampleKey, or use strategy ddp"));
  }

  torch::Tensor forward(const Tensors& inputs) {
    if (!core_->has_replicas()) return task_->output(task_->module(), inputs);
    const detail::data_parallel::Step step = core_->begin(inputs);
    std::vector<detail::data_parallel::Flattened> outputs;
    for (const torch::Tensor& output : run(step, [&](torch::nn::Module& replica, const Part& part) {
           return task_->output(replica, part);
         })) {
      outputs.push_back({.tensors = {output}, .keys = {}});
    }
    return step.gather(outputs).front();
  }

  torch::Tensor loss_on_each(const detail::OutputBatch& batch) {
    Tensors all = batch.inputs;
    all.push_back(batch.targets);
    const detail::data_parallel::Step step = core_->begin(all);
    return step.mean(run(step, [&](torch::nn::Module& replica, const Part& part) {
      return task_->loss(task_->output(replica, {part.begin(), part.end() - 1}), part.back());
    }));
  }

  const std::string name_ = "dp";
  ProcessGroup group_;
  std::vector<torch::Device> devices_;
  const std::vector<double> weights_;
  const DpLoss dp_loss_;
  detail::OutputTaskBase* task_ = nullptr;
  StepSettings settings_;
  std::optional<detail::DataParallelCore> core_;
  bool takes_turns_ = false;                // for replicas that draw random numbers
  std::vector<std::optional<bool>> draws_;  // per replica, once known
  std::uint64_t step_seed_ = 0;
  int forward_ = 0;  // within the step
};

}  // namespace

std::unique_ptr<Strategy> make_data_parallel_strategy(ProcessGroup group,
                                                      const StrategyOptions& options) {
  return std::make_unique<DataParallelStrategy>(std::move(group), options);
}

}  // namespace lockstep::train
