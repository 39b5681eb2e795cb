// The results of `lockstep bench comm`, as text and as JSON.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <lockstep/bench/collectives/collective.h>

namespace lockstep::bench {

struct BenchCommRow {
  CallKind collective = CallKind::kAllReduce;
  std::string algorithm;
  std::string backend;
  int ranks = 0;
  int hosts = 1;       ///< number of hosts of the ranks
  int processors = 0;  ///< available to the rank with the fewest; 0: unknown
  std::string dtype;
  std::int64_t bytes = 0;  ///< size of the larger buffer
  bool symmetric = false;
  /// Statistics over the calls; a call's time is that of its slowest rank.
  double median_us = 0;
  double min_us = 0;
  double max_us = 0;
  /// With --beside-computing, medians over the calls: the time until the slowest rank saw the end,
  /// and the computing time that a rank lost on average.
  std::optional<double> beside_us{};
  std::optional<double> taken_us{};

  double algbw_gbps() const {
    return median_us > 0 ? static_cast<double>(bytes) / median_us / 1e3 : 0;
  }
  double busbw_gbps() const { return algbw_gbps() * bus_factor(collective, ranks); }
};

/// Fills in the statistics of `row` from the times of the calls, of which there must be at least
/// one.
BenchCommRow summarize(BenchCommRow row, const std::vector<double>& microseconds);

/// A JSON array of {"collective", "algorithm", "backend", "ranks", "hosts", "processors", "dtype",
/// "bytes", "in_place", "symmetric", "median_us", "min_us", "max_us", "algbw_gbps", "busbw_gbps",
/// "beside_us", "taken_us"}; the last two only if measured.
std::string to_json(const std::vector<BenchCommRow>& rows);

/// The heading and a row of the table, without line ends.
std::string bench_comm_heading();
std::string table_line(const BenchCommRow& row);

}  // namespace lockstep::bench
