// The run.json files of invented runs.
#pragma once

#include <string>
#include <vector>

#include <lockstep/core/strings.h>
#include <tests/support/temporary_directory.h>

namespace lockstep::testing_support {

struct SampleRecord {
  std::string recipe = "mnist";
  std::string state = "complete";
  std::string error{};  ///< error of a run that failed
  std::string command = "lockstep train mnist --out run";
  int ranks = 2;
  std::string device = "cpu";
  std::string precision = "32";
  int batch = 0;           ///< images over all ranks; 0: 64 a rank
  std::string settings{};  ///< further members of the record: R"(, "name": value)"
  int epochs = 3;
  /// Images per second in the first epoch. Each later epoch is a hundredth faster than the one
  /// before it.
  double images_per_second = 1000;
  std::string gpu = "null";  ///< measurement of each epoch, as JSON
  double stage_waits = 0;    ///< in each epoch
  double first_batch = 0;    ///< seconds of each epoch's phase "data"
};

/// An epoch of 10 steps in 2 s: 0.2 s data, 0.6 s forward, 0.8 s backward, 0.2 s communication, 0.1
/// s optimizer. The training loss is 1 / epoch, the accuracy 1 - 1 / (2 epoch).
inline std::string sample_epoch(const SampleRecord& run, int epoch) {
  return str(
      R"({"epoch": )", epoch, R"(, "steps": 10, "seconds": 2.0, "train_loss": )", 1.0 / epoch,
      R"(, "images_per_second": )", run.images_per_second * (1 + 0.01 * (epoch - 1)),
      R"(, "phases": {"data": 0.2, "forward": 0.6, "backward": 0.8, "communication": 0.2, )",
      R"("stage_waits": )", run.stage_waits, R"(, "optimizer": 0.1}, "first_batch_seconds": )",
      run.first_batch, R"(, "processor_seconds": 1.9, "gpu": )", run.gpu,
      R"(, "metrics": {"loss": )", 1.1 / epoch, R"(, "accuracy": )", 1 - 0.5 / epoch,
      R"(, "confusion": {"labels": ["a"], "rows": [[1]]}}, "rss_bytes": 1000000})");
}

inline std::string sample_record(const SampleRecord& run) {
  std::vector<std::string> epochs;
  for (int epoch = 1; epoch <= run.epochs; ++epoch) epochs.push_back(sample_epoch(run, epoch));
  return str(
      R"({"state": ")", run.state, "\"",
      run.error.empty() ? "" : str(R"(, "error": ")", run.error, "\""),
      R"(, "started": "2026-11-25T13:00:00Z", "versions": {"libtorch": "2.13.0"}, "command": ")",
      run.command, R"(", "recipe": ")", run.recipe, R"(", "strategy": ")",
      run.ranks > 1 ? "ddp" : "single", R"(", "backend": "shm", "loader": "native", "device": ")",
      run.device, R"(", "precision": ")", run.precision, R"(", "world_size": )", run.ranks,
      R"(, "threads_per_rank": 1, "global_batch": )", run.batch > 0 ? run.batch : 64 * run.ranks,
      run.settings,
      R"(, "usable_processors": 8, "seconds_total": 9.5, "peak_rss_bytes": 162000000, "epochs": [)",
      join(epochs), "]}");
}

/// Writes the record to FOLDER/name/run.json.
inline void write_sample_record(const TemporaryDirectory& folder, const std::string& name,
                                const SampleRecord& run) {
  folder.write(name + "/run.json", sample_record(run));
}

}  // namespace lockstep::testing_support
