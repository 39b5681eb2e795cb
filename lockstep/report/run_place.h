// Where the files of a run are that a user has named.
#pragma once

#include <filesystem>

namespace lockstep {

/// What a run has left: its folder, or its record alone.
struct RunPlace {
  std::filesystem::path record{};  ///< run.json, or what `lockstep train --json` has written
  std::filesystem::path folder{};  ///< with what lies beside run.json; empty for a record alone
};

/// The place of the run that `input` names: a folder, the run.json in one, or another file, which
/// is taken for a record. Files need not exist.
inline RunPlace place_of_run(const std::filesystem::path& input) {
  std::error_code ignored;
  if (!std::filesystem::is_regular_file(input, ignored)) return {input / "run.json", input};
  if (input.filename() != "run.json") return {input, {}};
  return {input, input.has_parent_path() ? input.parent_path() : "."};
}

}  // namespace lockstep
