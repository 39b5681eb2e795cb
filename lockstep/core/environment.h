// Environment variables, read with the errors that a user can act on.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace lockstep {

/// The variable's text; nothing when it is unset or empty.
std::optional<std::string> environment_string(const char* name);

/// The variable as a whole number. ConfigError names the variable and its text when it is not one.
std::optional<std::int64_t> environment_integer(const char* name);

/// True for 1, true, yes and on, false for 0, false, no and off, in any case, and where the
/// variable is unset or empty. ConfigError names the variable and its text when it is anything
/// else.
bool environment_flag(const char* name);

}  // namespace lockstep
