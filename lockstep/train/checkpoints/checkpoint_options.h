// Which checkpoints a run writes, and which of them it keeps.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include <lockstep/train/task/plateau.h>

namespace lockstep {

/// Names and meanings are those of Lightning's ModelCheckpoint, where it has the option.
/// Checkpoints are written at the end of every epoch and of the run, and where the options say so.
struct CheckpointOptions {
  /// Folder of the run's checkpoints, which is made; none are written when empty. One run at a time
  /// may write into it.
  std::filesystem::path directory{};
  /// Becomes a symbolic link to the weights of the newest checkpoint, for programs that want one
  /// name for them; none when empty. Where it is a file and `directory` has no checkpoint, a
  /// resumed run goes on from the file: earlier versions wrote one.
  std::filesystem::path link{};

  // --- When ---
  /// Optimizer steps of the run from one checkpoint within an epoch to the next; 0: none.
  std::int64_t every_n_train_steps = 0;

  // --- Which are kept ---
  /// The newest checkpoints that are kept, at least 1. With 1 there is nothing to fall back to when
  /// the newest one is found damaged.
  std::int64_t keep_last = 2;
  /// The best checkpoints that are kept beside these, as `monitor` and `mode` judge them; 0: none.
  /// Evaluations within an epoch (val_check_interval) then have a checkpoint each, too.
  std::int64_t save_top_k = 0;
  /// A value of the evaluations ("loss", "accuracy"), or "train_loss", the mean of an epoch.
  std::string monitor = "loss";
  MetricGoal mode = MetricGoal::kMin;

  // --- How ---
  /// The training thread only copies the tensors, into memory that the run keeps, and a thread of
  /// its own writes them. A checkpoint that is due while the one before it is still being written
  /// waits for it. What fails in the thread is thrown by the next checkpoint or at the end of
  /// fit().
  bool background = false;
};

/// ConfigError for options that cannot be.
void validate(const CheckpointOptions& options);

}  // namespace lockstep
