#include <lockstep/launch/supervisor.h>

#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <set>
#include <tuple>

#include <lockstep/core/error.h>
#include <lockstep/core/strings.h>
#include <lockstep/launch/process_tree.h>

namespace lockstep::launch {
namespace {

// How long to wait for the cause of a failure that looks like a consequence of another. A failing
// rank leaves its group, which its peers notice, while it is still unwinding.
constexpr Milliseconds kEchoWindow{400};
// After SIGKILL the wait is only for the kernel's clean-up; a process stuck in it is given up.
constexpr Milliseconds kKillTimeout{1000};
// Another thread of the program may take SIGCHLD; then the next poll detects the end.
constexpr Milliseconds kLookInterval{200};
// A stopped rank cannot notice its own deadline. The other ranks can, and their errors are more
// specific: the launcher gives them time for it, and for a start on a slow machine.
constexpr Milliseconds kStoppedMargin{2000};
constexpr Milliseconds kJoinMargin{5000};

bool died_of(const RankProcess& rank, int signal) {
  return rank.failed() && WIFSIGNALED(rank.wait_status) && WTERMSIG(rank.wait_status) == signal;
}

const char* hint(int signal) {
  switch (signal) {
    case SIGKILL:
      return ": if nobody did that, memory ran out; the kernel's log (dmesg) tells";
    case SIGBUS:
      return ": memory or a mapped file vanished; is a file system full?";
    case SIGABRT:
      return ": an uncaught exception (its message is above, after what()) or a failed assertion";
    case SIGSEGV:
    case SIGFPE:
    case SIGILL:
      return ": a crash; run that rank under a debugger, or start a single one";
    default:
      return "";
  }
}

std::string describe(const RankProcess& rank) {
  if (rank.report) {
    const std::string text = rank.report->text.substr(0, rank.report->text.find('\n'));
    const std::string name = str("rank ", rank.rank, ": ");
    return text.starts_with(name) ? text : name + text;
  }
  if (WIFSIGNALED(rank.wait_status)) {
    const int signal = WTERMSIG(rank.wait_status);
    return str("rank ", rank.rank, " was killed by ", signal_text(signal), hint(signal));
  }
  return str("rank ", rank.rank, " ended with exit code ", WEXITSTATUS(rank.wait_status));
}

}  // namespace

bool Supervisor::all_ended() const {
  for (const RankProcess& rank : ranks_) {
    if (!rank.ended) return false;
  }
  return true;
}

bool Supervisor::nothing_runs() const {
  return all_ended() && (!ranks_exec_ || running_descendants().empty());
}

bool Supervisor::is_abandoned() const { return launcher_ != 0 && getppid() != launcher_; }

void Supervisor::reap() {
  for (RankProcess& rank : ranks_) {
    if (rank.ended) continue;
    const pid_t reaped = waitpid(rank.pid, &rank.wait_status, WNOHANG);
    if (reaped == 0) continue;
    rank.ended = true;
    rank.ended_at = Clock::now();
    rank.report = receive_report(rank.report_fd);
    // Other code in this program waited for our child: its exit status is lost, but it has ended.
    // Its report, if any, gives the reason.
    if (reaped < 0) rank.wait_status = rank.report ? W_EXITCODE(rank.report->exit_code, 0) : 0;
  }
  if (ranks_exec_) reap_orphans();
}

// Processes that ranks started and left become children of this process (OrphanKeeper).
void Supervisor::reap_orphans() {
  siginfo_t ended{};
  while (waitid(P_ALL, 0, &ended, WEXITED | WNOHANG | WNOWAIT) == 0 && ended.si_pid != 0) {
    for (const RankProcess& rank : ranks_) {
      if (!rank.ended && rank.pid == ended.si_pid) return;  // ended after reap() looked
    }
    waitpid(ended.si_pid, nullptr, WNOHANG);
    ended = {};
  }
}

// Unread SIGCHLDs merge into one, so each one means "check all children".
void Supervisor::receive(Milliseconds timeout) {
  const auto signal = inbox_.next(timeout);
  if (!signal || signal->number == SIGCHLD || is_abandoned()) {
    reap();
  } else if (stop_signal_ == 0 && !stopped_at_) {
    stop_signal_ = signal->number;
    sent_to_all_ = signal->from_terminal;
    asked_at_ = Clock::now();
  } else if (stop_signal_ == 0 ||
             is_second_request(sent_to_all_, signal->from_terminal, Clock::now() - asked_at_)) {
    hurry_ = true;
  }
}

void Supervisor::signal_running(int signal) {
  std::set<pid_t> receivers;
  if (ranks_exec_) {
    const std::vector<pid_t> descendants = running_descendants();
    receivers.insert(descendants.begin(), descendants.end());
  }
  for (const RankProcess& rank : ranks_) {
    if (!rank.ended) receivers.insert(rank.pid);
  }
  for (const pid_t receiver : receivers) kill(receiver, signal);
}

void Supervisor::kill_all() {
  signal_running(SIGKILL);
  const Deadline deadline(kKillTimeout);
  while (!nothing_runs() && !deadline.expired()) {
    receive(std::min(kLookInterval, std::chrono::ceil<Milliseconds>(deadline.remaining())));
    if (ranks_exec_) signal_running(SIGKILL);  // for processes that were just being started
  }
}

void Supervisor::stop_running() {
  stopped_at_ = Clock::now();
  if (!sent_to_all_) signal_running(stop_signal_ != 0 ? stop_signal_ : SIGTERM);
  const bool finishes_work = stop_signal_ != 0 && interrupt_grace_.has_value();
  Deadline deadline(finishes_work ? *interrupt_grace_ : grace_);
  bool has_failed = false;
  bool orphans_asked = false;
  while (!nothing_runs() && !deadline.expired() && !hurry_ && !is_abandoned()) {
    receive(std::min(kLookInterval, std::chrono::ceil<Milliseconds>(deadline.remaining())));
    // Processes that a shell started in the background ignore SIGINT.
    if (all_ended() && !orphans_asked) signal_running(SIGTERM);
    orphans_asked = all_ended();
    // The others cannot finish their work without a rank that has failed in it.
    if (finishes_work && !has_failed && first_failure() != nullptr) {
      has_failed = true;
      deadline = Deadline(std::min(grace_, std::chrono::ceil<Milliseconds>(deadline.remaining())));
    }
  }
  gave_up_ = finishes_work && !has_failed && !hurry_ && !all_ended();
  kill_all();
}

// Whether another failure may have caused this one.
bool Supervisor::is_echo(const RankProcess& failure) const {
  return (failure.report && failure.report->communication) || died_of(failure, SIGINT) ||
         died_of(failure, SIGTERM) || died_of(failure, SIGHUP);
}

// The failure that came first, causes before consequences. A rank that ends after we asked it to
// has not failed, unless it reports a reason of its own: then it was already unwinding. Nor has one
// that reports only that it was interrupted.
const RankProcess* Supervisor::first_failure() const {
  const RankProcess* first = nullptr;
  for (const RankProcess& rank : ranks_) {
    const bool asked_to_end = stopped_at_ && rank.failed_at() > *stopped_at_;
    if (!rank.failed() || rank.was_interrupted()) continue;
    if (asked_to_end && (!rank.report || is_echo(rank))) continue;
    const auto order = [this](const RankProcess& r) {
      return std::tuple(is_echo(r), r.failed_at());
    };
    if (first == nullptr || order(rank) < order(*first)) first = &rank;
  }
  return first;
}

void Supervisor::wait_for_news() {
  const auto begin = Clock::now();
  receive(kLookInterval);
  waited_ += std::min<Clock::duration>(Clock::now() - begin, 2 * kLookInterval);
}

// The other ranks wait for stopped ranks, so if there are any, only these are named.
bool Supervisor::note_late() {
  if (join_timeout_.count() == 0 || waited_ < join_timeout_ + kStoppedMargin) return false;
  std::vector<int> missing, stopped;
  for (std::size_t local_rank = 0; local_rank < ranks_.size(); ++local_rank) {
    const RankProcess& rank = ranks_[local_rank];
    if (rank.ended || arrivals_.has_come(static_cast<int>(local_rank))) continue;
    missing.push_back(rank.rank);
    if (is_stopped(rank.pid)) stopped.push_back(rank.rank);
  }
  const bool all_had_time = waited_ >= 2 * join_timeout_ + kJoinMargin;
  const std::vector<int>& named = stopped.empty() ? missing : stopped;
  if (named.empty() || (stopped.empty() && !all_had_time)) return false;
  first_late_ = named.front();
  late_text_ =
      str(named.size() == 1 ? "rank " : "ranks ", join(named), named.size() == 1 ? " has" : " have",
          " not joined the group within ", std::chrono::duration<double>(join_timeout_).count(),
          " s", stopped.empty() ? "" : ": stopped by a signal, and not continued");
  return true;
}

LaunchResult Supervisor::run() {
  while (!all_ended() && stop_signal_ == 0 && first_failure() == nullptr && !is_abandoned() &&
         !note_late()) {
    wait_for_news();
  }
  if (const RankProcess* failure = first_failure(); failure != nullptr && is_echo(*failure)) {
    const Deadline deadline(kEchoWindow);
    while (!all_ended() && !deadline.expired() && stop_signal_ == 0 && !is_abandoned() &&
           is_echo(*first_failure())) {
      receive(std::chrono::ceil<Milliseconds>(deadline.remaining()));
    }
  }
  if (is_abandoned()) {
    kill_all();
    return result();
  }
  const bool failed = stop_signal_ != 0 || first_failure() != nullptr || first_late_ >= 0;
  if (!all_ended() || (failed && !nothing_runs())) stop_running();
  return result();
}

int Supervisor::exit_code_of(const RankProcess& failure) const {
  if (failure.report) return failure.report->exit_code;
  if (!ranks_exec_) return 1;
  return WIFSIGNALED(failure.wait_status) ? 128 + WTERMSIG(failure.wait_status)
                                          : WEXITSTATUS(failure.wait_status);
}

bool Supervisor::all_succeeded() const {
  return std::ranges::all_of(
      ranks_, [](const RankProcess& rank) { return rank.ended && rank.wait_status == 0; });
}

// Ctrl-C reaches both the ranks and the launcher, in any order.
int Supervisor::interrupting_signal(const RankProcess* failure) const {
  if (stop_signal_ != 0) return stop_signal_;
  if (failure != nullptr) return died_of(*failure, SIGINT) ? SIGINT : 0;
  const auto found = std::ranges::find_if(ranks_, &RankProcess::was_interrupted);
  return found == ranks_.end() ? 0 : found->report->interrupted_by;
}

LaunchResult Supervisor::result() const {
  LaunchResult result;
  // The signal came too late to interrupt anything.
  if (interrupt_grace_ && all_succeeded()) return result;
  const RankProcess* failure = first_failure();
  const int interrupted_by = interrupting_signal(failure);
  if (interrupted_by != 0 && (failure == nullptr || is_echo(*failure))) {
    result.interrupted_by = interrupted_by;
    result.exit_code = 128 + interrupted_by;
    result.message = "interrupted by " + signal_text(interrupted_by);
    if (gave_up_) {
      result.message +=
          str("; ranks that had not ended after ",
              std::chrono::duration<double>(*interrupt_grace_).count(), " s were killed");
    }
  } else if (first_late_ >= 0) {
    result.failed_rank = first_late_;
    result.exit_code = 1;
    result.message = late_text_;
  } else if (failure != nullptr) {
    result.failed_rank = failure->rank;
    result.exit_code = exit_code_of(*failure);
    result.message = describe(*failure);
    if (failure->report) result.details = failure->report->text;
  }
  return result;
}

}  // namespace lockstep::launch
