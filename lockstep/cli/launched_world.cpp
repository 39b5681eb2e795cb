#include <lockstep/cli/launched_world.h>

#include <lockstep/core/environment.h>
#include <lockstep/core/error.h>

namespace lockstep::cli {
namespace {

// Without torchrun's own mark, its variables were set by hand.
bool is_by_hand(const WorkerEnvironment& worker) {
  return worker.source == "torchrun" && !environment_string("TORCHELASTIC_RUN_ID");
}

}  // namespace

void check_nproc_per_node(const std::string& command, std::optional<int> nproc_per_node,
                          const WorkerEnvironment& worker) {
  if (!nproc_per_node || *nproc_per_node == worker.local_world_size) return;
  const std::string contradicts =
      str(command, ": --nproc-per-node ", *nproc_per_node, " contradicts ");
  if (is_by_hand(worker)) {
    throw ConfigError(str(contradicts, "the environment (WORLD_SIZE=", worker.world_size,
                          "), which means ", worker.local_world_size,
                          " on this host; remove --nproc-per-node, or unset RANK and WORLD_SIZE"));
  }
  throw ConfigError(str(contradicts, worker.source, ", which started ", worker.local_world_size,
                        " on this host; remove --nproc-per-node"));
}

}  // namespace lockstep::cli
