#include <lockstep/comm/rendezvous/worker_environment.h>

#include <sys/socket.h>

#include <limits>

#include <lockstep/comm/rendezvous/slurm.h>
#include <lockstep/comm/store/network.h>
#include <lockstep/core/environment.h>
#include <lockstep/core/error.h>

namespace lockstep {
namespace {

// The names under which a launcher publishes the four numbers that every launcher must provide.
struct Names {
  const char* rank;
  const char* world_size;
  const char* local_rank;
  const char* local_world_size;
};
constexpr Names kTorchrun{"RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"};
constexpr Names kOpenMpi{"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE",
                         "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE"};
constexpr Names kPmi{"PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"};

std::optional<int> integer(const char* name) {
  const auto value = environment_integer(name);
  if (!value) return std::nullopt;
  if (*value < 0 || *value > std::numeric_limits<int>::max()) {
    throw ConfigError(str("environment variable ", name, " must be between 0 and ",
                          std::numeric_limits<int>::max(), ", got ", *value));
  }
  return static_cast<int>(*value);
}

int required(const char* name, const char* beside) {
  if (const auto value = integer(name)) return *value;
  throw ConfigError(str("environment variable ", beside, " is set but ", name,
                        " is not: set both, or neither to run a single process"));
}

void check_rank(const char* rank_name, int rank, const char* size_name, int size) {
  if (size < 1)
    throw ConfigError(str("environment variable ", size_name, " must be at least 1, got ", size));
  if (rank >= size) {
    throw ConfigError(str(rank_name, "=", rank, " contradicts ", size_name, "=", size,
                          ": ranks count from 0 to ", size - 1));
  }
}

void check(const WorkerEnvironment& worker, const Names& names) {
  check_rank(names.rank, worker.rank, names.world_size, worker.world_size);
  check_rank(names.local_rank, worker.local_rank, names.local_world_size, worker.local_world_size);
  if (worker.local_world_size > worker.world_size) {
    throw ConfigError(str(names.local_world_size, "=", worker.local_world_size, " contradicts ",
                          names.world_size, "=", worker.world_size,
                          ": a host cannot hold more ranks than the world"));
  }
}

// WORLD_SIZE without RANK comes from a user's script and refers to the scheduler's world.
void check_same_world(const WorkerEnvironment& worker, const char* size_name) {
  const auto world_size = integer("WORLD_SIZE");
  if (world_size && *world_size != worker.world_size) {
    throw ConfigError(str("WORLD_SIZE=", *world_size, " contradicts ", size_name, "=",
                          worker.world_size, ", which ", worker.source,
                          " set: unset WORLD_SIZE, or start as many tasks"));
  }
}

std::optional<std::uint16_t> port_from_environment() {
  const auto port = environment_integer("MASTER_PORT");
  if (!port) return std::nullopt;
  if (*port < 1 || *port > 65535) {
    throw ConfigError(
        str("environment variable MASTER_PORT must be between 1 and 65535, got ", *port));
  }
  return static_cast<std::uint16_t>(*port);
}

// All tasks of a job must derive the same port without communicating, and two jobs on a host should
// get different ports. 15000 to 29999 lies below Linux's default range of ephemeral ports (32768
// and up).
std::uint16_t port_of_job(const std::string& job) {
  std::uint64_t hash = 14695981039346656037ULL;  // FNV-1a
  for (const char c : job) hash = (hash ^ static_cast<unsigned char>(c)) * 1099511628211ULL;
  return static_cast<std::uint16_t>(15000 + hash % 15000);
}

std::optional<std::string> address_from_environment() {
  const auto address = environment_string("MASTER_ADDR");
  if (!address) return std::nullopt;
  return comm::plain_host(*address);
}

// Chooses the meeting point under a scheduler: the user's choice if there is one, else an address
// derived from the name of the job.
void choose_meeting_point(WorkerEnvironment& worker, const std::optional<std::string>& first_host,
                          const std::optional<std::string>& job) {
  const auto address = address_from_environment();
  const auto port = port_from_environment();
  const bool one_host = worker.local_world_size == worker.world_size;
  if (address) {
    worker.master_addr = *address;
  } else if (!one_host) {
    if (!first_host) {
      throw ConfigError(str(worker.source, " started ", worker.world_size,
                            " ranks on several hosts but does not say where rank 0 is: set "
                            "MASTER_ADDR to its host name"));
    }
    worker.master_addr = *first_host;
  }
  if (port) {
    worker.master_port = *port;
  } else if (worker.world_size > 1) {
    if (!job) {
      throw ConfigError(
          str(worker.source, " started ", worker.world_size,
              " ranks but gives the job no name to derive a port from: set MASTER_PORT"));
    }
    worker.master_port = port_of_job(*job);
  }
}

// With a stale number rank 0 would serve its store on an unrelated descriptor.
int checked_listen_fd(int fd) {
  int listening = 0;
  socklen_t size = sizeof(listening);
  if (getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listening, &size) != 0 || listening == 0) {
    throw ConfigError(str("LOCKSTEP_LISTEN_FD=", fd,
                          " is not a listening socket: unset it, only the launcher sets it"));
  }
  return fd;
}

void read_torchrun_local(WorkerEnvironment& worker, bool one_host) {
  const auto rank = integer(kTorchrun.local_rank);
  const auto size = integer(kTorchrun.local_world_size);
  if (rank && size) {
    worker.local_rank = *rank;
    worker.local_world_size = *size;
  } else if (!rank && (!size || *size == 1)) {
    // Set by hand or by Kubernetes: all ranks share one host, or each has its own.
    worker.local_rank = one_host && !size ? worker.rank : 0;
    worker.local_world_size = one_host && !size ? worker.world_size : 1;
  } else if (rank && one_host) {
    worker.local_rank = *rank;
    worker.local_world_size = worker.world_size;
  } else {
    required(rank ? kTorchrun.local_world_size : kTorchrun.local_rank,
             rank ? kTorchrun.local_rank : kTorchrun.local_world_size);
  }
}

WorkerEnvironment from_torchrun(int rank) {
  WorkerEnvironment worker;
  const bool ours =
      environment_string("TORCHELASTIC_RUN_ID").value_or("").rfind("lockstep", 0) == 0;
  worker.source = ours ? "lockstep" : "torchrun";
  worker.rank = rank;
  worker.world_size = required(kTorchrun.world_size, kTorchrun.rank);
  check_rank(kTorchrun.rank, worker.rank, kTorchrun.world_size, worker.world_size);

  const auto address = address_from_environment();
  const auto port = port_from_environment();
  if (worker.world_size > 1 && (!address || !port)) {
    throw ConfigError(str("RANK and WORLD_SIZE=", worker.world_size, " are set but ",
                          address ? "MASTER_PORT" : "MASTER_ADDR",
                          " is not: set it to where rank 0 listens"));
  }
  worker.master_addr = address.value_or("127.0.0.1");
  worker.master_port = port.value_or(0);
  read_torchrun_local(worker, comm::is_loopback(worker.master_addr));
  worker.agent_store = environment_flag("TORCHELASTIC_USE_AGENT_STORE");
  worker.restart_count = integer("TORCHELASTIC_RESTART_COUNT").value_or(0);
  if (const auto fd = integer("LOCKSTEP_LISTEN_FD"); fd && rank == 0) {
    worker.listen_fd = checked_listen_fd(*fd);
  }
  check(worker, kTorchrun);
  return worker;
}

WorkerEnvironment from_open_mpi(int rank) {
  WorkerEnvironment worker;
  worker.source = "Open MPI";
  worker.rank = rank;
  worker.world_size = required(kOpenMpi.world_size, kOpenMpi.rank);
  worker.local_rank = required(kOpenMpi.local_rank, kOpenMpi.rank);
  worker.local_world_size = required(kOpenMpi.local_world_size, kOpenMpi.rank);
  check(worker, kOpenMpi);
  check_same_world(worker, kOpenMpi.world_size);
  auto job = environment_string("OMPI_MCA_ess_base_jobid");
  if (!job) job = environment_string("PMIX_NAMESPACE");
  choose_meeting_point(worker, std::nullopt, job);
  return worker;
}

WorkerEnvironment from_pmi(int rank) {
  WorkerEnvironment worker;
  worker.source = "PMI";
  worker.rank = rank;
  worker.world_size = required(kPmi.world_size, kPmi.rank);
  // Without the local pair the number of hosts is unknown; a single rank does not need it.
  if (worker.world_size > 1 || integer(kPmi.local_rank)) {
    worker.local_rank = required(kPmi.local_rank, kPmi.rank);
    worker.local_world_size = required(kPmi.local_world_size, kPmi.local_rank);
  }
  check(worker, kPmi);
  check_same_world(worker, kPmi.world_size);
  auto job = environment_string("PMI_JOBID");
  if (!job) job = environment_string("PMI_PORT");  // set by Hydra, equal on all ranks
  choose_meeting_point(worker, std::nullopt, job);
  return worker;
}

// Returns the first of the variables that is set. Step variables come first, because a step may be
// only a part of the job.
std::pair<const char*, std::string> first_set(std::initializer_list<const char*> names) {
  for (const char* name : names) {
    if (const auto text = environment_string(name)) return {name, *text};
  }
  return {nullptr, ""};
}

int slurm_local_world_size(int world_size) {
  const auto [name, text] = first_set({"SLURM_STEP_TASKS_PER_NODE", "SLURM_TASKS_PER_NODE"});
  if (name != nullptr) {
    const std::vector<int> tasks = comm::slurm_tasks_per_node(text, name);
    const int node = integer("SLURM_NODEID").value_or(0);
    if (node >= static_cast<int>(tasks.size())) {
      throw ConfigError(str("SLURM_NODEID=", node, " contradicts ", name, "=", text,
                            ", which lists ", tasks.size(), " nodes"));
    }
    return tasks[node];
  }
  if (const auto per_node = integer("SLURM_NTASKS_PER_NODE")) return *per_node;
  const auto [nodes_name, nodes] =
      first_set({"SLURM_STEP_NUM_NODES", "SLURM_NNODES", "SLURM_JOB_NUM_NODES"});
  if (nodes_name != nullptr && nodes == "1") return world_size;
  throw ConfigError(
      "Slurm started this process but SLURM_TASKS_PER_NODE is not set: start it with srun");
}

// SLURM_NTASKS and even SLURM_PROCID=0 are also set in a batch script and in a shell of salloc,
// where a single process runs without peers. Only srun starts peers, and only srun sets
// SLURM_STEP_ID. The shell that salloc opens as a separate step has this reserved number
// (0xfffffffa).
constexpr std::int64_t kSlurmInteractiveStep = 4294967290;

bool started_by_srun() {
  const auto step = environment_integer("SLURM_STEP_ID");
  return step && *step != kSlurmInteractiveStep && environment_string("SLURM_PROCID");
}

std::optional<WorkerEnvironment> from_slurm() {
  WorkerEnvironment worker;
  worker.source = "Slurm";
  worker.rank = required("SLURM_PROCID", "SLURM_STEP_ID");
  const auto [size_name, size] = first_set({"SLURM_STEP_NUM_TASKS", "SLURM_NTASKS"});
  worker.world_size = required(size_name == nullptr ? "SLURM_NTASKS" : size_name, "SLURM_PROCID");
  // A step with one task is usually a shell (srun --pty bash), in which `--nproc-per-node` must
  // work.
  if (worker.world_size == 1) return std::nullopt;
  worker.local_rank = required("SLURM_LOCALID", "SLURM_PROCID");
  worker.local_world_size = slurm_local_world_size(worker.world_size);
  check(worker, {"SLURM_PROCID", size_name, "SLURM_LOCALID", "SLURM_TASKS_PER_NODE"});
  check_same_world(worker, size_name);

  const auto [hosts_name, hosts] =
      first_set({"SLURM_STEP_NODELIST", "SLURM_JOB_NODELIST", "SLURM_NODELIST"});
  std::optional<std::string> first_host;
  if (hosts_name != nullptr) first_host = comm::first_slurm_host(hosts, hosts_name);
  auto job = environment_string("SLURM_JOB_ID");
  // Several steps of a job may run on the same host at once.
  if (job) job = str(*job, ".", environment_string("SLURM_STEP_ID").value_or(""));
  choose_meeting_point(worker, first_host, job);
  return worker;
}

}  // namespace

std::optional<WorkerEnvironment> worker_environment() {
  if (const auto rank = integer(kTorchrun.rank)) return from_torchrun(*rank);
  // mpirun and mpiexec inside a Slurm job start their helpers with srun, so SLURM_PROCID counts
  // helpers, not ranks. The innermost launcher's variables are the right ones.
  if (const auto rank = integer(kOpenMpi.rank)) return from_open_mpi(*rank);
  const auto pmi_rank = integer(kPmi.rank);
  if (pmi_rank && integer(kPmi.local_rank)) return from_pmi(*pmi_rank);
  if (started_by_srun()) return from_slurm();
  if (pmi_rank) return from_pmi(*pmi_rank);
  if (const auto world_size = integer(kTorchrun.world_size)) {
    throw ConfigError(str("WORLD_SIZE=", *world_size,
                          " is set but RANK is not, and no scheduler started this process: unset "
                          "WORLD_SIZE, or set RANK in every process"));
  }
  return std::nullopt;
}

}  // namespace lockstep
