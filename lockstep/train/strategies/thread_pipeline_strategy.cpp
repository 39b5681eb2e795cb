#include <lockstep/train/strategies/thread_pipeline_strategy.h>

#include <optional>
#include <set>
#include <string>
#include <utility>

#include <lockstep/core/error.h>
#include <lockstep/parallel/pipeline/pipeline.h>
#include <lockstep/train/strategies/named_stages.h>
#include <lockstep/train/strategies/output_task_of.h>
#include <lockstep/train/strategies/pipeline_phases.h>
#include <lockstep/train/strategies/stage_criterion.h>
#include <lockstep/train/strategies/stage_optimizers.h>

namespace lockstep {
namespace {

class ThreadPipelineStrategy final : public Strategy {
 public:
  ThreadPipelineStrategy(ProcessGroup group, const StrategyOptions& options)
      : group_(std::move(group)),
        options_(options),
        workers_(workers_for(options.schedule, options.stages)) {
    // Throws now for options that no pipeline can have.
    pipeline::make_table(pipeline_options(), options_.stages, workers_, options_.micro_batches);
    if (options_.devices.empty() || options_.devices.size() == static_cast<std::size_t>(workers_)) {
      return;
    }
    throw ConfigError(lockstep::str("strategy pipeline: ", options_.stages,
                                    " stages by the schedule ", schedule_name(options_.schedule),
                                    " have ", workers_, " workers, got ", options_.devices.size(),
                                    " devices"));
  }

  const std::string& name() const override { return name_; }
  ProcessGroup& group() override { return group_; }
  void describe(RunInfo& info) const override {
    info.stages = options_.stages;
    info.micro_batches = options_.micro_batches;
    info.schedule = schedule_name(options_.schedule);
  }
  std::string batch_parts() const override {
    return lockstep::str(options_.micro_batches, " micro-batches");
  }

  void place(torch::nn::Module&, torch::Device) override {}  // attach() moves the stages

  void attach(Task& task, const StepSettings& settings) override {
    task_ = &output_task_of(task, name_);
    settings_ = settings;
    stages_ = named_stages(*task_, task.module(), options_.stages, settings_, name_);
    std::vector<pipeline::StageModule> modules;
    for (const NamedStage& stage : stages_) modules.push_back(stage.module);
    std::vector<torch::Device> devices = options_.devices;
    if (devices.empty()) devices.assign(static_cast<std::size_t>(workers_), settings_.device);
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
    StageCriterion criterion(*task_, settings_, part, batch.size);
    pipe_->step(criterion, batch.images, batch.labels);
    add_phases(pipe_->timeline(), workers_, phases);
    return criterion.mean();
  }

  void train(bool on) override { pipe_->train(on); }
  void begin_evaluation() override {}  // the buffers are the module's
  void evaluate(const Batch& batch, MetricSums& sums) override {
    const torch::Tensor output = pipe_->forward(batch.images);
    task_->evaluate(output, batch.labels.to(output.device()), sums);
  }

 private:
  PipelineOptions pipeline_options() const {
    return {.micro_batches = options_.micro_batches,
            .schedule = options_.schedule,
            .timeout = options_.timeout};
  }

  const std::string name_ = "pipeline";
  ProcessGroup group_;
  const StrategyOptions options_;
  const int workers_;
  OutputTask* task_ = nullptr;
  StepSettings settings_;
  std::vector<NamedStage> stages_;
  std::optional<Pipeline> pipe_;
};

}  // namespace

std::unique_ptr<Strategy> make_thread_pipeline_strategy(ProcessGroup group,
                                                        const StrategyOptions& options) {
  return std::make_unique<ThreadPipelineStrategy>(std::move(group), options);
}

}  // namespace lockstep
