// The rows of `lockstep bench table`: what an epoch costs for each combination of strategy, number
// of ranks, batch size and loader.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <lockstep/bench/table/way.h>

namespace lockstep::bench {

/// Each round is a run of several epochs. Setup times, the first epoch, the time to the first step
/// and the memory are medians over the rounds. The other figures are medians over the timed epochs
/// of all rounds: every epoch after the first, or the first if it is the only one.
struct BenchTableRow {
  TableWay way{};
  std::string recipe{};
  std::string device{};     ///< "cpu", "cuda"
  std::string precision{};  ///< "32", "16", "bf16"; empty: unknown
  std::string backend{};    ///< "none" with one process, otherwise such as "shm", "gloo" or "nccl"
  /// For a PyTorch program, its PyTorch version and its loader; empty for Lockstep.
  std::string peer{};
  int ranks = 1;                ///< processes; with strategy dp, replicas in one process
  int threads_per_rank = 1;     ///< compute threads
  bool oversubscribed = false;  ///< whether there are more compute threads than processors
  int rounds = 0;
  // Setup of rank 0 before its first step:
  double setup_group_s = 0;
  double setup_loader_s = 0;
  double setup_model_s = 0;  ///< the model, its parallel wrapper and the optimizer
  double sync_parameters_s = 0;
  std::int64_t batch_per_rank = 0;           ///< rounded down
  std::int64_t global_batch = 0;             ///< images of a batch, over all ranks
  std::int64_t accumulate_grad_batches = 1;  ///< batches of an optimizer step
  std::int64_t iterations_per_epoch = 0;
  double first_epoch_s = 0;      ///< includes decoding of images that later epochs find in a cache
  double epoch_s = 0;            ///< median of the timed epochs
  double least_epoch_s = 0;      ///< the fastest of the timed epochs
  double most_epoch_s = 0;       ///< the slowest of the timed epochs
  double images_per_second = 0;  ///< sum over all ranks
  /// Mean number of processors that a rank keeps busy, such as 1.5.
  double cpu_utilisation = 0;
  // Means over the ranks' GPUs, as reported by nvidia-smi; absent on CPUs:
  std::optional<double> gpu_utilisation{};         ///< share of time in which a kernel ran, 0 to 1
  std::optional<double> gpu_memory_utilisation{};  ///< share of time in which memory was accessed
  std::optional<double> gpu_power_w{};             ///< power per GPU, in watts
  /// images_per_second divided by `ranks` times that of a single rank, measured alone with the same
  /// batch per rank, loader and kernels; absent if no such rank was measured.
  std::optional<double> efficiency{};
  double data_wait_s = 0;  ///< time per epoch for which rank 0 waited for data
  /// Time per epoch for which rank 0 waited for messages, excluding `stage_waits_s`; absent if the
  /// program does not report it.
  std::optional<double> exposed_communication_s{};
  /// Mean time per epoch for which a worker of a pipeline waited for another stage; zero without a
  /// pipeline.
  double stage_waits_s = 0;
  double seconds_to_first_step = 0;
  std::int64_t peak_rss_bytes = 0;  ///< memory of rank 0
  std::string error{};              ///< why the row has no figures; otherwise empty
};

/// Makes the row of `way` from `runs`, the JSON that `lockstep train --json` or the PyTorch program
/// wrote in each round. `processors` is the number of this machine's processors. Throws DataError
/// if one of `runs` is not such JSON.
BenchTableRow table_row_of(const TableWay& way, const std::vector<std::string>& runs,
                           std::int64_t processors);

/// Sets the efficiency of every row whose single-rank counterpart is also in `rows`.
void set_efficiencies(std::vector<BenchTableRow>& rows);

/// "table", "markdown", "csv" and "json".
const std::vector<std::string>& bench_table_formats();

/// Notes for the reader that apply to all rows.
struct BenchTableNotes {
  std::int64_t epochs = 3;                  ///< per run
  std::optional<std::int64_t> max_steps{};  ///< maximum number of steps per epoch
  std::vector<std::string> more{};          ///< one sentence each
};

/// Returns `rows` in one of bench_table_formats(), with a line feed at the end. The table and
/// Markdown have the notes below the rows. CSV and JSON repeat them in each row, as "epochs",
/// "max_steps" (empty or null for complete epochs), "includes_warm_up" (whether the timed epoch is
/// the only one of its run) and "notes", which in JSON is a list of sentences.
std::string bench_table_text(const std::vector<BenchTableRow>& rows, const BenchTableNotes& notes,
                             const std::string& format);

}  // namespace lockstep::bench
