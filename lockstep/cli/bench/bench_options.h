// Options common to several `lockstep bench` commands.
#pragma once

#include <chrono>
#include <filesystem>
#include <optional>
#include <string>

#include <lockstep/comm/rendezvous/worker_environment.h>

namespace lockstep::cli {

/// The number of ranks: the launcher's if a launcher started this process (`worker` is set),
/// otherwise `nproc_per_node`, by default 2. Throws ConfigError if the number is not from 2 to
/// `most`, or if the launcher and --nproc-per-node contradict each other.
int resolve_world_size(const std::string& command, std::optional<int> nproc_per_node,
                       const std::optional<WorkerEnvironment>& worker, int most);

/// Checks and converts the value of --timeout of `command`. Throws ConfigError if `seconds` is not
/// from 0.1 to 1e6.
std::chrono::milliseconds resolve_timeout(const std::string& command, double seconds);

/// Creates the folder if it is missing. Throws ConfigError, which names `command`, if files cannot
/// be created in it. Accepts an empty path, which stands for no trace.
void check_trace_folder(const std::string& command, const std::filesystem::path& folder);

}  // namespace lockstep::cli
