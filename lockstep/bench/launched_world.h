// --nproc-per-node beside ranks that somebody else has started.
#pragma once

#include <optional>
#include <string>

#include <lockstep/comm/rendezvous/worker_environment.h>

namespace lockstep {

/// ConfigError where `--nproc-per-node` of `command` is another number than that of `worker`'s
/// ranks on this host; it says who set that.
void check_nproc_per_node(const std::string& command, std::optional<int> nproc_per_node,
                          const WorkerEnvironment& worker);

}  // namespace lockstep
