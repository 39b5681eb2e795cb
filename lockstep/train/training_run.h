// One call of Trainer::fit(): its state from the first step to the report. Internal to
// lockstep/train.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <lockstep/core/clock.h>
#include <lockstep/parallel/base/thread_share.h>
#include <lockstep/train/captured_step.h>
#include <lockstep/train/checkpoints/checkpoint.h>
#include <lockstep/train/checkpoints/checkpoint_store.h>
#include <lockstep/train/checkpoints/model_ema.h>
#include <lockstep/train/checkpoints/tensor_snapshot.h>
#include <lockstep/train/deferred_kernel.h>
#include <lockstep/train/finite_steps.h>
#include <lockstep/train/measuring/background_job.h>
#include <lockstep/train/measuring/epoch_clock.h>
#include <lockstep/train/measuring/gpu_sampler.h>
#include <lockstep/train/measuring/phase_timer.h>
#include <lockstep/train/measuring/run_trace.h>
#include <lockstep/train/measuring/step_trace.h>
#include <lockstep/train/optimization/optimizer_plan.h>
#include <lockstep/train/recorded_memory.h>
#include <lockstep/train/stop_agreement.h>
#include <lockstep/train/task/plateau.h>
#include <lockstep/train/task/step_reports.h>
#include <lockstep/train/trainer.h>

namespace lockstep::train {

/// training_run.cpp has the loop over epochs and the run's end, training_run_setup.cpp what
/// precedes the first step, training_run_step.cpp a step, training_run_graph.cpp the steps that a
/// CUDA graph replays, training_run_evaluation.cpp the evaluations and their consequences,
/// training_run_checkpoint.cpp saving and resuming, and training_run_reports.cpp the other reports.
class TrainingRun {
 public:
  using LoaderFactory = std::function<std::shared_ptr<detail::LoaderBase>()>;

  TrainingRun(const TrainerOptions& options, Strategy& strategy, detail::TaskBase& task,
              detail::LoaderBase& train_loader, const LoaderFactory& make_test_loader);
  RunReport run();
  /// See Trainer::averaged_state().
  StateDict averaged_state();

 private:
  // The run's position. `step` counts the optimizer steps done in the epoch, `total` those in all
  // epochs.
  struct Position {
    std::int64_t epoch = 1;
    std::int64_t step = 0;
    std::int64_t total = 0;
  };

  // A metric that an option watches, and the option's name in messages.
  struct WatchedName {
    const char* owner = "";
    std::string metric{};
  };

  // While it lives, the epoch's clocks are paused.
  struct EpochPause {
    EpochClock::Pause clock;
    GpuSampler::Pause gpus;
  };

  // Number and total duration of an action.
  struct Tally {
    std::int64_t calls = 0;
    double seconds = 0;
  };

  void begin_training();
  void begin_epoch();
  EpochPause pause_epoch();
  EpochReport train_epoch();
  EpochReport report_epoch(std::int64_t steps);
  double mean_loss() const;
  void end_epoch(EpochReport& report);
  std::int64_t skipped_images() const;
  std::string stop_reason() const;
  RunReport finish(std::vector<EpochReport> epochs);

  void complete_info();
  void prepare();
  void begin_traces();
  void couple();
  void watch_gpus();
  void prepare_average();
  void require_val_check_interval() const;
  void begin();

  const LoadedBatch* next_batch(bool is_first);
  void train_step(const LoadedBatch& first, std::int64_t parts);
  const LoadedBatch& require_batch(const LoadedBatch& first, std::int64_t part, std::int64_t parts);
  void begin_step();
  void zero_gradients();
  void keep_buffers();
  void update_if_finite();
  std::string place_of_step(std::int64_t epoch, std::int64_t step) const;
  void update_parameters();
  void in_optimizer_phase(const char* span, const std::function<void()>& work);
  void count_loss(const torch::Tensor& loss, const LoadedBatch& batch);
  void add_losses();
  void train_part(const LoadedBatch& batch, const StepPart& part);
  torch::Tensor strategy_step(const LoadedBatch& batch, const StepPart& part);
  void optimizer_step();
  LoadedBatch moved(const LoadedBatch& batch) const;  // to the device

  void prepare_graph();
  void train_through_graph(const LoadedBatch& first, std::int64_t parts);
  std::vector<torch::Tensor> graph_step();
  std::vector<torch::Tensor> computed_step(const std::vector<LoadedBatch>& batches);

  std::vector<WatchedName> watched_names() const;
  void require_watched_values() const;
  void check_sanity();
  std::optional<Evaluation> evaluate();
  Evaluation evaluate_batches(std::int64_t most);
  bool evaluation_is_due(std::int64_t batches_before) const;
  void evaluate_in_epoch();
  bool takes_pictures() const;
  void keep_samples(const LoadedBatch& batch);
  void show_picture(std::int64_t epoch);
  void watch(const std::optional<Evaluation>& test, std::optional<double> train_loss,
             std::int64_t epoch);
  std::optional<BestEvaluation> best_evaluation() const;

  void open_checkpoints();
  NamedTensors resume();
  std::filesystem::path resumed_path();
  CheckpointInfo read_checkpoint(NamedTensors& of_optimizer);
  void broadcast_checkpoint(CheckpointInfo& checkpoint, std::optional<std::int64_t>& taken);
  void continue_from(CheckpointInfo checkpoint, std::optional<std::int64_t> taken);
  void warn_of_differences(const std::map<std::string, std::string>& before) const;
  void restore_states(const std::map<std::string, std::string>& saved);
  std::map<std::string, std::string> states() const;
  void prepare_checkpoints();
  bool checkpoint_is_due(bool after_evaluation) const;
  void save();
  void write_checkpoint(const NamedTensors& of_optimizer);
  CheckpointInfo checkpoint_info() const;
  StateDict training_state(NamedTensors of_optimizer) const;  // all state from earlier steps
  std::map<std::string, std::string> settings() const;

  void report_step();
  void tell_late_reports(bool all);
  void settle_times();
  void summarize_module();
  void require_whole_module() const;
  void tell_histograms();
  std::vector<ProfiledAction> profile() const;

  bool finished() const;
  bool stopped_early() const;  // by early stopping
  bool interrupted() const;    // by a request or the time limit
  bool all_steps_done() const;
  bool already_complete() const;  // when it was resumed
  std::int64_t steps_of(std::int64_t batches) const;
  std::int64_t loader_epoch() const;  // epoch of the training data, from 0
  std::int64_t batches_per_epoch() const;
  std::int64_t batches_done() const;  // in the epoch
  std::int64_t batches_left() const;
  std::int64_t steps_per_epoch() const;
  std::int64_t steps_left() const;      // steps left in the epoch
  std::int64_t schedule_steps() const;  // number of steps in all epochs
  std::int64_t total_steps() const;     // like schedule_steps(), but limited by max_steps
  std::int64_t test_batches() const;    // maximum number in an evaluation
  double command_seconds() const;
  // Calls event(listener) for each listener, on rank 0.
  bool has_audience() const { return strategy_.group().rank() == 0 && !options_.listeners.empty(); }
  template <class Event>
  void tell(Event&& event) const {
    if (strategy_.group().rank() != 0) return;
    for (const ListenerHandle& listener : options_.listeners) event(*listener);
  }

  const TrainerOptions& options_;
  Strategy& strategy_;
  detail::TaskBase& task_;
  detail::LoaderBase& train_loader_;
  const LoaderFactory& make_test_loader_;
  std::shared_ptr<detail::LoaderBase> test_loader_;
  std::optional<SingleThreadScope> alone_;  // if the strategy uses all processors
  const OptimizerPlan plan_;
  std::optional<RunOptimizers> optimizer_;
  const double base_lr_;
  std::optional<GradScaler> scaler_;  // for float16
  std::optional<ModelEma> ema_;
  std::optional<DeferredKernel> kernel_;           // with cuda_graph
  std::optional<CapturedStep> captured_;           // with cuda_graph; refers to the members above
  std::optional<RecordedMemory> recorded_memory_;  // with cuda_graph, once a step is recorded
  FiniteSteps finite_steps_;
  std::optional<PlateauSchedule> plateau_;
  std::optional<EarlyStopping> early_stopping_;
  BestValue best_;
  MetricUnit best_unit_ = MetricUnit::kNumber;  // as the evaluations give it
  std::optional<LoadedBatch> samples_;          // from rank 0's evaluations, for pictures
  const DataShare share_;
  RunInfo info_;
  Position position_;
  bool resumes_ = false;   // decided by rank 0
  bool restored_ = false;  // whether the loader has resumed at the checkpoint's exact sample
  const Clock::time_point start_;
  StopAgreement stop_;
  double seconds_to_first_step_ = 0;
  std::optional<ModelSummary> summary_;
  std::int64_t skipped_elsewhere_;       // skipped images counted by the loaders outside this run
  StepReports late_reports_;             // on a device
  std::optional<StepTrace> operations_;  // on rank 0
  std::optional<RunTrace> trace_;

  // Totals of this run so far:
  PhaseSeconds all_phases_;  // without those of the current epoch
  std::int64_t batches_trained_ = 0;
  std::int64_t steps_trained_ = 0;
  Tally evaluations_;
  Tally checkpoints_;

  std::map<std::string, double> watched_values_;  // from the latest watch()
  std::int64_t watched_at_ = 0;                   // total steps at that time
  std::optional<CheckpointStore> store_;          // on rank 0
  TensorSnapshot snapshot_;
  BackgroundJob writing_;  // reads the snapshot and writes to the store: must end before them

  // The current epoch:
  Metrics sums_;
  std::int64_t images_ = 0;
  PhaseSeconds phases_;
  double first_batch_seconds_ = 0;  // part of phases_.data
  EpochClock clock_;                // pauses for evaluations and checkpoints
  std::optional<GpuSampler> gpus_;  // on GPUs
  // State of the current step:
  torch::Tensor loss_sum_;  // sum over the parts of the step
  std::vector<std::pair<torch::Tensor, std::int64_t>> step_losses_;  // with their samples
  std::int64_t parts_ = 1;
  std::optional<double> momentum_;  // if the schedule changes it

  std::optional<PhaseTimer> device_timer_;  // not on a CPU; adds to the seconds above
};

}  // namespace lockstep::train
