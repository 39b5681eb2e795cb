// The data sets in the folder LOCKSTEP_DATA. Tests that need a missing data set are skipped.
#pragma once

#include <cstdlib>
#include <filesystem>
#include <optional>

namespace lockstep::testing_support {

/// The path $LOCKSTEP_DATA/`name`; empty if it does not exist.
inline std::optional<std::filesystem::path> real_data(const char* name) {
  const char* folder = std::getenv("LOCKSTEP_DATA");
  if (folder == nullptr || *folder == '\0') return std::nullopt;
  const std::filesystem::path path = std::filesystem::path(folder) / name;
  if (!std::filesystem::is_directory(path)) return std::nullopt;
  return path;
}

}  // namespace lockstep::testing_support

#define LOCKSTEP_SKIP_WITHOUT(name)                                           \
  if (!::lockstep::testing_support::real_data(name)) {                        \
    GTEST_SKIP() << "needs the data set " name                                \
                    ": set LOCKSTEP_DATA to the folder that holds " name "/"; \
  }
