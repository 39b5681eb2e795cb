// What the strategies over pipelines of stages have in common, on threads and on ranks.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include <lockstep/core/strings.h>
#include <lockstep/parallel/pipeline/pipeline_options.h>
#include <lockstep/train/strategies/named_stages.h>
#include <lockstep/train/strategies/output_task_of.h>
#include <lockstep/train/strategy.h>

namespace lockstep {

class StagedStrategy : public Strategy {
 public:
  const std::string& name() const override { return name_; }
  void describe(RunInfo& info) const override {
    info.stages = options_.stages;
    info.micro_batches = options_.micro_batches;
    info.schedule = schedule_name(options_.schedule);
  }
  std::string batch_parts() const override {
    return lockstep::str(options_.micro_batches, " micro-batches");
  }
  /// Leaves the whole model where it is; attach() moves the stages.
  void place(torch::nn::Module&, torch::Device) override {}

 protected:
  /// ConfigError for options that no pipeline can have.
  StagedStrategy(std::string name, const StrategyOptions& options)
      : name_(std::move(name)),
        options_(options),
        workers_(workers_for(options.schedule, options.stages)),
        worker_of_(pipeline::make_table(pipeline_options(), options.stages, workers_,
                                        options.micro_batches)
                       .worker_of) {}

  /// For attach(): keeps the task and the settings, and returns the task's module in stages.
  std::vector<NamedStage> cut_into_stages(Task& task, const StepSettings& settings) {
    task_ = &output_task_of(task, name_);
    settings_ = settings;
    return named_stages(*task_, task.module(), options_.stages, settings_, name_);
  }

  /// What every pipeline of these strategies is made with. Between ranks the timeout has no effect.
  PipelineOptions pipeline_options() const {
    return {.micro_batches = options_.micro_batches,
            .schedule = options_.schedule,
            .timeout = options_.timeout};
  }
  const StrategyOptions& options() const { return options_; }
  int workers() const { return workers_; }
  /// The worker of each stage.
  const std::vector<int>& worker_of() const { return worker_of_; }

  // Known after cut_into_stages():
  OutputTask& task() { return *task_; }
  const StepSettings& settings() const { return settings_; }

 private:
  const std::string name_;
  const StrategyOptions options_;
  const int workers_;
  const std::vector<int> worker_of_;
  OutputTask* task_ = nullptr;
  StepSettings settings_;
};

}  // namespace lockstep
