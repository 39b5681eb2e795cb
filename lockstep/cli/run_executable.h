// Programs that commands start: found before any process exists, so that their absence is one line.
#pragma once

#include <string>
#include <vector>

namespace lockstep {

/// The file that `program` means: itself where it has a slash, else the first of that name in PATH,
/// as a shell finds it. ConfigError, which begins with `owner`, says what is wrong with it and what
/// to write instead.
std::string find_executable(const std::string& program, const std::string& owner = "run");

/// Turns this process into `executable`, which gets the words of `command` as they are. Returns
/// only by ConfigError.
[[noreturn]] void execute(const std::string& executable, const std::vector<std::string>& command);

}  // namespace lockstep
