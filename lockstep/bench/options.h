// Options common to all `lockstep bench` commands.
#pragma once

#include <chrono>
#include <filesystem>
#include <optional>
#include <string>

#include <lockstep/comm/rendezvous/worker_environment.h>

namespace lockstep {

/// Throws ConfigError before the measurement if `file`, given by `option` of `command`, cannot be
/// written. Accepts an empty `file`, which stands for no output.
void check_output_file(const std::string& command, const std::string& option,
                       const std::filesystem::path& file);

/// The number of ranks: that of the launcher that started this process, otherwise `nproc_per_node`,
/// otherwise 2. ConfigError outside of 2 to `most`, and if the launcher and the option contradict
/// each other.
int resolve_world_size(const std::string& command, std::optional<int> nproc_per_node,
                       const std::optional<WorkerEnvironment>& worker, int most);

/// Parses --timeout of `command`, in seconds. ConfigError below 0.1 s and above 1e6 s.
std::chrono::milliseconds resolve_timeout(const std::string& command, double seconds);

}  // namespace lockstep
