// A value of the evaluations that an option of `lockstep train` watches: METRIC:NUMBER[:GOAL].
#pragma once

#include <cstdint>
#include <string>

#include <lockstep/train/task/plateau.h>

namespace lockstep {

struct WatchedValue {
  std::string metric{};
  std::int64_t number = 0;  ///< a patience, or how many are kept
  MetricGoal goal = MetricGoal::kMin;
};

/// Reads "loss:3" or "accuracy:3:max". Without a goal the smaller loss is the better one; every
/// other value needs a goal. ConfigError, which names `option` and what its number is called, for
/// another text.
WatchedValue parse_watched_value(const std::string& option, const std::string& text,
                                 const std::string& number = "PATIENCE");

}  // namespace lockstep
