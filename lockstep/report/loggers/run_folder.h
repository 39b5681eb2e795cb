// The folder of a single run.
#pragma once

#include <filesystem>
#include <string>

namespace lockstep::report {

/// A unique name of a run: its starting time, and eight random letters and digits.
struct RunName {
  std::string date_time{};  ///< local time, "20261124_183000"
  std::string id{};         ///< "k3v9x0ab"
};

/// A name for a run that begins now. Runs that begin in the same second, on any hosts, get
/// different ids. Uses the system's random numbers, never LibTorch's generator.
RunName new_run_name();

/// DIRECTORY/PREFIX-DATE_TIME-ID.
std::filesystem::path run_folder(const std::filesystem::path& directory, const std::string& prefix,
                                 const RunName& name);

/// Creates `folder` and its parents if missing. Throws a DataError that names it on failure.
void make_folder(const std::filesystem::path& folder);

}  // namespace lockstep::report
