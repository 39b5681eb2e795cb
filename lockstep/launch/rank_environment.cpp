#include <lockstep/launch/rank_environment.h>

#include <cstdlib>

#include <lockstep/comm/store/network.h>
#include <lockstep/core/environment.h>
#include <lockstep/core/error.h>
#include <lockstep/launch/random_secret.h>

namespace lockstep::launch {
namespace {

void set_variable(const char* name, const std::string& value) { setenv(name, value.c_str(), 1); }

// An id that is the same on all hosts of a job.
std::string run_id(const JobEnvironment& job) {
  const LaunchOptions& options = job.options;
  if (options.nnodes == 1) return str("lockstep-", job.launcher);
  return str("lockstep-", options.master_addr, "-", options.master_port);
}

}  // namespace

std::optional<std::string> secret_of_job(const LaunchOptions& options) {
  auto secret = environment_string("LOCKSTEP_SECRET");
  if (options.nnodes == 1) return secret ? secret : random_secret();
  if (!secret && comm::is_reached_from_outside(options.master_addr, true)) {
    throw ConfigError(
        str("whoever reaches the meeting point ",
            comm::host_and_port(options.master_addr, options.master_port),
            " could join this job; start it on all hosts with the same "
            "LOCKSTEP_SECRET in the environment (made once, by: openssl rand -hex 32)"));
  }
  return secret;
}

void write_rank_environment(const JobEnvironment& job, int local_rank,
                            const MeetingPoint& meeting_point) {
  const LaunchOptions& options = job.options;
  const std::string rank = std::to_string(job.rank_of(local_rank));
  const std::string world_size = std::to_string(job.world_size());
  for (const char* name : {"RANK", "ROLE_RANK"}) set_variable(name, rank);
  for (const char* name : {"WORLD_SIZE", "ROLE_WORLD_SIZE"}) set_variable(name, world_size);
  set_variable("LOCAL_RANK", std::to_string(local_rank));
  set_variable("LOCAL_WORLD_SIZE", std::to_string(options.nproc_per_node));
  set_variable("GROUP_RANK", std::to_string(options.node_rank));
  set_variable("GROUP_WORLD_SIZE", std::to_string(options.nnodes));
  set_variable("ROLE_NAME", "default");
  set_variable("MASTER_ADDR", options.master_addr);
  set_variable("MASTER_PORT", std::to_string(meeting_point.port()));
  set_variable("TORCHELASTIC_RUN_ID", run_id(job));
  set_variable("TORCHELASTIC_RESTART_COUNT", "0");
  set_variable("TORCHELASTIC_MAX_RESTARTS", "0");
  unsetenv("TORCHELASTIC_USE_AGENT_STORE");
  unsetenv("TORCHELASTIC_ERROR_FILE");
  unsetenv("LOCKSTEP_LISTEN_FD");
  // Set after the fork, so that it appears in no command line.
  if (job.secret) set_variable("LOCKSTEP_SECRET", *job.secret);
  if (local_rank == 0 && meeting_point.listen_fd() >= 0) {
    set_variable("LOCKSTEP_LISTEN_FD", std::to_string(meeting_point.listen_fd()));
  }
}

}  // namespace lockstep::launch
