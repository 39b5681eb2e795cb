// The rank, the world size and the meeting point that a launcher wrote into the environment.
//
// Supported, in this order: torchrun's variables (RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE,
// MASTER_ADDR, MASTER_PORT, TORCHELASTIC_*; Lockstep's own launcher writes the same), Open MPI's
// (OMPI_COMM_WORLD_*), PMI's (PMI_RANK, PMI_SIZE, MPI_LOCALRANKID, MPI_LOCALNRANKS) and Slurm's
// (SLURM_PROCID, SLURM_NTASKS, SLURM_LOCALID, ...). Slurm's are used only in a step with several
// tasks: a batch script or a shell in an allocation was not started by srun, so it has no launcher.
// MASTER_ADDR and MASTER_PORT, if set, take precedence over values derived from a scheduler.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include <lockstep/core/export.h>

namespace lockstep {

struct LOCKSTEP_API WorkerEnvironment {
  int rank = 0;
  int world_size = 1;
  int local_rank = 0;
  int local_world_size = 1;
  std::string master_addr = "127.0.0.1";
  std::uint16_t master_port = 0;  ///< 0 only if there is one process
  /// Whether the launcher already serves a store at the meeting point, so that rank 0 only connects
  /// (TORCHELASTIC_USE_AGENT_STORE).
  bool agent_store = false;
  int restart_count = 0;  ///< TORCHELASTIC_RESTART_COUNT: separates the keys of different attempts
  /// A listening socket, already bound to the meeting point, that rank 0 inherited from its
  /// launcher (LOCKSTEP_LISTEN_FD), so that no other program can take the port before rank 0
  /// listens on it.
  std::optional<int> listen_fd{};
  std::string source{};  ///< "torchrun", "lockstep", "Slurm", "Open MPI", "PMI": for messages
};

/// Reads the environment. Empty if no launcher started this process. Throws ConfigError if
/// variables are missing, are not numbers or contradict each other (a rank outside of the world,
/// RANK without WORLD_SIZE, ...); the message names the variables and their values.
LOCKSTEP_API std::optional<WorkerEnvironment> worker_environment();

}  // namespace lockstep
