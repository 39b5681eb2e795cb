#include <lockstep/core/memory.h>

#include <algorithm>
#include <fstream>
#include <limits>
#include <optional>
#include <sstream>
#include <string>

namespace lockstep {
namespace {

namespace fs = std::filesystem;

// The number after `name` in a file of lines such as "MemTotal: 24680 kB", "active_file 8".
std::int64_t field(const fs::path& file, const std::string& name) {
  std::ifstream in(file);
  for (std::string line; std::getline(in, line);) {
    std::istringstream words(line);
    std::string word;
    std::int64_t value = 0;
    if (words >> word >> value && word == name) return value;
  }
  return 0;
}

// Nothing if the file is missing or says "max".
std::optional<std::int64_t> number(const fs::path& file) {
  std::ifstream in(file);
  std::int64_t value = 0;
  return in >> value ? std::optional(value) : std::nullopt;
}

// Memory that the kernel reclaims when the group reaches its limit does not count as used.
void apply_limits(const fs::path& group, HostMemory& memory) {
  if (const auto limit = number(group / "memory.max")) {
    const fs::path stat = group / "memory.stat";
    const std::int64_t reclaimable =
        field(stat, "active_file") + field(stat, "inactive_file") + field(stat, "slab_reclaimable");
    const std::int64_t current = number(group / "memory.current").value_or(0);
    const std::int64_t used = std::max<std::int64_t>(current - reclaimable, 0);
    memory.total = std::min(memory.total, *limit);
    memory.available = std::clamp<std::int64_t>(*limit - used, 0, memory.available);
  }
  if (const auto limit = number(group / "memory.swap.max")) {
    const std::int64_t used = number(group / "memory.swap.current").value_or(0);
    memory.free_swap = std::clamp<std::int64_t>(*limit - used, 0, memory.free_swap);
  }
}

// "/a/b" from the line "0::/a/b".
std::string own_group(const fs::path& root) {
  std::ifstream in(root / "proc/self/cgroup");
  for (std::string line; std::getline(in, line);) {
    if (line.rfind("0::/", 0) == 0) return line.substr(4);
  }
  return "";
}

}  // namespace

std::int64_t HostMemory::left() const {
  return total == 0 ? std::numeric_limits<std::int64_t>::max() : available + free_swap;
}

HostMemory host_memory(const fs::path& root) {
  const fs::path info = root / "proc/meminfo";
  HostMemory memory{.total = field(info, "MemTotal:") * 1024,
                    .available = field(info, "MemAvailable:") * 1024,
                    .free_swap = field(info, "SwapFree:") * 1024};
  // Each group is also subject to the limits of those above it.
  const fs::path groups = root / "sys/fs/cgroup";
  for (fs::path group = own_group(root); !group.empty(); group = group.parent_path()) {
    apply_limits(groups / group, memory);
  }
  apply_limits(groups, memory);  // in a container this is its own group
  return memory;
}

}  // namespace lockstep
