// Rows written by `lockstep bench table --json`, for the report's scaling chart.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace lockstep::html {

/// The speed of a strategy with a number of ranks.
struct RankRate {
  std::string strategy{};
  /// What rates of several numbers of ranks share: "mnist, loader native, ..."
  std::string work{};
  std::string source{};  ///< the run or the file
  int ranks = 0;
  std::int64_t global_batch = 0;  ///< images of a batch, over all ranks; 0: unknown
  double images_per_second = 0;
};

/// What must be equal in runs whose speeds are compared, besides the strategy and the batch.
struct Workload {
  std::string recipe{};
  std::string loader{};
  int threads_per_rank = 1;
  std::string device{};     ///< "cpu", "cuda"; empty: unknown
  std::string precision{};  ///< "32", "16", "bf16"; empty: unknown
  /// What else differs from the usual: "LibTorch's kernels", "model resnet18"
  std::vector<std::string> details{};
};

/// "mnist, loader native, 2 threads a rank, cpu, precision 32"
std::string work_name(const Workload& work);

/// The detail of a Workload whose optimizer steps have several batches: "4 batches a step"
std::string batches_of_step(std::int64_t batches);

/// The rows that have a rate; failed rows are skipped. Throws DataError if the file is anything
/// else.
std::vector<RankRate> read_table_rates(const std::filesystem::path& file);

}  // namespace lockstep::html
