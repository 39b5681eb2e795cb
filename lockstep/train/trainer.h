// The training loop.
//
//   Trainer trainer({.max_epochs = 10, .optimizer = AdamWOptions{.lr = 1e-3}},
//                   make_strategy("ddp", group));
//   RunReport report = trainer.fit(task, train_loader, test_loader);
#pragma once

#include <lockstep/core/cpp20.h>

#if LOCKSTEP_HAS_CPP20

#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <torch/types.h>

#include <lockstep/data/loader/loader.h>
#include <lockstep/optim/grad_scaler.h>
#include <lockstep/optim/options.h>
#include <lockstep/train/checkpoints/checkpoint_options.h>
#include <lockstep/train/checkpoints/state_dict.h>
#include <lockstep/train/measuring/profiler.h>
#include <lockstep/train/measuring/trace_options.h>
#include <lockstep/train/optimization/matmul_precision.h>
#include <lockstep/train/optimization/precision.h>
#include <lockstep/train/optimization/schedule.h>
#include <lockstep/train/strategies/strategy.h>
#include <lockstep/train/task/listener.h>
#include <lockstep/train/task/plateau.h>
#include <lockstep/train/task/task.h>

namespace lockstep {

class StepGraph;

/// Names and meanings are Lightning's, where it has the option.
struct TrainerOptions {
  // --- How long the run is ---
  std::int64_t max_epochs = 1;  ///< at most 1e9
  /// Epochs to train in any case, whatever max_time_seconds and early_stopping say.
  std::int64_t min_epochs = 0;
  /// Ends the run after this many optimizer steps in all. The schedule goes by max_epochs alone, so
  /// that a run may be stopped so and resumed.
  std::optional<std::int64_t> max_steps{};
  /// Ends the run, on all ranks together by rank 0's clock, with the step in which fit() has run
  /// for this long. Rank 0 tells the others after each step, on a GPU after each tenth step of the
  /// run and the last one of each epoch.
  std::optional<double> max_time_seconds{};
  /// Ends the run when a value of its evaluations no longer improves. An evaluation that there is
  /// only because the run stops does not count. "train_loss" is the mean over the steps that fit()
  /// has trained of the epoch: in a run resumed within an epoch, over the rest of it.
  std::optional<EarlyStoppingOptions> early_stopping{};
  /// Tries the program out: this many batches of each rank are trained and evaluated, and nothing
  /// is kept (no checkpoint, no early stopping). 0: off.
  std::int64_t fast_dev_run = 0;

  // --- Batches and evaluations ---
  /// Batches of each rank in an epoch, at most.
  std::optional<std::int64_t> limit_train_batches{};
  /// Trains on this many batches of each rank, the same ones in every epoch, and evaluates on as
  /// many at most: a model that can learn anything learns these by heart. 0: off.
  std::int64_t overfit_batches = 0;
  /// Batches of each rank whose gradients accumulate before an optimizer step; the last step of an
  /// epoch has what is left. A step's loss is the mean of its batches' losses. Steps, schedule and
  /// checkpoints count optimizer steps. At most 1e9.
  std::int64_t accumulate_grad_batches = 1;
  /// Batches of each rank in an evaluation, at most; 0: no evaluation.
  std::optional<std::int64_t> limit_val_batches{};
  /// Epochs from one evaluation to the next. The last epoch of a run is evaluated in any case.
  std::int64_t check_val_every_n_epoch = 1;
  /// Batches of each rank from one evaluation in an epoch to the next, with the step that reaches
  /// them. The evaluation at the end of the epoch stays. ConfigError in fit() for more batches than
  /// an epoch has, as in Lightning.
  std::optional<std::int64_t> val_check_interval{};
  /// Batches of each rank that are evaluated before the first step, to find what is wrong with the
  /// evaluation before an epoch has been spent. The results are dropped. Where early_stopping or
  /// the schedule watches a value that the task names, one batch is evaluated in any case.
  std::int64_t num_sanity_val_steps = 0;

  // --- Optimization ---
  OptimizerOptions optimizer{};
  /// The gradients of a step are scaled so that their 2-norm, of all together, is at most this.
  /// Lightning's gradient_clip_val with the algorithm "norm".
  std::optional<double> gradient_clip_norm{};
  /// Each element of the gradients is clamped to at most this magnitude. Lightning's
  /// gradient_clip_val with the algorithm "value". With both, the norm comes first.
  std::optional<double> gradient_clip_value{};
  ScheduleOptions schedule{};
  /// Evaluates, with this decay, an exponential moving average of the parameters in place of the
  /// parameters (model_ema.h), which checkpoints then hold, too. Costs their memory once more on
  /// each rank. ConfigError in fit() for a pipeline on several ranks.
  std::optional<double> ema_decay{};
  Precision precision = Precision::k32;
  GradScalerOptions grad_scaler{};  ///< of Precision::kFp16
  torch::Device device = torch::kCPU;
  /// LibTorch's generators, which dropout draws from, are seeded anew for each step from (seed,
  /// epoch, step, rank), so that a resumed run draws the same numbers.
  std::uint64_t seed = 0;
  /// Operations without a deterministic implementation throw (global_modes.h). With strategy dp on
  /// CPUs the forwards of replicas that draw random numbers, as for dropout, take turns, so that
  /// they draw the same ones in each run.
  bool deterministic = false;
  /// A backward that makes a value that is not a number throws and names the operation. Slow.
  bool detect_anomaly = false;
  /// cuDNN tries its algorithms for each new shape, and takes the fastest one from then on: for
  /// batches of one shape. ConfigError with `deterministic`. Lightning's benchmark.
  bool cudnn_benchmark = false;
  /// Lets float32 matrices on GPUs be multiplied in TF32 (matmul_precision.h), during the run.
  /// Absent: as LibTorch has it, which is kHighest unless the program has changed it.
  std::optional<MatmulPrecision> matmul_precision{};

  /// Records a whole step on a GPU once (gradients zeroed, forward, backward, reduction, clipping,
  /// update) in a CUDA graph, and replays it for each later step, so that the host launches one
  /// graph in place of some hundred kernels. The first steps run as they are, and so does a step
  /// with a smaller batch or fewer batches than others. Needs strategy single or ddp, over NCCL
  /// where there are several ranks, full batches of one shape, and a task that does not read
  /// tensors on the host in training_step(). Excludes detect_anomaly and a schedule that moves the
  /// momentum (ConfigError). The phases of a replayed step have no times.
  bool cuda_graph = false;
  /// What records and replays with cuda_graph: for tests. Default: make_step_graph(), which refuses
  /// the CPU.
  std::function<std::unique_ptr<StepGraph>(torch::Device, const ProcessGroup&)> make_step_graph{};

  // --- Files and reports ---
  CheckpointOptions checkpoints{};
  /// Go on from the newest whole checkpoint in `checkpoints.directory`. A run that is complete
  /// already is evaluated and reported as such (RunReport::already_complete).
  bool resume = false;

  /// Told about the run on rank 0.
  std::vector<ListenerHandle> listeners{};
  /// Steps of an epoch from one Listener::on_step() to the next; the last one is always told.
  std::int64_t log_every_n_steps = 1;
  /// Runs the model once on a batch before training and tells the listeners what it is made of: 1
  /// for its children, -1 for all modules (summarize.h). 0: off. Lightning's enable_model_summary.
  int model_summary_depth = 0;
  /// Steps of the run from one Listener::on_histograms() to the next: of each parameter and, except
  /// with strategy zero1, its gradient. ConfigError in fit() for a pipeline on several ranks. 0:
  /// off.
  std::int64_t log_histograms_every_n_steps = 0;
  ProfilerOptions profiler{};
  TraceOptions trace{};
  /// For the run's record: recipe, dataset, and where the caller knows better than the loader and
  /// LibTorch loader, threads_per_rank and global_batch. The Trainer fills in the rest.
  RunInfo info{};
  /// Seconds since the user started the command; since the constructor where absent.
  std::function<double()> command_seconds{};
};

/// Not thread-safe. After an exception of fit() the run is over, and so is its group, whose other
/// ranks get the reason. The Strategy decides
/// how a step is computed: see strategy.h.
class Trainer {
 public:
  using LoaderFactory = std::function<std::shared_ptr<Loader>()>;

  /// ConfigError for options that cannot be.
  Trainer(TrainerOptions options, std::unique_ptr<Strategy> strategy);

  /// Collective. Trains `task` and evaluates it after each epoch. Each rank's loaders give its
  /// share of the data (Strategy::data_share()); the training loaders of all ranks must have the
  /// same number of steps. The task's module is moved to the device, or to the strategy's.
  /// Afterwards it is the trained model: on every rank, or with a pipeline on ranks on rank 0.
  RunReport fit(Task& task, Loader& train_loader, Loader& test_loader);
  /// As above, but with a test loader that `make_test_loader` makes before the first epoch, if the
  /// run evaluates at all. Without the function it does not.
  RunReport fit(Task& task, Loader& train_loader, const LoaderFactory& make_test_loader = {});

  /// With ema_decay, the averaged parameters of the last fit() and the buffers of its module, under
  /// the names of state_dict(): for load_state_dict(). Otherwise empty. A copy, which takes the
  /// memory of the model until the next fit() or the end of the Trainer.
  const StateDict& averaged_state() const { return averaged_state_; }

 private:
  void run_failed(const std::exception& error) noexcept;

  TrainerOptions options_;
  std::unique_ptr<Strategy> strategy_;
  StateDict averaged_state_;
};

}  // namespace lockstep

#endif
