// Where a command writes what it makes: refused before the work rather than after it.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace lockstep {

/// The file to write for `out`, which `option` of `command` gave: the one behind a link. `json` is
/// that of the command's --json, or empty.
///
/// ConfigError when `out` is a folder, a device, a pipe or a socket, which a finished file would
/// replace, when both are the same file, and as check_output_file() throws it.
std::filesystem::path check_output_files(const std::string& command, const std::string& option,
                                         const std::filesystem::path& out,
                                         const std::filesystem::path& json);

/// ConfigError where `out`, which `option` of `command` gave, is one of `inputs`, or what a run
/// leaves in one of them that is a folder (run.json, trace.json, metrics.csv): nothing else would
/// be left of it.
void require_no_input(const std::string& command, const std::string& option,
                      const std::filesystem::path& out,
                      const std::vector<std::filesystem::path>& inputs);

/// Whether both paths lead to one file, by links or by their text. Files need not exist.
bool is_same_file(const std::filesystem::path& a, const std::filesystem::path& b);

}  // namespace lockstep
