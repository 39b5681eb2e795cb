// Checks a command's output files before the work rather than after it.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace lockstep::cli {

/// Throws ConfigError if `file`, the value of `option` of `command`, cannot be written. Call it
/// before the measurement. An empty `file` means no output and is accepted.
void check_output_file(const std::string& command, const std::string& option,
                       const std::filesystem::path& file);

/// The file to write for `out`, given by `option` of `command`, with links resolved. `json` is the
/// command's --json, or empty.
///
/// ConfigError if `out` is a folder, a device, a pipe or a socket, which the finished file would
/// replace; if both are one file; and as thrown by check_output_file().
std::filesystem::path check_output_files(const std::string& command, const std::string& option,
                                         const std::filesystem::path& out,
                                         const std::filesystem::path& json);

/// ConfigError if `out`, given by `option` of `command`, is one of `inputs`, or a file of a run
/// (run.json, trace.json, metrics.csv) in one of them that is a folder, because writing would
/// destroy it.
void require_no_input(const std::string& command, const std::string& option,
                      const std::filesystem::path& out,
                      const std::vector<std::filesystem::path>& inputs);

/// Whether both paths lead to one file, by links or textually. Files need not exist.
bool is_same_file(const std::filesystem::path& a, const std::filesystem::path& b);

}  // namespace lockstep::cli
