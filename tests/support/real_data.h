// The data sets that LOCKSTEP_DATA points at; tests that need them skip without.
#pragma once

#include <cstdlib>
#include <filesystem>
#include <optional>

namespace lockstep::testing_support {

/// $LOCKSTEP_DATA/`name` where it exists.
inline std::optional<std::filesystem::path> real_data(const char* name) {
  const char* folder = std::getenv("LOCKSTEP_DATA");
  if (folder == nullptr || *folder == '\0') return std::nullopt;
  const std::filesystem::path path = std::filesystem::path(folder) / name;
  if (!std::filesystem::is_directory(path)) return std::nullopt;
  return path;
}

}  // namespace lockstep::testing_support

#define LOCKSTEP_SKIP_WITHOUT(name)                                                       \
  if (!::lockstep::testing_support::real_data(name)) {                                    \
    GTEST_SKIP() << "needs the data set " name ": set LOCKSTEP_DATA to the folder of it"; \
  }
