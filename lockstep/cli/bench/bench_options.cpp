#include <lockstep/cli/bench/bench_options.h>

#include <cstdint>

#include <lockstep/cli/launched_world.h>
#include <lockstep/core/error.h>
#include <lockstep/core/file.h>
#include <lockstep/core/options.h>

namespace lockstep::cli {

int resolve_world_size(const std::string& command, std::optional<int> nproc_per_node,
                       const std::optional<WorkerEnvironment>& worker, int most) {
  const OptionCheck check(command);
  if (nproc_per_node) check.in_range("--nproc-per-node", *nproc_per_node, 2, most);
  if (worker) check_nproc_per_node(command, nproc_per_node, *worker);
  const int world_size = worker ? worker->world_size : nproc_per_node.value_or(2);
  check.in_range("the number of ranks", world_size, 2, most);
  return world_size;
}

std::chrono::milliseconds resolve_timeout(const std::string& command, double seconds) {
  OptionCheck(command).in_range("--timeout", seconds, 0.1, 1e6);
  return std::chrono::milliseconds(static_cast<std::int64_t>(seconds * 1000));
}

void check_trace_folder(const std::string& command, const std::filesystem::path& folder) {
  if (folder.empty()) return;
  try {
    make_writable_directory(folder);
  } catch (const ConfigError& error) {
    throw ConfigError(str(command, ": --trace: ", error.what()));
  }
}

}  // namespace lockstep::cli
