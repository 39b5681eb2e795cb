#include <lockstep/launch/launcher.h>

#include <fcntl.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <filesystem>
#include <iostream>
#include <iterator>
#include <vector>

#include <lockstep/comm/store/network.h>
#include <lockstep/core/error.h>
#include <lockstep/core/log.h>
#include <lockstep/core/options.h>
#include <lockstep/launch/arrivals.h>
#include <lockstep/launch/failure_report.h>
#include <lockstep/launch/guardian.h>
#include <lockstep/launch/meeting_point.h>
#include <lockstep/launch/output_relay.h>
#include <lockstep/launch/process_clock.h>
#include <lockstep/launch/process_tree.h>
#include <lockstep/launch/rank_environment.h>
#include <lockstep/launch/signal_inbox.h>
#include <lockstep/launch/supervisor.h>

namespace lockstep {
namespace {

// How long to wait until the ranks' last output is read; after that the relay continues on its own.
constexpr Milliseconds kPatience{10000};
constexpr Milliseconds kHaste{1000};  // a failed or interrupted job should end soon

void flush_standard_streams() {
  std::cout.flush();
  std::fflush(nullptr);
}

// The launcher closes the ends when it no longer needs them; every rank closes those of other
// ranks.
struct Pipe {
  int read_end = -1;
  int write_end = -1;
};

Pipe open_pipe() {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) throw Error(str("cannot open a pipe: ", errno_text(errno)));
  return {ends[0], ends[1]};
}

// Skips static destructors: they belong to the launcher, and LibTorch's may wait for threads.
[[noreturn]] void run_rank(const std::function<void()>& rank_main, int report_fd) {
  int code = 0;
  try {
    rank_main();
  } catch (...) {
    const launch::FailureReport report = launch::describe_failure(std::current_exception());
    launch::send_report(report_fd, report);
    code = report.exit_code;
  }
  flush_standard_streams();
  _exit(code);
}

// The ranks of one launch: forks them, and closes the launcher's descriptors for them.
class Ranks {
 public:
  explicit Ranks(const LaunchOptions& options)
      : job_{options, getpid(), launch::secret_of_job(options)},
        meeting_point_(options),
        arrivals_(options.nproc_per_node) {}
  ~Ranks() {
    for (const launch::RankProcess& process : processes_) close(process.report_fd);
  }
  Ranks(const Ranks&) = delete;
  Ranks& operator=(const Ranks&) = delete;

  void start(int local_rank, const std::function<void()>& rank_main, launch::SignalInbox& inbox,
             launch::OutputRelay& relay) {
    const Pipe pipe = open_pipe();
    const pid_t parent = getpid();
    const pid_t pid = fork();
    if (pid < 0) {
      const int error = errno;
      close(pipe.read_end);
      close(pipe.write_end);
      throw Error(str("cannot start rank ", job_.rank_of(local_rank), " of ", job_.world_size(),
                      ": ", errno_text(error)));
    }
    if (pid == 0) {
      // The parent may have ended before PR_SET_PDEATHSIG was set.
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      if (getppid() != parent) _exit(1);
      setpgid(0, process_group_);  // the terminal's group, which a guardian has left
      relay.connect(local_rank);
      close(pipe.read_end);
      for (const launch::RankProcess& other : processes_) close(other.report_fd);
      launch::write_rank_environment(job_, local_rank, meeting_point_);
      inbox.restore_in_child();
      arrivals_.become(local_rank);
      run_rank(rank_main, pipe.write_end);
    }
    close(pipe.write_end);
    if (local_rank == 0) meeting_point_.close_listener();
    launch::RankProcess process;
    process.rank = job_.rank_of(local_rank);
    process.pid = pid;
    process.report_fd = pipe.read_end;
    processes_.push_back(process);
  }

  std::vector<launch::RankProcess>& processes() { return processes_; }
  const launch::Arrivals& arrivals() const { return arrivals_; }

 private:
  const launch::JobEnvironment job_;
  const pid_t process_group_ = getpgrp();
  launch::MeetingPoint meeting_point_;
  launch::Arrivals arrivals_;
  std::vector<launch::RankProcess> processes_;
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

void check_options(const LaunchOptions& options) {
  const OptionCheck check("launch");
  check.in_range("nproc_per_node", options.nproc_per_node, 1, 1024);
  check.in_range("nnodes", options.nnodes, 1, 65536);
  check.in_range("node_rank", options.node_rank, 0, options.nnodes - 1);
  if (options.nnodes > 1) check.in_range("master_port", options.master_port, 1, 65535);
  check.at_least("grace", static_cast<double>(options.grace.count()), 0);
  if (options.interrupt_grace) {
    check.at_least("interrupt_grace", static_cast<double>(options.interrupt_grace->count()), 0);
  }
  check.at_least("join_timeout", static_cast<double>(options.join_timeout.count()), 0);
  if (options.ranks_exec && options.join_timeout.count() != 0) {
    throw ConfigError(
        "launch: join_timeout must be 0 with ranks_exec: another program cannot tell "
        "that it has joined");
  }
}

// Otherwise each rank of several hosts would look for an unknown meeting point until its timeout.
void check_meeting_point(const LaunchOptions& options) {
  if (options.nnodes == 1) return;
  try {
    comm::resolve_address(options.master_addr);
  } catch (const CommError& error) {
    // The ranks of other nodes than rank 0's look again.
    const bool may_be_known_later = dynamic_cast<const comm::NameNotKnownYet*>(&error) != nullptr;
    if (may_be_known_later && options.node_rank > 0) return;
    throw ConfigError(str("launch: ", error.what(),
                          "; give master_addr a name that this host knows, or an address"));
  }
}

}  // namespace

Interrupted::Interrupted(int signal)
    : Error("interrupted by " + launch::signal_text(signal)), signal_(signal) {}

LaunchResult launch_ranks(const LaunchOptions& given, const std::function<void()>& rank_main) {
  check_options(given);
  LaunchOptions options = given;
  options.master_addr = comm::plain_host(given.master_addr);
  check_meeting_point(options);
  if (options.nnodes == 1 && options.master_addr == "127.0.0.1")
    options.master_addr = comm::own_loopback();
  launch::seconds_since_command_start();  // the ranks inherit the launcher's start
  warn_of_threads();
  flush_standard_streams();  // otherwise every rank would write the buffered text again
  Ranks ranks(options);
  launch::SignalInbox inbox;
  launch::OutputRelay relay(options);
  const auto supervise = [&](pid_t launcher) {
    const launch::OrphanKeeper orphans(options.ranks_exec);
    launch::Supervisor supervisor(ranks.processes(), ranks.arrivals(), inbox, options, launcher);
    try {
      for (int rank = 0; rank < options.nproc_per_node; ++rank) {
        ranks.start(rank, rank_main, inbox, relay);
      }
      relay.close_pipes();
      return supervisor.run();
    } catch (...) {
      supervisor.kill_all();
      throw;
    }
  };
  try {
    const LaunchResult result =
        options.ranks_exec ? launch::run_guarded(inbox, relay, supervise) : supervise(0);
    relay.drain(result.ok() ? kPatience : kHaste);
    return result;
  } catch (...) {
    relay.drain(kHaste);
    throw;
  }
}

}  // namespace lockstep
