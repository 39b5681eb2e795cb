// A value of the evaluations that an option of `lockstep train` watches: METRIC:NUMBER[:GOAL].
#pragma once

#include <cstdint>
#include <string>

#include <lockstep/train/task/plateau.h>

namespace lockstep::cli {

struct WatchedValue {
  std::string metric{};
  std::int64_t number = 0;  ///< a patience, or a number to keep
  MetricGoal goal = MetricGoal::kMin;
};

/// Parses "loss:3" or "accuracy:3:max". Without a goal, "loss" is minimized; every other value
/// needs a goal. For other text, throws ConfigError, which names `option` and calls its number
/// `number`.
WatchedValue parse_watched_value(const std::string& option, const std::string& text,
                                 const std::string& number = "PATIENCE");

}  // namespace lockstep::cli
