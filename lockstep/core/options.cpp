#include <lockstep/core/options.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>

#include <lockstep/core/error.h>
#include <lockstep/core/suggestion.h>

namespace lockstep {
namespace {

// Prints 16777216, not 1.67772e+07.
std::string text_of(double value) {
  constexpr double kExact = 1e15;
  const bool whole = std::abs(value) < kExact && value == std::floor(value);
  return whole ? std::to_string(static_cast<std::int64_t>(value)) : str(value);
}

}  // namespace

std::string not_one_of(std::string_view name, std::string_view value,
                       const std::vector<std::string>& allowed) {
  return str(name, " must be one of ", join(allowed), ", got '", value, "'",
             did_you_mean(value, allowed));
}

void OptionCheck::at_least(std::string_view name, double value, double minimum) const {
  if (!(value >= minimum)) {
    throw ConfigError(
        str(owner_, ": ", name, " must be at least ", text_of(minimum), ", got ", text_of(value)));
  }
}

void OptionCheck::positive(std::string_view name, double value) const {
  if (!(value > 0) || !std::isfinite(value)) {
    throw ConfigError(str(owner_, ": ", name, " must be greater than 0, got ", text_of(value)));
  }
}

void OptionCheck::in_range(std::string_view name, double value, double minimum,
                           double maximum) const {
  if (!(value >= minimum && value <= maximum)) {
    throw ConfigError(str(owner_, ": ", name, " must be from ", text_of(minimum), " to ",
                          text_of(maximum), ", got ", text_of(value)));
  }
}

void OptionCheck::one_of(std::string_view name, std::string_view value,
                         const std::vector<std::string>& allowed) const {
  if (std::find(allowed.begin(), allowed.end(), value) == allowed.end()) {
    throw ConfigError(str(owner_, ": ", not_one_of(name, value, allowed)));
  }
}

}  // namespace lockstep
