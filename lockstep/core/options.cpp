#include <lockstep/core/options.h>

#include <algorithm>
#include <cmath>

#include <lockstep/core/error.h>

namespace lockstep {

void OptionCheck::at_least(std::string_view name, double value, double minimum) const {
  if (!(value >= minimum)) {
    throw ConfigError(str(owner_, ": ", name, " must be at least ", minimum, ", got ", value));
  }
}

void OptionCheck::positive(std::string_view name, double value) const {
  if (!(value > 0) || !std::isfinite(value)) {
    throw ConfigError(str(owner_, ": ", name, " must be greater than 0, got ", value));
  }
}

void OptionCheck::in_range(std::string_view name, double value, double minimum,
                           double maximum) const {
  if (!(value >= minimum && value <= maximum)) {
    throw ConfigError(
        str(owner_, ": ", name, " must be from ", minimum, " to ", maximum, ", got ", value));
  }
}

void OptionCheck::one_of(std::string_view name, std::string_view value,
                         const std::vector<std::string>& allowed) const {
  if (std::find(allowed.begin(), allowed.end(), value) == allowed.end()) {
    throw ConfigError(
        str(owner_, ": ", name, " must be one of ", join(allowed), ", got '", value, "'"));
  }
}

}  // namespace lockstep
