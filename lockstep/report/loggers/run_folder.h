// The folder of a single run.
#pragma once

#include <filesystem>
#include <string>

#include <lockstep/core/export.h>

namespace lockstep {

/// A unique name of a run: its starting time, and eight random letters and digits.
struct LOCKSTEP_API RunName {
  std::string date_time{};  ///< local time, "20261124_183000"
  std::string id{};         ///< "k3v9x0ab"
};

/// A name for a run that begins now. Runs that begin in the same second, on any hosts, get
/// different ids. Uses the system's random numbers, never LibTorch's generator.
LOCKSTEP_API RunName new_run_name();

/// DIRECTORY/PREFIX-DATE_TIME-ID.
LOCKSTEP_API std::filesystem::path run_folder(const std::filesystem::path& directory,
                                              const std::string& prefix, const RunName& name);

/// Creates `folder` and its parents if missing. Throws a DataError that names it on failure.
LOCKSTEP_API void make_folder(const std::filesystem::path& folder);

}  // namespace lockstep
