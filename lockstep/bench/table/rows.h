// The rows of `lockstep bench table`: what an epoch costs with some ranks, batches and loaders.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <lockstep/bench/table/way.h>

namespace lockstep {

/// Seconds are medians over the rounds, of an epoch over all later epochs of the rounds.
struct BenchTableRow {
  TableWay way{};
  std::string recipe{};
  std::string device{};   ///< "cpu", "cuda"
  std::string backend{};  ///< "none" with one process, else "shm", "gloo", "nccl"
  /// PyTorch's version and its loader; empty for a row of ours.
  std::string peer{};
  int ranks = 1;                ///< processes, or replicas of strategy dp
  int threads_per_rank = 1;     ///< of compute
  bool oversubscribed = false;  ///< more compute threads than processors
  int rounds = 0;
  // What rank 0 did before its first step:
  double setup_group_s = 0;
  double setup_loader_s = 0;
  double setup_model_s = 0;  ///< the model, its parallel form and the optimizer
  double sync_parameters_s = 0;
  std::int64_t batch_per_rank = 0;
  std::int64_t iterations_per_epoch = 0;
  double first_epoch_s = 0;  ///< it also decodes the images that later epochs find in a cache
  double epoch_s = 0;        ///< of the later epochs; of the first where it is the only one
  double least_epoch_s = 0;  ///< of those epochs
  double most_epoch_s = 0;
  double images_per_second = 0;  ///< of all ranks, in those epochs
  /// Processors that a rank keeps busy, the mean over the ranks: 1.5 is one and a half.
  double cpu_utilisation = 0;
  // Means over the ranks' GPUs, as nvidia-smi has them, from 0 to 1; absent on CPUs:
  std::optional<double> gpu_utilisation{};
  std::optional<double>
      gpu_memory_utilisation{};         ///< share of time in which memory was read or written
  std::optional<double> gpu_power_w{};  ///< of each
  /// Images per second, as a share of as many times those of one rank alone with the same batch per
  /// rank, loader and kernels; absent where that has not been measured.
  std::optional<double> efficiency{};
  double data_wait_s = 0;  ///< of rank 0, in such an epoch
  /// What rank 0 waited for messages in such an epoch, without `stage_waits_s`; absent where the
  /// program does not report it.
  std::optional<double> exposed_communication_s{};
  /// What the workers of a pipeline waited for another stage, each on average; zero without one.
  double stage_waits_s = 0;
  double seconds_to_first_step = 0;
  std::int64_t peak_rss_bytes = 0;  ///< of rank 0
  std::string error{};              ///< why there are no figures; empty where there are
};

/// The row of `way`, from what `lockstep train --json` (or the peer) has written of each round.
/// `processors` is what this machine has. DataError when a text is something else.
BenchTableRow table_row_of(const TableWay& way, const std::vector<std::string>& runs,
                           std::int64_t processors);

/// Fills in BenchTableRow::efficiency.
void set_efficiencies(std::vector<BenchTableRow>& rows);

/// "table", "markdown", "csv" and "json".
const std::vector<std::string>& bench_table_formats();

/// What all rows have in common and readers must know.
struct BenchTableNotes {
  std::int64_t epochs = 3;                  ///< of each run
  std::optional<std::int64_t> max_steps{};  ///< epochs were cut to these
  std::vector<std::string> more{};          ///< a sentence each
};

/// `rows` in one of these formats, with a line feed at the end. The table and Markdown have the
/// notes below them. In CSV and JSON each row has them: "epochs", "max_steps" (null, or empty, for
/// whole epochs), "includes_warm_up" (the only epoch of each run is timed) and "notes", in JSON a
/// list of sentences.
std::string bench_table_text(const std::vector<BenchTableRow>& rows, const BenchTableNotes& notes,
                             const std::string& format);

}  // namespace lockstep
