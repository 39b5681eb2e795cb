// Checks --nproc-per-node when another launcher has started the ranks.
#pragma once

#include <optional>
#include <string>

#include <lockstep/comm/rendezvous/worker_environment.h>

namespace lockstep::cli {

/// Throws ConfigError if `--nproc-per-node` of `command` differs from the number of `worker`'s
/// ranks on this host; the message says where that number comes from.
void check_nproc_per_node(const std::string& command, std::optional<int> nproc_per_node,
                          const WorkerEnvironment& worker);

}  // namespace lockstep::cli
