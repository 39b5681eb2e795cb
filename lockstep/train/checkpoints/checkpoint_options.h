// When a run writes checkpoints, and which of them it keeps.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include <lockstep/core/export.h>
#include <lockstep/train/task/plateau.h>

namespace lockstep {

/// Whether a run resumes from the newest complete checkpoint of its folder. Also takes a bool:
/// true is kYes, false is kNo.
class LOCKSTEP_API Resume {
 public:
  enum Mode {
    kNo,    ///< begins a new run
    kYes,   ///< resumes; if there is no checkpoint, that is an error
    kAuto,  ///< resumes if there is a checkpoint, and begins a new run otherwise
  };
  constexpr Resume(Mode mode = kNo) : mode_(mode) {}
  constexpr Resume(bool resumes) : mode_(resumes ? kYes : kNo) {}

  constexpr Mode mode() const { return mode_; }
  /// Whether a checkpoint is looked for.
  constexpr explicit operator bool() const { return mode_ != kNo; }

 private:
  Mode mode_;
};

/// Names and meanings follow Lightning's ModelCheckpoint where it has the option. Checkpoints are
/// written at the end of every epoch and of the run, and when the options say so.
struct LOCKSTEP_API CheckpointOptions {
  /// Folder of the run's checkpoints, created if missing; if empty, no checkpoints are written.
  /// Only one run at a time may write to it.
  std::filesystem::path directory{};
  /// Path of a symbolic link to the newest checkpoint's weights, so that other programs find them
  /// under a fixed name; if empty, there is no link. If there is a regular file at this path, as
  /// written by earlier versions, and `directory` has no checkpoint, a resumed run starts from that
  /// file.
  std::filesystem::path link{};

  // --- When ---
  /// Optimizer steps between two checkpoints within an epoch; 0: none.
  std::int64_t every_n_train_steps = 0;

  // --- Which are kept ---
  /// Number of newest checkpoints to keep, at least 1. With 1 there is no older one to fall back to
  /// if the newest is damaged. If none of these has only finite values, because the run has
  /// diverged, the newest one that has is kept in addition.
  std::int64_t keep_last = 2;
  /// Number of best checkpoints to keep in addition, as judged by `monitor` and `mode`; 0: none.
  /// Each evaluation within an epoch (val_check_interval) then writes a checkpoint, too.
  std::int64_t save_top_k = 0;
  /// Value to judge by: a value of the evaluations ("loss", "accuracy"), or "train_loss", the mean
  /// training loss of an epoch.
  std::string monitor = "loss";
  MetricGoal mode = MetricGoal::kMin;

  // --- How ---
  /// If set, the training thread only copies the tensors, into memory that the run keeps, and a
  /// background thread writes them. A checkpoint that is due while the previous one is still being
  /// written waits for it. Errors of the background thread are thrown by the next checkpoint or at
  /// the end of fit().
  bool background = false;
};

/// Throws ConfigError for invalid options.
LOCKSTEP_API void validate(const CheckpointOptions& options);

}  // namespace lockstep
