// Checks that a command's output files can be written, before the work begins.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace lockstep::cli {

/// Throws ConfigError if `file`, the value of `option` of `command`, cannot be written. Call it
/// before the measurement. An empty `file` means no output and is accepted.
void check_output_file(const std::string& command, const std::string& option,
                       const std::filesystem::path& file);

/// Throws ConfigError if `out`, given by `option` of `command`, or `json`, given by --json, cannot
/// be written, or if both are the same file. Devices and pipes are accepted; empty paths mean no
/// output.
void check_two_outputs(const std::string& command, const std::string& option,
                       const std::filesystem::path& out, const std::filesystem::path& json);

/// The file to write for `out`, given by `option` of `command`, with links resolved. `json` is the
/// command's --json, or empty.
///
/// Throws ConfigError if `out` is a folder, a device, a pipe or a socket (which the finished file
/// would replace), if `out` and `json` are the same file, and in the cases of check_output_file().
std::filesystem::path check_output_files(const std::string& command, const std::string& option,
                                         const std::filesystem::path& out,
                                         const std::filesystem::path& json);

/// Throws ConfigError if writing `out`, given by `option` of `command`, would destroy an input: if
/// it is one of `inputs`, or a run's file (run.json, trace.json, metrics.csv) in one of `inputs`
/// that is a folder.
void require_no_input(const std::string& command, const std::string& option,
                      const std::filesystem::path& out,
                      const std::vector<std::filesystem::path>& inputs);

/// Whether both paths lead to the same file, through links or because they are textually equal. The
/// files need not exist.
bool is_same_file(const std::filesystem::path& a, const std::filesystem::path& b);

}  // namespace lockstep::cli
