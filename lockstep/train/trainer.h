// The training loop.
//
//   Trainer trainer({.max_epochs = 10, .optimizer = AdamWOptions{.lr = 1e-3}},
//                   make_strategy("ddp", group));
//   RunReport report = trainer.fit(task, train_loader, [&] { return make_test_loader(); });
#pragma once

#include <lockstep/core/cpp20.h>

#if LOCKSTEP_HAS_CPP20

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <torch/types.h>

#include <lockstep/data/loader.h>
#include <lockstep/optim/grad_scaler.h>
#include <lockstep/optim/options.h>
#include <lockstep/train/listener.h>
#include <lockstep/train/precision.h>
#include <lockstep/train/schedule.h>
#include <lockstep/train/strategy.h>
#include <lockstep/train/task.h>

namespace lockstep {

struct TrainerOptions {
  std::int64_t max_epochs = 1;  ///< at most 1e9
  /// Ends the run after so many optimizer steps in all. The schedule goes by max_epochs alone, so
  /// that a run may be stopped so and resumed.
  std::optional<std::int64_t> max_steps{};
  /// Batches of each rank whose gradients accumulate before an optimizer step; the last step of an
  /// epoch has what is left. A step's loss is the mean of its batches' losses. Steps, schedule and
  /// checkpoints count optimizer steps. At most 1e9.
  std::int64_t accumulate_grad_batches = 1;
  /// Batches of each rank in an evaluation, at most; 0: no evaluation.
  std::optional<std::int64_t> limit_test_batches{};
  OptimizerOptions optimizer{};
  /// The gradients of a step are scaled so that their 2-norm, of all together, is at most this.
  std::optional<double> gradient_clip_norm{};
  ScheduleOptions schedule{};
  Precision precision = Precision::k32;
  GradScalerOptions grad_scaler{};  ///< of Precision::kFp16
  torch::Device device = torch::kCPU;
  /// Of dropout and whatever else draws from LibTorch's generators: they are seeded anew for each
  /// step from (seed, epoch, step, rank), so that a resumed run draws the same numbers.
  std::uint64_t seed = 0;

  /// Where the checkpoint is written after every epoch and at the end; none when empty.
  std::filesystem::path checkpoint{};
  /// Go on from `checkpoint`. A run that is complete already is evaluated and reported as such
  /// (RunReport::already_complete).
  bool resume = false;

  /// Told about the run on rank 0; they must outlive fit().
  std::vector<Listener*> listeners{};
  /// For the run's record: recipe, loader, dataset, threads_per_rank, global_batch. The Trainer
  /// fills in the rest.
  RunInfo info{};
  /// Seconds since the user started the command; since the constructor where absent.
  std::function<double()> command_seconds{};
};

/// Not thread-safe. After an exception the run is over, and so is its group. The Strategy decides
/// how a step is computed: see strategy.h.
class Trainer {
 public:
  using LoaderFactory = std::function<std::unique_ptr<Loader>()>;

  /// ConfigError for options that cannot be.
  Trainer(TrainerOptions options, std::unique_ptr<Strategy> strategy);

  /// Collective. Trains `task` and evaluates it after each epoch on what `test_loader` returns,
  /// which is called when it is first needed (none: no evaluation). Each rank's loaders give its
  /// share of the data (Strategy::data_share()); the training loaders of all ranks must have the
  /// same number of steps. The task's module is moved to the device, or to the strategy's.
  RunReport fit(Task& task, Loader& train_loader, const LoaderFactory& test_loader = {});

 private:
  TrainerOptions options_;
  std::unique_ptr<Strategy> strategy_;
};

}  // namespace lockstep

#endif
