// The rows of `lockstep bench table`: what an epoch costs with some ranks and batches.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace lockstep {

struct BenchTableRow {
  std::string recipe{};
  std::string strategy{};
  std::string loader{};
  std::string device{};  ///< "cpu", "cuda"
  int ranks = 1;
  int threads_per_rank = 1;
  std::int64_t batch_per_rank = 0;
  std::int64_t iterations_per_epoch = 0;
  double first_epoch_s = 0;  ///< it also decodes the images that later epochs find in a cache
  double epoch_s = 0;        ///< median of the later epochs; of the first where it is the only one
  double images_per_second = 0;  ///< of all ranks, in those epochs
  /// Images per second of a rank, as a share of those of one rank alone with the same batch per
  /// rank; absent where that has not been measured.
  std::optional<double> efficiency{};
  double data_wait_s = 0;              ///< of rank 0, in such an epoch
  double exposed_communication_s = 0;  ///< of rank 0, in such an epoch
  double seconds_to_first_step = 0;
  std::int64_t peak_rss_bytes = 0;  ///< of rank 0
};

/// The row of a run, from what `lockstep train --json` has written of it. DataError when `json` is
/// something else.
BenchTableRow table_row_of(const std::string& json);

/// Fills in BenchTableRow::efficiency.
void set_efficiencies(std::vector<BenchTableRow>& rows);

/// "table", "markdown", "csv" and "json".
const std::vector<std::string>& bench_table_formats();

/// `rows` in one of these formats, with a line feed at the end.
std::string bench_table_text(const std::vector<BenchTableRow>& rows, const std::string& format);

}  // namespace lockstep
