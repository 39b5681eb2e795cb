// Locates the files of a run that a user has named.
#pragma once

#include <filesystem>

#include <lockstep/core/error.h>
#include <lockstep/core/file.h>
#include <lockstep/core/strings.h>

namespace lockstep::report {

/// The files of a run: its folder, or only its record.
struct RunPlace {
  std::filesystem::path record{};  ///< run.json, or the output of `lockstep train --json`
  std::filesystem::path folder{};  ///< the folder of run.json; empty if there is only a record
};

/// The file in a run's folder that the processes of the run have locked (core/file_lock.h). Says
/// whether a run that has recorded nothing since is still running.
inline constexpr const char* kRunLock = ".lockstep-lock";

/// Why a run whose record says "running" is no longer running.
inline constexpr const char* kEndedUnnoticed =
    "the process was killed before it could record the end of the run";

/// The place of the run that `input` names: a folder, the run.json in one, or another file, which
/// is taken to be a record. Files need not exist.
inline RunPlace place_of_run(const std::filesystem::path& input) {
  std::error_code ignored;
  if (!std::filesystem::is_regular_file(input, ignored)) return {input / "run.json", input};
  if (input.filename() != "run.json") return {input, {}};
  return {input, folder_of(input)};
}

/// The error about a run whose record, at the place of `input`, cannot be opened.
inline DataError missing_record(const std::filesystem::path& input) {
  std::error_code error;
  const bool exists = std::filesystem::exists(input, error) || error;
  return DataError(str(
      input.string(), exists ? " has no run.json" : " does not exist",
      ": give the folder of a `lockstep train --out` run, or a record of `lockstep train --json`",
      exists ? "; a program keeps one with make_run_listeners()" : ""));
}

}  // namespace lockstep::report
