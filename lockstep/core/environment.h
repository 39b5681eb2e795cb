// Reads environment variables; errors tell the user what to fix.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace lockstep {

/// The variable's text; nothing if it is unset or empty.
std::optional<std::string> environment_string(const char* name);

/// The variable as a whole number. Throws a ConfigError that names the variable and its text if it
/// is not a number.
std::optional<std::int64_t> environment_integer(const char* name);

/// True for 1, true, yes and on; false for 0, false, no and off, and for an unset or empty
/// variable. Case does not matter. Throws a ConfigError that names the variable and its text for
/// any other text.
bool environment_flag(const char* name);

}  // namespace lockstep
