// The run in machine-readable form: the output of `lockstep train --json FILE`.
#pragma once

#include <filesystem>
#include <string>

#include <lockstep/train/task/listener.h>

namespace lockstep::report {

/// {"recipe", "strategy", "backend", "loader", "precision", "slow_precisions", "fused_kernels",
/// "world_size", "threads_per_rank", "global_batch", "learning_rate", "setup_seconds" (of rank 0:
/// "group", "loader", "model", "synchronization"), "already_complete", "skipped_images", "epochs":
/// [{"epoch", "steps", "seconds", "train_loss", "images_per_second", "phases" ("stage_waits" is a
/// part of "communication"), "first_batch_seconds" (a part of the phase "data"),
/// "processor_seconds", "processor_wait_seconds" and "busy_processors" (or null), "gpu" (null, or
/// "utilisation", "memory_utilisation", "memory_bytes", "power_watts"), "metrics", "rss_bytes"}],
/// "validation": {"loss", "accuracy"} or null, "best": {"metric", "value", "epoch", "weights" (a
/// file, or null)} or null, "test" (equal to "validation", which it was called in earlier
/// versions), "seconds_to_first_step", "seconds_total", "peak_rss_bytes"}. "validation" is the last
/// evaluation. It and "metrics" of an evaluated epoch have whatever the task reports: the loss and
/// each value by its name, and each table, such as a confusion matrix, as {"labels", "rows"}. A run
/// that ended early has a "stop_reason"; one that was interrupted also has "interrupted" (true)
/// and, if it keeps checkpoints, "saved_in" (the folder of its checkpoint). Some members are
/// present only where they apply. In an epoch of which the run made only a part: "steps_per_epoch"
/// (those of the whole epoch). With gradient accumulation: "accumulate_grad_batches". With
/// strategy dp: "devices", "dp_loss" and, if given, "device_weights". With
/// TrainerOptions::profiler: "profile" (objects with "action", "calls" and "seconds"). In a resumed
/// run: "resumed_from" (the checkpoint). With a pipeline: "stages", "workers" (threads or ranks),
/// "cuts" (the last block of every stage except the last), "whole_backward" (stages whose backward
/// the schedule would split, but cannot), "micro_batches", "schedule" and "recompute". Numbers that
/// are not finite, such as a diverged loss, become null, because JSON cannot represent them.
std::string to_json(const RunReport& report);

/// The file that `path` leads to through links; `path` itself if it does not exist.
std::filesystem::path behind_links(const std::filesystem::path& path);

/// Writes text to a file atomically (see write_file_atomically()). Devices and pipes, such as
/// /dev/stdout, are written directly. If `path` is a link, its target is replaced and the link
/// stays. Throws DataError on failure.
void write_text_file(const std::filesystem::path& path, const std::string& text);

/// Writes the report when the run ends. Checks the folder when the run begins: if files cannot be
/// created there, throws ConfigError instead of losing the results hours later.
class JsonReport final : public Listener {
 public:
  explicit JsonReport(std::filesystem::path path) : path_(std::move(path)) {}
  void on_run_begin(const RunInfo& info) override;
  void on_run_end(const RunReport& report) override;

 private:
  std::filesystem::path path_;
};

}  // namespace lockstep::report
