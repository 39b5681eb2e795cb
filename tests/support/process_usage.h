// Counts what this process has open or running at the moment.
#pragma once

#include <cstddef>
#include <filesystem>
#include <iterator>

namespace lockstep::testing_support {

inline std::size_t entries_of(const char* folder) {
  return static_cast<std::size_t>(std::distance(std::filesystem::directory_iterator(folder), {}));
}

/// Open descriptors, with the one that counts them.
inline std::size_t descriptor_count() { return entries_of("/proc/self/fd"); }

inline std::size_t thread_count() { return entries_of("/proc/self/task"); }

}  // namespace lockstep::testing_support
