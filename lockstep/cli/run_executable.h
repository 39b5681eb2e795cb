// The program that `lockstep run` starts: found before any rank exists, so that its absence is one
// line.
#pragma once

#include <string>
#include <vector>

namespace lockstep {

/// The file that `program` means: itself where it has a slash, else the first of that name in PATH,
/// as a shell finds it. ConfigError says what is wrong with it and what to write instead.
std::string find_executable(const std::string& program);

/// Turns this process into `executable`, which gets the words of `command` as they are. Returns
/// only by ConfigError.
[[noreturn]] void execute(const std::string& executable, const std::vector<std::string>& command);

}  // namespace lockstep
