#include <lockstep/cli/train/watched_value.h>

#include <charconv>
#include <vector>

#include <lockstep/bench/word_list.h>
#include <lockstep/core/error.h>
#include <lockstep/core/suggestion.h>

namespace lockstep::cli {

WatchedValue parse_watched_value(const std::string& option, const std::string& text,
                                 const std::string& number) {
  const std::vector<std::string> parts = bench::words_of(text, ':');
  WatchedValue watched;
  bool fits = parts.size() >= 2 && parts.size() <= 3 && !parts[0].empty();
  if (fits) {
    watched.metric = parts[0];
    const std::string& digits = parts[1];
    const char* const end = digits.data() + digits.size();
    const auto [stop, error] = std::from_chars(digits.data(), end, watched.number);
    fits = error == std::errc() && stop == end && watched.number >= 0;
  }
  if (fits && parts.size() == 3) {
    fits = parts[2] == "min" || parts[2] == "max";
    if (fits) watched.goal = parse_metric_goal(parts[2]);
  }
  if (!fits) {
    throw ConfigError(lockstep::str("train: ", option, " must be METRIC:", number,
                                    " or METRIC:", number,
                                    ":GOAL, as in loss:3 or accuracy:3:max, got '", text, "'"));
  }
  const bool is_loss = watched.metric == "loss" || watched.metric == "train_loss";
  if (parts.size() == 3 || is_loss) return watched;
  // Values of the recipes' evaluations. Each recipe has some of them.
  const std::vector<std::string> known = {"loss", "train_loss", "accuracy", "psnr"};
  throw ConfigError(
      lockstep::str("train: ", option, " ", text,
                    " must say whether larger or smaller is better: end it with :max or :min",
                    did_you_mean(watched.metric, known)));
}

}  // namespace lockstep::cli
