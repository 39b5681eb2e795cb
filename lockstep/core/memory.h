// The memory that this host has left.
#pragma once

#include <cstdint>
#include <filesystem>

namespace lockstep {

/// In bytes.
struct HostMemory {
  std::int64_t total = 0;      ///< 0 where the system does not tell
  std::int64_t available = 0;  ///< without swapping
  std::int64_t free_swap = 0;

  /// What can be allocated before the kernel, which promises more than it has, ends processes.
  std::int64_t left() const;
};

/// As /proc/meminfo says, but no more than the limits of this process's control groups (version 2)
/// leave: a container's share, not the machine's. `root` stands for /.
HostMemory host_memory(const std::filesystem::path& root = "/");

}  // namespace lockstep
