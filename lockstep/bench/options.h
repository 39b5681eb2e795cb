// What the options of all `lockstep bench` commands have in common.
#pragma once

#include <chrono>
#include <filesystem>
#include <optional>
#include <string>

#include <lockstep/comm/rendezvous/worker_environment.h>

namespace lockstep {

/// ConfigError now rather than after the measurement where `file`, given by `option` of `command`,
/// could not be written. An empty one is not asked for.
void check_output_file(const std::string& command, const std::string& option,
                       const std::filesystem::path& file);

/// How many ranks measure: those of the launcher that started this process, else `nproc_per_node`,
/// else 2. ConfigError outside of 2 to `most`, and where the two contradict each other.
int resolve_world_size(const std::string& command, std::optional<int> nproc_per_node,
                       const std::optional<WorkerEnvironment>& worker, int most);

/// --timeout of `command`, given in seconds. ConfigError below 0.1 s and above 1e6 s.
std::chrono::milliseconds resolve_timeout(const std::string& command, double seconds);

}  // namespace lockstep
