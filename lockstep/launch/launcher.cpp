#include <lockstep/launch/launcher.h>

#include <fcntl.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <iterator>
#include <vector>

#include <lockstep/comm/network.h>
#include <lockstep/core/environment.h>
#include <lockstep/core/error.h>
#include <lockstep/core/log.h>
#include <lockstep/core/options.h>
#include <lockstep/launch/failure_report.h>
#include <lockstep/launch/process_clock.h>
#include <lockstep/launch/random_secret.h>
#include <lockstep/launch/signal_inbox.h>
#include <lockstep/launch/supervisor.h>

namespace lockstep {
namespace {

void flush_standard_streams() {
  std::cout.flush();
  std::fflush(nullptr);
}

// Where the ranks meet. Bound before they exist, so that no other program can take the port.
struct MeetingPoint {
  int fd = -1;
  std::uint16_t port = 0;
};

MeetingPoint open_meeting_point(std::uint16_t port) {
  try {
    const int fd = listen_on("127.0.0.1", port);
    return {fd, bound_port(fd)};
  } catch (const CommError& error) {
    throw ConfigError(error.what());  // nobody else is involved yet: the given port is wrong
  }
}

void set_variable(const char* name, const std::string& value) { setenv(name, value.c_str(), 1); }

// What torchrun gives its workers, for one host. Variables of a launcher around us do not apply.
void write_environment(int rank, int world_size, const MeetingPoint& meeting_point, pid_t launcher,
                       const std::string& secret) {
  const std::string rank_text = std::to_string(rank);
  const std::string size_text = std::to_string(world_size);
  for (const char* name : {"RANK", "LOCAL_RANK", "ROLE_RANK"}) set_variable(name, rank_text);
  for (const char* name : {"WORLD_SIZE", "LOCAL_WORLD_SIZE", "ROLE_WORLD_SIZE"}) {
    set_variable(name, size_text);
  }
  set_variable("GROUP_RANK", "0");
  set_variable("GROUP_WORLD_SIZE", "1");
  set_variable("ROLE_NAME", "default");
  set_variable("MASTER_ADDR", "127.0.0.1");
  set_variable("MASTER_PORT", std::to_string(meeting_point.port));
  set_variable("TORCHELASTIC_RUN_ID", str("lockstep-", launcher));
  set_variable("TORCHELASTIC_RESTART_COUNT", "0");
  set_variable("TORCHELASTIC_MAX_RESTARTS", "0");
  unsetenv("TORCHELASTIC_USE_AGENT_STORE");
  unsetenv("TORCHELASTIC_ERROR_FILE");
  unsetenv("LOCKSTEP_LISTEN_FD");
  set_variable("LOCKSTEP_SECRET", secret);
  if (rank == 0) set_variable("LOCKSTEP_LISTEN_FD", std::to_string(meeting_point.fd));
}

// Closed by the launcher when it no longer needs them, and by every rank that is not their owner.
struct Pipe {
  int read_end = -1;
  int write_end = -1;
};

Pipe open_pipe() {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) throw Error(str("cannot open a pipe: ", errno_text(errno)));
  return {ends[0], ends[1]};
}

// Static destructors are skipped: they belong to the launcher, and LibTorch's may wait for threads.
[[noreturn]] void run_rank(const std::function<void()>& rank_main, int report_fd) {
  int code = 0;
  try {
    rank_main();
  } catch (...) {
    const FailureReport report = describe_failure(std::current_exception());
    send_report(report_fd, report);
    code = report.exit_code;
  }
  flush_standard_streams();
  _exit(code);
}

// Also on loopback: every user of the host reaches that. The variable is written after the fork, so
// it is in no command line and not in the environment that /proc shows.
std::string secret_of_job() {
  return environment_string("LOCKSTEP_SECRET").value_or(random_secret());
}

// The ranks of one launch: forks them, and closes what the launcher holds of them.
class Ranks {
 public:
  explicit Ranks(const LaunchOptions& options)
      : world_size_(options.nproc_per_node),
        secret_(secret_of_job()),
        meeting_point_(open_meeting_point(options.master_port)) {}
  ~Ranks() {
    for (const RankProcess& process : processes_) close(process.report_fd);
    close_meeting_point();
  }
  Ranks(const Ranks&) = delete;
  Ranks& operator=(const Ranks&) = delete;

  void start(int rank, const std::function<void()>& rank_main, SignalInbox& inbox) {
    const pid_t launcher = getpid();
    const Pipe pipe = open_pipe();
    const pid_t pid = fork();
    if (pid < 0) {
      const int error = errno;
      close(pipe.read_end);
      close(pipe.write_end);
      throw Error(str("cannot start rank ", rank, " of ", world_size_, ": ", errno_text(error)));
    }
    if (pid == 0) {
      // The launcher may have ended before the request to die with it was made.
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      if (getppid() != launcher) _exit(1);
      close(pipe.read_end);
      for (const RankProcess& other : processes_) close(other.report_fd);
      write_environment(rank, world_size_, meeting_point_, launcher, secret_);
      inbox.restore_in_child();
      run_rank(rank_main, pipe.write_end);
    }
    close(pipe.write_end);
    // From now on rank 0 alone holds the socket: when it dies, others are refused instead of
    // waiting.
    if (rank == 0) close_meeting_point();
    RankProcess process;
    process.rank = rank;
    process.pid = pid;
    process.report_fd = pipe.read_end;
    processes_.push_back(process);
  }

  std::vector<RankProcess>& processes() { return processes_; }

 private:
  void close_meeting_point() {
    if (meeting_point_.fd >= 0) close(meeting_point_.fd);
    meeting_point_.fd = -1;
  }

  const int world_size_;
  const std::string secret_;
  MeetingPoint meeting_point_;
  std::vector<RankProcess> processes_;
};

void warn_of_threads() {
  std::error_code error;
  const auto threads = std::distance(std::filesystem::directory_iterator("/proc/self/task", error),
                                     std::filesystem::directory_iterator());
  if (!error && threads > 1) {
    log_warning(threads,
                " threads exist before the ranks are forked and will be missing in them: "
                "launch before the first OpenMP region or data loader");
  }
}

}  // namespace

LaunchResult launch_ranks(const LaunchOptions& options, const std::function<void()>& rank_main) {
  const OptionCheck check("launch");
  check.in_range("nproc_per_node", options.nproc_per_node, 1, 1024);
  check.at_least("grace", static_cast<double>(options.grace.count()), 0);

  seconds_since_command_start();  // the ranks inherit our start
  warn_of_threads();
  flush_standard_streams();  // else every rank would write what is still in the buffers
  Ranks ranks(options);
  SignalInbox inbox;
  Supervisor supervisor(ranks.processes(), inbox, options.grace);
  try {
    for (int rank = 0; rank < options.nproc_per_node; ++rank) ranks.start(rank, rank_main, inbox);
    return supervisor.run();
  } catch (...) {
    supervisor.kill_all();
    throw;
  }
}

}  // namespace lockstep
