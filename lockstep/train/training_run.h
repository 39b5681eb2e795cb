// One call of Trainer::fit(): its state from the first step to the report. Internal to the room.
#pragma once

#include <map>
#include <optional>
#include <string>

#include <lockstep/core/clock.h>
#include <lockstep/train/checkpoint.h>
#include <lockstep/train/trainer.h>

namespace lockstep {

/// training_run.cpp has the loop, training_run_checkpoint.cpp what is saved and how it is resumed.
class TrainingRun {
 public:
  TrainingRun(const TrainerOptions& options, Strategy& strategy, Task& task, Loader& train_loader,
              const Trainer::LoaderFactory& test_loader);
  RunReport run();

 private:
  // Where the run stands. `step` counts the optimizer steps done in the epoch, `total` in all
  // epochs.
  struct Position {
    std::int64_t epoch = 1;
    std::int64_t step = 0;
    std::int64_t total = 0;
  };

  void prepare();
  void begin();
  void begin_epoch();
  EpochReport train_epoch();
  bool next_batch(Batch& batch);
  void train_step(Batch& batch, std::int64_t parts);
  void begin_step();
  void train_part(const Batch& batch, const StepPart& part);
  void optimizer_step();
  void report_step(double epoch_seconds);
  std::optional<Evaluation> evaluate();
  std::int64_t skipped_images() const;
  RunReport finish(std::vector<EpochReport> epochs);

  NamedTensors resume();
  void require_space() const;
  void save();
  StateDict training_state(NamedTensors of_optimizer) const;  // of what changes the module
  std::map<std::string, std::string> settings() const;

  Batch moved(const Batch& batch) const;  // to the device
  bool finished() const;
  std::int64_t steps_of(std::int64_t batches) const;
  std::int64_t steps_per_epoch() const;
  std::int64_t steps_left() const;      // steps left in the epoch
  std::int64_t schedule_steps() const;  // of all epochs
  std::int64_t total_steps() const;     // the same, or what max_steps leaves of it
  std::int64_t test_batches() const;    // the most that an evaluation takes
  double command_seconds() const;
  template <class Event>
  void tell(Event&& event) const;

  const TrainerOptions& options_;
  Strategy& strategy_;
  Task& task_;
  Loader& train_loader_;
  const Trainer::LoaderFactory& make_test_loader_;
  std::unique_ptr<Loader> test_loader_;
  std::unique_ptr<RunOptimizer> optimizer_;
  double base_lr_ = 0;
  std::optional<GradScaler> scaler_;  // of float16
  const DataShare share_;
  RunInfo info_;
  Position position_;
  bool restored_ = false;  // the loader stands where the checkpoint was, to the sample
  const Clock::time_point start_;
  double seconds_to_first_step_ = 0;

  // Of the current epoch:
  MetricSums sums_;
  std::int64_t images_ = 0;
  PhaseSeconds phases_;
  // State of the current step:
  torch::Tensor loss_sum_;  // sum over the parts of the step
  double last_loss_ = 0;
};

}  // namespace lockstep
