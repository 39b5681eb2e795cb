// Values and tables for this room's tests to log.
#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include <lockstep/report/loggers/logger.h>

namespace lockstep::testing_support {

inline constexpr double kLogNan = std::numeric_limits<double>::quiet_NaN();

inline void log(Logger& logger, std::int64_t step, const std::vector<NamedValue>& values) {
  logger.log_scalars({.step = step, .time = 1000.5 + static_cast<double>(step)}, values);
}

inline void log_table(Logger& logger, std::int64_t step, const LoggedTable& table) {
  logger.log_table({.step = step, .time = 1000.5 + static_cast<double>(step)}, "test/confusion",
                   table);
}

/// Rows of different lengths, with a label that every format must quote and with one label missing.
struct AwkwardTable {
  std::vector<std::string> labels{"cat", "a|b, \"<i>\""};
  std::vector<std::vector<double>> rows{{7, 0.5}, {kLogNan, 100'000, -2}, {}};
  LoggedTable table{.labels = labels, .rows = rows};
};

}  // namespace lockstep::testing_support
