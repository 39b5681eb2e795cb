// What `lockstep bench comm` found, for people and for machines.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <lockstep/bench/collectives/collective.h>

namespace lockstep {

struct BenchCommRow {
  BenchCollective collective = BenchCollective::kAllReduce;
  std::string algorithm;
  std::string backend;
  int ranks = 0;
  int hosts = 1;       ///< that the ranks are on
  int processors = 0;  ///< that the rank with the fewest may use; 0: not known
  std::string dtype;
  std::int64_t bytes = 0;  ///< of the larger buffer
  bool symmetric = false;
  /// Of each call the time of the slowest rank.
  double median_us = 0;
  double min_us = 0;
  double max_us = 0;
  /// Beside computing: until the slowest rank saw the end, and what the mean rank's computing lost.
  /// Medians.
  std::optional<double> beside_us{};
  std::optional<double> taken_us{};

  double algbw_gbps() const {
    return median_us > 0 ? static_cast<double>(bytes) / median_us / 1e3 : 0;
  }
  double busbw_gbps() const { return algbw_gbps() * bus_factor(collective, ranks); }
};

/// The row of these calls; not none.
BenchCommRow summarize(BenchCommRow row, const std::vector<double>& microseconds);

/// A JSON array of {"collective", "algorithm", "backend", "ranks", "hosts", "processors", "dtype",
/// "bytes", "in_place", "symmetric", "median_us", "min_us", "max_us", "algbw_gbps", "busbw_gbps",
/// "beside_us", "taken_us"}; the last two only where they were measured.
std::string to_json(const std::vector<BenchCommRow>& rows);

/// The lines of a table, its heading and each row, without their ends.
std::string bench_comm_heading();
std::string table_line(const BenchCommRow& row);

}  // namespace lockstep
