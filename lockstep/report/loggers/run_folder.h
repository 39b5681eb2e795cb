// The folder that a run has for itself.
#pragma once

#include <filesystem>
#include <string>

namespace lockstep {

/// What sets a run apart from all others: when it began, and eight random letters and digits.
struct RunName {
  std::string date_time{};  ///< local time, "20261124_183000"
  std::string id{};         ///< "k3v9x0ab"
};

/// A name for a run that begins now. Two runs that begin in the same second, on whatever hosts, get
/// different ids; draws from the system's random numbers, never from LibTorch's generator.
RunName new_run_name();

/// DIRECTORY/PREFIX-DATE_TIME-ID.
std::filesystem::path run_folder(const std::filesystem::path& directory, const std::string& prefix,
                                 const RunName& name);

/// Creates `folder` with its parents where it does not exist. DataError, which names it, when that
/// fails.
void make_folder(const std::filesystem::path& folder);

}  // namespace lockstep
