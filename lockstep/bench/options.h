// Options common to all `lockstep bench` commands.
#pragma once

#include <chrono>
#include <filesystem>
#include <optional>
#include <string>

#include <lockstep/comm/rendezvous/worker_environment.h>

namespace lockstep {

/// Throws ConfigError if `file`, the value of `option` of `command`, cannot be written. Call it
/// before the measurement. An empty `file` means no output and is accepted.
void check_output_file(const std::string& command, const std::string& option,
                       const std::filesystem::path& file);

/// The number of ranks: the launcher's if a launcher started this process (`worker` is set),
/// otherwise `nproc_per_node`, by default 2. Throws ConfigError if the number is not from 2 to
/// `most`, or if the launcher and the option contradict each other.
int resolve_world_size(const std::string& command, std::optional<int> nproc_per_node,
                       const std::optional<WorkerEnvironment>& worker, int most);

/// Checks and converts the value of --timeout of `command`. Throws ConfigError if `seconds` is not
/// from 0.1 to 1e6.
std::chrono::milliseconds resolve_timeout(const std::string& command, double seconds);

}  // namespace lockstep
