// Rows written by `lockstep bench table --json`, for the report's scaling chart.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace lockstep::html {

/// The speed of a strategy with a number of ranks.
struct RankRate {
  std::string strategy{};
  std::string
      work{};  ///< what rates of several numbers of ranks share: "mnist, loader native, ..."
  std::string source{};  ///< the run or the file
  int ranks = 0;
  double images_per_second = 0;
};

/// "mnist, loader native, 2 threads a rank"
std::string work_name(const std::string& recipe, const std::string& loader, int threads_per_rank);

/// The rows that have a rate; failed rows are skipped. Throws DataError if the file is anything
/// else.
std::vector<RankRate> read_table_rates(const std::filesystem::path& file);

}  // namespace lockstep::html
