#include <lockstep/bench/options.h>

#include <cstdint>

#include <lockstep/bench/launched_world.h>
#include <lockstep/core/error.h>
#include <lockstep/core/options.h>
#include <lockstep/report/json_report.h>

namespace lockstep {

void check_output_file(const std::string& command, const std::string& option,
                       const std::filesystem::path& file) {
  if (file.empty()) return;
  const auto folder = file.parent_path();
  std::error_code ignored;
  if (!folder.empty() && !std::filesystem::exists(folder, ignored)) {
    throw ConfigError(str(command, ": ", option, ": the folder ", folder.string(),
                          " does not exist; create it first"));
  }
  if (std::filesystem::is_directory(file, ignored)) {
    throw ConfigError(
        str(command, ": ", option, " must be a file, got ", file.string(), ": it is a folder"));
  }
  JsonReport(file).on_run_begin({});
}

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

}  // namespace lockstep
