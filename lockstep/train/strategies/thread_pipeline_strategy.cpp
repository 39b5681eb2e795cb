#include <lockstep/train/strategies/thread_pipeline_strategy.h>

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <lockstep/core/error.h>
#include <lockstep/parallel/pipeline/pipeline.h>
#include <lockstep/train/strategies/named_stages.h>
#include <lockstep/train/strategies/stage_criterion.h>
#include <lockstep/train/strategies/stage_optimizers.h>
#include <lockstep/train/strategies/staged_strategy.h>

namespace lockstep::train {
namespace {

std::int64_t bytes_of_tensor(const torch::Tensor& tensor) {
  return tensor.defined() ? static_cast<std::int64_t>(tensor.nbytes()) : 0;
}

// The bytes of each parameter's state, by the parameter's name.
std::map<std::string, std::int64_t> bytes_of_states(const NamedTensors& optimizer_state) {
  std::map<std::string, std::int64_t> bytes;
  for (const auto& [name, tensor] : optimizer_state) {
    bytes[parameter_of_state(name)] += bytes_of_tensor(tensor);
  }
  return bytes;
}

// Precision and batches belong to the run's device.
void require_devices_of_run(const std::vector<torch::Device>& devices, torch::Device run) {
  if (devices.front().type() == run.type()) return;
  throw ConfigError(lockstep::str("strategy pipeline: the run's device is ", run,
                                  ", but the first stage is on ", devices.front(),
                                  "; set TrainerOptions::device to ", devices.front().type()));
}

class ThreadPipelineStrategy final : public StagedStrategy {
 public:
  ThreadPipelineStrategy(ProcessGroup group, const StrategyOptions& options)
      : StagedStrategy("pipeline", options), group_(std::move(group)) {
    if (options.devices.empty() || options.devices.size() == static_cast<std::size_t>(workers())) {
      return;
    }
    throw ConfigError(lockstep::str(
        "strategy pipeline: ", amount_of(options.stages, "stage"), " by the schedule ",
        schedule_name(options.schedule), options.stages == 1 ? " has " : " have ",
        amount_of(workers(), "worker"), ", got ",
        amount_of(static_cast<std::int64_t>(options.devices.size()), "device")));
  }

  ProcessGroup& group() override { return group_; }

  void attach(detail::TaskBase& task, const StepSettings& settings) override {
    stages_ = cut_into_stages(task, settings);
    std::vector<pipeline::StageModule> modules;
    for (const NamedStage& stage : stages_) modules.push_back(stage.module);
    std::vector<torch::Device> devices = options().devices;
    if (devices.empty()) devices.assign(static_cast<std::size_t>(workers()), settings.device);
    require_devices_of_run(devices, settings.device);
    PipelineOptions pipe_options = pipeline_options();
    pipe_options.measure_memory = options().measure_memory;
    has_all_processors_ = devices.size() > 1 && devices.front().is_cpu();
    pipe_.emplace(std::move(modules), std::move(devices), std::move(pipe_options));
  }
  std::vector<torch::Device> devices() const override { return options().devices; }
  bool has_all_processors() const override { return has_all_processors_; }

  std::unique_ptr<RunOptimizer> make_optimizer(const OptimizerGroups& groups) override {
    std::vector<StageOptimizer> optimizers;
    std::set<std::string> seen;  // a parameter of several stages is stepped once
    for (const NamedStage& stage : stages_) {
      NamedTensors parameters;
      for (const auto& [name, tensor] : stage.trainable()) {
        if (seen.insert(name).second) parameters.emplace_back(name, tensor);
      }
      if (parameters.empty()) continue;
      optimizers.push_back({.optimizer = make_replicated_optimizer(parameters, groups, group_),
                            .parameters = parameters});
    }
    return make_stage_optimizers(std::move(optimizers), groups, std::nullopt);
  }

  torch::Tensor step(const LoadedBatch& loaded, const StepPart& part,
                     PhaseSeconds& phases) override {
    const detail::OutputBatch batch = task().output_batch(loaded);
    StageCriterion criterion(task(), settings(), part, batch.size);
    pipe_->step(criterion, batch.inputs, batch.targets);
    add_step(pipe_->step_times(), phases);
    return criterion.mean();
  }

  void begin_evaluation() override {}  // the stages use the module's buffers
  void evaluate(const LoadedBatch& loaded, Metrics& metrics) override {
    const detail::OutputBatch batch = task().output_batch(loaded);
    const torch::Tensor output = pipe_->forward(batch.inputs).at(0);
    task().evaluate(output, batch.targets.to(output.device()), metrics);
  }

  // Tensors shared by several stages are counted for the first of them.
  std::vector<std::int64_t> device_bytes(const NamedTensors& optimizer_state) const override {
    if (!options().measure_memory) return {};
    std::vector<std::int64_t> bytes = pipe_->peak_activation_bytes().workers;
    std::map<std::string, std::int64_t> states = bytes_of_states(optimizer_state);
    std::set<std::string> seen;
    for (std::size_t s = 0; s < stages_.size(); ++s) {
      std::int64_t& own = bytes[static_cast<std::size_t>(worker_of()[s])];
      for (const auto& [name, tensor] : stages_[s].parameters) {
        if (!seen.insert(name).second) continue;
        own += bytes_of_tensor(tensor) + bytes_of_tensor(tensor.grad()) + states[name];
      }
      for (const auto& [name, tensor] : stages_[s].buffers) {
        if (seen.insert(name).second) own += bytes_of_tensor(tensor);
      }
    }
    return bytes;
  }

 private:
  int own_workers() const override { return workers(); }

  ProcessGroup group_;
  std::vector<NamedStage> stages_;
  std::optional<Pipeline> pipe_;
  bool has_all_processors_ = false;
};

}  // namespace

std::unique_ptr<Strategy> make_thread_pipeline_strategy(ProcessGroup group,
                                                        const StrategyOptions& options) {
  return std::make_unique<ThreadPipelineStrategy>(std::move(group), options);
}

}  // namespace lockstep::train
