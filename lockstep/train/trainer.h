// The training loop.
//
//   Trainer trainer({.max_epochs = 10, .optimizer = AdamWOptions{.lr = 1e-3}},
//                   make_strategy("ddp", group));
//   RunReport report = trainer.fit(task, train_loader, validation_loader);
#pragma once

#include <lockstep/core/cpp20.h>

#if LOCKSTEP_HAS_CPP20

#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <type_traits>
#include <vector>

#include <torch/types.h>

#include <lockstep/core/export.h>
#include <lockstep/data/loader/loader.h>
#include <lockstep/optim/grad_scaler.h>
#include <lockstep/optim/options.h>
#include <lockstep/train/checkpoints/checkpoint_options.h>
#include <lockstep/train/checkpoints/state_dict.h>
#include <lockstep/train/measuring/profiler.h>
#include <lockstep/train/measuring/trace_options.h>
#include <lockstep/train/optimization/matmul_precision.h>
#include <lockstep/train/optimization/on_nan.h>
#include <lockstep/train/optimization/precision.h>
#include <lockstep/train/optimization/schedule.h>
#include <lockstep/train/stop_request.h>
#include <lockstep/train/strategies/strategy.h>
#include <lockstep/train/task/listener.h>
#include <lockstep/train/task/plateau.h>
#include <lockstep/train/task/task.h>

namespace lockstep::detail {
class StepGraph;
}  // namespace lockstep::detail

namespace lockstep {

/// Names and meanings follow Lightning's where it has the option.
struct LOCKSTEP_API TrainerOptions {
  // --- How long the run is ---
  std::int64_t max_epochs = 1;  ///< at most 1e9
  /// Minimum number of epochs, regardless of max_time_seconds and early_stopping.
  std::int64_t min_epochs = 0;
  /// Ends the run after this many optimizer steps in total. The schedule depends on max_epochs
  /// alone, so that a run may be stopped this way and resumed.
  std::optional<std::int64_t> max_steps{};
  /// Once fit() has run for this long by rank 0's clock, all ranks end the run after the same step.
  /// A single process ends after the current step. Several ranks agree about five times a second
  /// and at the end of each epoch, and end a few steps later. The run can be resumed
  /// (RunReport::interrupted). Set it on all ranks or on none.
  std::optional<double> max_time_seconds{};
  /// Ends the run as max_time_seconds does once any rank's request is set, regardless of
  /// min_epochs, and without an evaluation that would be made only because the run stops. It must
  /// outlive fit(). Set it on all ranks or on none.
  const StopRequest* stop_request = nullptr;
  /// Ends the run when a value of its evaluations no longer improves. An evaluation made only
  /// because the run stops does not count. "train_loss" is the mean over the steps that fit() has
  /// trained in the epoch; in a run resumed within an epoch, these are the rest of its steps.
  std::optional<EarlyStoppingOptions> early_stopping{};
  /// Quick test: trains and evaluates on this many batches of each rank and keeps nothing (no
  /// checkpoint, no early stopping). 0: off.
  std::int64_t fast_dev_run = 0;

  // --- Batches and evaluations ---
  /// Maximum number of batches per rank and epoch.
  std::optional<std::int64_t> limit_train_batches{};
  /// Trains on this many batches of each rank, identical in every epoch, and evaluates on at most
  /// as many. A model that can learn at all memorizes these. 0: off.
  std::int64_t overfit_batches = 0;
  /// Number of batches of each rank whose gradients accumulate before an optimizer step; the last
  /// step of an epoch takes the remaining ones. A step's loss is the mean of its batches' losses.
  /// Steps, schedule and checkpoints count optimizer steps. At most 1e9.
  std::int64_t accumulate_grad_batches = 1;
  /// Maximum number of batches of each rank in an evaluation; 0: no evaluation.
  std::optional<std::int64_t> limit_val_batches{};
  /// Epochs between evaluations. The last epoch of a run is always evaluated.
  std::int64_t check_val_every_n_epoch = 1;
  /// Batches of each rank between evaluations within an epoch, rounded up to a whole step. The
  /// epoch is still evaluated at its end. As in Lightning, fit() throws ConfigError if this exceeds
  /// the batches of an epoch.
  std::optional<std::int64_t> val_check_interval{};
  /// Number of batches of each rank to evaluate before the first step, which exposes errors in the
  /// evaluation before an epoch has been spent. The results are dropped. If early_stopping, the
  /// schedule or CheckpointOptions::save_top_k watches a value of the evaluations, at least one
  /// batch is evaluated. A run that fails in this evaluation has not told its listeners that it
  /// begins, and has made no folder of checkpoints.
  std::int64_t num_sanity_val_steps = 0;

  // --- Optimization ---
  /// Steps all trainable parameters, unless the task has a configure_optimizers().
  OptimizerOptions optimizer{};
  /// Scales the gradients of a step so that the 2-norm of all gradients together is at most this.
  /// Lightning's gradient_clip_val with the algorithm "norm".
  std::optional<double> gradient_clip_norm{};
  /// Clamps each element of the gradients to at most this magnitude. Lightning's gradient_clip_val
  /// with the algorithm "value". With both, the norm comes first.
  std::optional<double> gradient_clip_value{};
  /// Schedule of the learning rate, except in groups that the task gives schedules of their own.
  ScheduleOptions schedule{};
  /// Evaluates an exponential moving average of the parameters with this decay instead of the
  /// parameters (model_ema.h). Checkpoints then hold the average, too. Takes as much memory again
  /// as the parameters, on each rank. fit() throws ConfigError for a pipeline on several ranks.
  std::optional<double> ema_decay{};
  /// What follows if a loss is NaN or infinite (on_nan.h). To decide, kStop and kSkip wait for each
  /// step of a GPU and send a number to the other ranks. They cannot be combined with cuda_graph
  /// (ConfigError).
  OnNan on_nan = OnNan::kWarn;
  Precision precision = Precision::k32;
  GradScalerOptions grad_scaler{};  ///< for Precision::kFp16
  torch::Device device = torch::kCPU;
  /// LibTorch's generators, which dropout uses, are seeded for each step from (seed, epoch, step,
  /// rank), so that a resumed run draws identical numbers.
  std::uint64_t seed = 0;
  /// Operations without a deterministic implementation throw (global_modes.h). With strategy dp on
  /// CPUs, forwards of replicas that draw random numbers (dropout, for instance) take turns, so
  /// that they draw identical numbers in each run.
  bool deterministic = false;
  /// A backward that produces NaN throws and names the operation. Slow.
  bool detect_anomaly = false;
  /// cuDNN times its algorithms for each new shape and uses the fastest one from then on; useful if
  /// all batches have one shape. Cannot be combined with `deterministic` (ConfigError). Lightning's
  /// benchmark.
  bool cudnn_benchmark = false;
  /// Precision of float32 matrix products during the run, such as TF32 on GPUs
  /// (matmul_precision.h). Absent: LibTorch's setting, which is kHighest unless the program has
  /// changed it.
  std::optional<MatmulPrecision> matmul_precision{};

  /// Records a whole step on a GPU (gradients zeroed, forward, backward, reduction, clipping,
  /// update) in a CUDA graph once, and replays it for each later step, so that the host launches
  /// one graph instead of hundreds of kernels. The first steps run unrecorded, and so does a step
  /// with a smaller batch or fewer batches than others. Requires strategy single or ddp, over NCCL
  /// if there are several ranks, full batches of one shape, and a task whose training_step() does
  /// not read tensors on the host. Cannot be combined with detect_anomaly, a schedule that changes
  /// the momentum, an on_nan other than kWarn, several optimizers, or one of the program's own
  /// (ConfigError). Phases of a replay have no times.
  bool cuda_graph = false;
  /// For tests: makes the object that records and replays steps with cuda_graph. Default:
  /// make_step_graph(), which refuses the CPU.
  std::function<std::unique_ptr<detail::StepGraph>(torch::Device, const ProcessGroup&)>
      make_step_graph{};

  // --- Files and reports ---
  CheckpointOptions checkpoints{};
  /// Resumes from the newest complete checkpoint in `checkpoints.directory` (checkpoint_options.h).
  /// With kAuto, the same program can start a run and restart it. A run that is already complete is
  /// evaluated and reported as such (RunReport::already_complete).
  Resume resume = Resume::kNo;
  /// Lets a new run replace the checkpoints that `checkpoints.directory` holds. If there are any,
  /// fit() throws ConfigError unless `resume` or `overwrite` is set, also on a second call. Cannot
  /// be combined with `resume` (ConfigError).
  bool overwrite = false;

  /// Objects that receive the events of the run on rank 0.
  std::vector<ListenerHandle> listeners{};
  /// Steps of an epoch between calls of Listener::on_step(); the last step is always reported.
  std::int64_t log_every_n_steps = 1;
  /// Runs the model once on a batch before training and sends its summary to the listeners, to this
  /// depth: 1 for its children, -1 for all modules (summarize.h). 0: off. Lightning's
  /// enable_model_summary.
  int model_summary_depth = 0;
  /// Steps of the run between calls of Listener::on_histograms(), which gets a histogram of each
  /// parameter and, except with strategy zero1, of its gradient. fit() throws ConfigError for a
  /// pipeline on several ranks. 0: off.
  std::int64_t log_histograms_every_n_steps = 0;
  ProfilerOptions profiler{};
  TraceOptions trace{};
  /// Parts of the run's record that only the caller knows, such as recipe and dataset. It may also
  /// set loader, threads_per_rank and global_batch, which otherwise come from the loader and
  /// LibTorch. The Trainer fills in the rest.
  RunInfo info{};
  /// Returns the seconds since the user started the command. If absent, time counts from the
  /// Trainer's construction.
  std::function<double()> command_seconds{};
};

/// Not thread-safe. An exception thrown by fit() ends the run and aborts its group; the other ranks
/// receive the reason. The Strategy decides how a step is computed: see strategy.h.
class LOCKSTEP_API Trainer {
 public:
  template <BatchOfTensors B>
  using BatchLoaderFactory = std::function<std::shared_ptr<BatchLoader<B>>()>;
  using LoaderFactory = BatchLoaderFactory<Batch>;

  /// Throws ConfigError for invalid options.
  Trainer(TrainerOptions options, std::unique_ptr<Strategy> strategy);

  /// Collective. Trains `task` and evaluates it after each epoch. Each rank's loaders provide its
  /// share of the data (Strategy::data_share()); the training loaders of all ranks must have equal
  /// numbers of steps. The task's module is moved to the device, or to the strategy's devices.
  /// Afterwards it is the trained model: on every rank, or, with a pipeline on ranks, on rank 0
  /// only.
  template <BatchOfTensors B>
  RunReport fit(BatchTask<B>& task, BatchLoader<B>& train_loader,
                BatchLoader<B>& validation_loader) {
    return fit_any(task, train_loader, [&] {
      return std::shared_ptr<detail::LoaderBase>(std::shared_ptr<void>(), &validation_loader);
    });
  }
  /// As above, but `make_validation_loader` creates the validation loader before the first epoch,
  /// if the run evaluates at all. Without the function, the run does not evaluate.
  template <BatchOfTensors B>
  RunReport fit(BatchTask<B>& task, BatchLoader<B>& train_loader,
                const std::type_identity_t<BatchLoaderFactory<B>>& make_validation_loader = {}) {
    return fit_any(task, train_loader, make_validation_loader);
  }

  /// With ema_decay, the averaged parameters and running statistics (ModelEma) of the last fit()
  /// and its module's other buffers, under the names of state_dict(), for load_state_dict(); equal
  /// on all ranks. Otherwise empty. This copy takes as much memory as the model until the next
  /// fit() or the Trainer's destruction.
  const StateDict& averaged_state() const { return averaged_state_; }

 private:
  RunReport fit_any(
      detail::TaskBase& task, detail::LoaderBase& train_loader,
      const std::function<std::shared_ptr<detail::LoaderBase>()>& make_validation_loader);
  void run_failed(const std::exception& error) noexcept;

  TrainerOptions options_;
  std::unique_ptr<Strategy> strategy_;
  StateDict averaged_state_;
};

}  // namespace lockstep

#endif
