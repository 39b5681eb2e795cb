// The common base of the pipeline strategies, on threads and on ranks.
#pragma once

#include <algorithm>
#include <deque>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <lockstep/core/strings.h>
#include <lockstep/parallel/pipeline/pipeline_options.h>
#include <lockstep/parallel/pipeline/step_times.h>
#include <lockstep/train/strategies/named_stages.h>
#include <lockstep/train/strategies/output_task_of.h>
#include <lockstep/train/strategies/pipeline_phases.h>
#include <lockstep/train/strategies/refuse_options_of_ddp.h>
#include <lockstep/train/strategies/strategy.h>
#include <lockstep/train/task/module_modes.h>

namespace lockstep::train {

class StagedStrategy : public Strategy {
 public:
  const std::string& name() const override { return name_; }
  void describe(RunInfo& info) const override {
    info.stages = options_.stages;
    info.workers = workers_;
    info.cuts = cuts_;
    info.whole_backward = whole_backward_;
    info.micro_batches = options_.micro_batches;
    info.schedule = schedule_name(options_.schedule);
    info.recompute = options_.recompute;
  }
  std::string batch_parts() const override {
    return amount_of(options_.micro_batches, "micro-batch");
  }
  /// Leaves the whole model where it is; attach() moves the stages.
  void place(torch::nn::Module&, torch::Device) override {}
  void follow_modes() override {
    for (const pipeline::StageModule& each : modules_) follow_mode(each.module(), task_->module());
  }
  void settle_phases(PhaseSeconds& phases) override {
    while (!steps_.empty()) add_oldest_step(phases);
  }

 protected:
  /// Throws ConfigError for options that pipelines do not support.
  StagedStrategy(std::string name, const StrategyOptions& options)
      : name_(std::move(name)),
        options_(options),
        workers_(workers_for(options.schedule, options.stages)),
        table_(pipeline::make_table(pipeline_options(), options.stages, workers_,
                                    options.micro_batches)) {
    refuse_options_of_ddp(name_, options);
  }

  /// For attach(): keeps the task and the settings, and returns the task's module in stages.
  std::vector<NamedStage> cut_into_stages(detail::TaskBase& task, const StepSettings& settings) {
    task_ = &output_task_of(task, name_);
    settings_ = settings;
    steps_.clear();  // A run that failed may have left some.
    auto stages = named_stages(*task_, task.module(), options_.stages, settings_, name_);
    cuts_ = names_of_cuts(stages);
    modules_.clear();
    for (const NamedStage& stage : stages) modules_.push_back(stage.module);
    whole_backward_.clear();
    for (int stage = 0; stage < options_.stages; ++stage) {
      const NamedStage& each = stages[static_cast<std::size_t>(stage)];
      if (each.module.has_whole_backward() && splits_backward(stage)) {
        whole_backward_.push_back(stage);
      }
    }
    return stages;
  }

  /// Options common to all pipelines of these strategies. Between ranks the timeout has no effect.
  PipelineOptions pipeline_options() const {
    return {.micro_batches = options_.micro_batches,
            .schedule = options_.schedule,
            .recompute = options_.recompute,
            .timeout = options_.timeout};
  }
  /// Adds the times of a step to `phases` once they are known, at the latest in settle_phases().
  void add_step(std::shared_ptr<const pipeline::StepTimes> step, PhaseSeconds& phases) {
    steps_.push_back(std::move(step));
    while (!steps_.empty() && steps_.front()->is_known()) add_oldest_step(phases);
  }
  /// How many workers of the pipeline this process has.
  virtual int own_workers() const = 0;

  const StrategyOptions& options() const { return options_; }
  int workers() const { return workers_; }
  /// The worker of each stage.
  const std::vector<int>& worker_of() const { return table_.worker_of; }

  // Known after cut_into_stages():
  detail::OutputTaskBase& task() { return *task_; }
  const StepSettings& settings() const { return settings_; }

 private:
  // Whether the schedule splits the backward of `stage` and the stage supports it.
  bool splits_backward(int stage) const {
    const auto& actions =
        table_.workers[static_cast<std::size_t>(table_.worker_of[static_cast<std::size_t>(stage)])];
    return std::any_of(actions.begin(), actions.end(), [&](const pipeline::Action& action) {
      return action.stage == stage && action.kind == pipeline::Kind::kBackwardInput;
    });
  }

  void add_oldest_step(PhaseSeconds& phases) {
    add_phases(steps_.front()->durations(), own_workers(), phases);
    steps_.pop_front();
  }

  const std::string name_;
  const StrategyOptions options_;
  const int workers_;
  const pipeline::Table table_;  // as if every stage's backward could be split
  std::vector<std::string> cuts_;
  std::vector<pipeline::StageModule> modules_;
  std::vector<int> whole_backward_;
  detail::OutputTaskBase* task_ = nullptr;
  StepSettings settings_;
  std::deque<std::shared_ptr<const pipeline::StepTimes>> steps_;  // not yet added to the phases
};

}  // namespace lockstep::train
