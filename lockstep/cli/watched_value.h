// A value of the evaluations that an option of `lockstep train` watches: METRIC:PATIENCE[:GOAL].
#pragma once

#include <cstdint>
#include <string>

#include <lockstep/train/plateau.h>

namespace lockstep {

struct WatchedValue {
  std::string metric{};
  std::int64_t patience = 0;
  MetricGoal goal = MetricGoal::kMin;
};

/// Reads "loss:3" or "accuracy:3:max". Without a goal the smaller loss is the better one; every
/// other value needs a goal. ConfigError, which names `option`, for another text.
WatchedValue parse_watched_value(const std::string& option, const std::string& text);

}  // namespace lockstep
