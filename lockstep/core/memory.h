// The memory that is left on this host.
#pragma once

#include <cstdint>
#include <filesystem>

namespace lockstep {

/// Sizes in bytes.
struct HostMemory {
  std::int64_t total = 0;      ///< 0 if the system does not report it
  std::int64_t available = 0;  ///< without swapping
  std::int64_t free_swap = 0;

  /// The memory that can be allocated before the kernel, which overcommits, kills processes.
  std::int64_t left() const;
};

/// The memory according to /proc/meminfo, limited by the remaining memory of this process's control
/// groups (version 2): a container's share, not the machine's. `root` stands for /.
HostMemory host_memory(const std::filesystem::path& root = "/");

}  // namespace lockstep
