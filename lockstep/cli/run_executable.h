// Finds programs before the commands that need them start any process, so that a missing one is
// reported in one line.
#pragma once

#include <string>
#include <vector>

namespace lockstep::cli {

/// The file that `program` refers to: itself if it contains a slash, otherwise the first of that
/// name in PATH, as in a shell. If there is none, throws ConfigError, which begins with `owner` and
/// says what is wrong and what to write instead.
std::string find_executable(const std::string& program, const std::string& owner = "run");

/// Replaces this process by `executable`, passing the words of `command` unchanged. Returns only by
/// throwing ConfigError.
[[noreturn]] void execute(const std::string& executable, const std::vector<std::string>& command);

}  // namespace lockstep::cli
