// The rows of `lockstep bench table`: the cost of an epoch by ranks, batches and loaders.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <lockstep/bench/table/way.h>

namespace lockstep {

/// Seconds are medians over the rounds; those of an epoch are over all later epochs of the rounds.
struct BenchTableRow {
  TableWay way{};
  std::string recipe{};
  std::string device{};   ///< "cpu", "cuda"
  std::string backend{};  ///< "none" with one process, else "shm", "gloo", "nccl"
  /// PyTorch's version and its loader; empty for a row of Lockstep.
  std::string peer{};
  int ranks = 1;                ///< processes, or replicas of strategy dp
  int threads_per_rank = 1;     ///< compute threads
  bool oversubscribed = false;  ///< more compute threads than processors
  int rounds = 0;
  // Setup of rank 0 before its first step:
  double setup_group_s = 0;
  double setup_loader_s = 0;
  double setup_model_s = 0;  ///< the model, its parallel form and the optimizer
  double sync_parameters_s = 0;
  std::int64_t batch_per_rank = 0;
  std::int64_t iterations_per_epoch = 0;
  double first_epoch_s = 0;  ///< includes decoding of images that later epochs find in a cache
  double epoch_s = 0;        ///< of the later epochs, or of the only one
  double least_epoch_s = 0;  ///< the fastest of those epochs
  double most_epoch_s = 0;
  double images_per_second = 0;  ///< over all ranks, in those epochs
  /// Number of processors that a rank keeps busy, as mean over the ranks, such as 1.5.
  double cpu_utilisation = 0;
  // Means over the ranks' GPUs, as reported by nvidia-smi, from 0 to 1; absent on CPUs:
  std::optional<double> gpu_utilisation{};
  std::optional<double> gpu_memory_utilisation{};  ///< share of time in which memory was accessed
  std::optional<double> gpu_power_w{};             ///< per GPU
  /// Images per second relative to those of one rank alone, times the number of ranks, with equal
  /// batch per rank, loader and kernels; absent if that rank has not been measured.
  std::optional<double> efficiency{};
  double data_wait_s = 0;  ///< of rank 0, per epoch
  /// Seconds per epoch for which rank 0 waited for messages, without `stage_waits_s`; absent if the
  /// program does not report it.
  std::optional<double> exposed_communication_s{};
  /// Mean seconds for which a worker of a pipeline waited for another stage; zero without a
  /// pipeline.
  double stage_waits_s = 0;
  double seconds_to_first_step = 0;
  std::int64_t peak_rss_bytes = 0;  ///< of rank 0
  std::string error{};              ///< why there are no figures; empty if there are
};

/// The row of `way`, from what `lockstep train --json` (or the peer) has written in each round.
/// `processors` is the number on this machine. DataError if a text is something else.
BenchTableRow table_row_of(const TableWay& way, const std::vector<std::string>& runs,
                           std::int64_t processors);

/// Fills in BenchTableRow::efficiency.
void set_efficiencies(std::vector<BenchTableRow>& rows);

/// "table", "markdown", "csv" and "json".
const std::vector<std::string>& bench_table_formats();

/// Notes for readers that apply to all rows.
struct BenchTableNotes {
  std::int64_t epochs = 3;                  ///< per run
  std::optional<std::int64_t> max_steps{};  ///< maximum number of steps of the epochs
  std::vector<std::string> more{};          ///< one sentence each
};

/// `rows` in one of these formats, with a line feed at the end. The table and Markdown have the
/// notes below them. In CSV and JSON each row has them: "epochs", "max_steps" (null or empty for
/// complete epochs), "includes_warm_up" (whether the only epoch of each run is timed) and "notes",
/// which in JSON is a list of sentences.
std::string bench_table_text(const std::vector<BenchTableRow>& rows, const BenchTableNotes& notes,
                             const std::string& format);

}  // namespace lockstep
