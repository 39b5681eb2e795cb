#include <lockstep/train/strategies/thread_pipeline_strategy.h>

#include <optional>
#include <set>
#include <string>
#include <utility>

#include <lockstep/core/error.h>
#include <lockstep/parallel/pipeline/pipeline.h>
#include <lockstep/train/strategies/named_stages.h>
#include <lockstep/train/strategies/pipeline_phases.h>
#include <lockstep/train/strategies/stage_criterion.h>
#include <lockstep/train/strategies/stage_optimizers.h>
#include <lockstep/train/strategies/staged_strategy.h>

namespace lockstep {
namespace {

class ThreadPipelineStrategy final : public StagedStrategy {
 public:
  ThreadPipelineStrategy(ProcessGroup group, const StrategyOptions& options)
      : StagedStrategy("pipeline", options), group_(std::move(group)) {
    if (options.devices.empty() || options.devices.size() == static_cast<std::size_t>(workers())) {
      return;
    }
    throw ConfigError(lockstep::str("strategy pipeline: ", options.stages,
                                    " stages by the schedule ", schedule_name(options.schedule),
                                    " have ", workers(), " workers, got ", options.devices.size(),
                                    " devices"));
  }

  ProcessGroup& group() override { return group_; }

  void attach(Task& task, const StepSettings& settings) override {
    stages_ = cut_into_stages(task, settings);
    std::vector<pipeline::StageModule> modules;
    for (const NamedStage& stage : stages_) modules.push_back(stage.module);
    std::vector<torch::Device> devices = options().devices;
    if (devices.empty()) devices.assign(static_cast<std::size_t>(workers()), settings.device);
    pipe_.emplace(std::move(modules), std::move(devices), pipeline_options());
  }

  std::unique_ptr<RunOptimizer> make_optimizer(const OptimizerOptions& options) override {
    std::vector<StageOptimizer> optimizers;
    std::set<std::string> seen;  // a parameter of several stages is stepped once
    for (const NamedStage& stage : stages_) {
      NamedTensors parameters;
      for (const auto& [name, tensor] : stage.trainable()) {
        if (seen.insert(name).second) parameters.emplace_back(name, tensor);
      }
      if (parameters.empty()) continue;
      optimizers.push_back({.optimizer = make_replicated_optimizer(parameters, options, group_),
                            .parameters = parameters});
    }
    return make_stage_optimizers(std::move(optimizers), options, std::nullopt);
  }

  torch::Tensor step(const Batch& batch, const StepPart& part, PhaseSeconds& phases) override {
    StageCriterion criterion(task(), settings(), part, batch.size);
    pipe_->step(criterion, batch.images, batch.labels);
    add_phases(pipe_->timeline(), workers(), phases);
    return criterion.mean();
  }

  void train(bool on) override { pipe_->train(on); }
  void begin_evaluation() override {}  // the buffers are the module's
  void evaluate(const Batch& batch, MetricSums& sums) override {
    const torch::Tensor output = pipe_->forward(batch.images);
    task().evaluate(output, batch.labels.to(output.device()), sums);
  }

 private:
  ProcessGroup group_;
  std::vector<NamedStage> stages_;
  std::optional<Pipeline> pipe_;
};

}  // namespace

std::unique_ptr<Strategy> make_thread_pipeline_strategy(ProcessGroup group,
                                                        const StrategyOptions& options) {
  return std::make_unique<ThreadPipelineStrategy>(std::move(group), options);
}

}  // namespace lockstep
