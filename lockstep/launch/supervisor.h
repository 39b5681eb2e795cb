// Supervises the ranks of one host until the last of them has ended.
#pragma once

#include <sys/types.h>

#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include <lockstep/core/clock.h>
#include <lockstep/launch/arrivals.h>
#include <lockstep/launch/failure_report.h>
#include <lockstep/launch/launcher.h>
#include <lockstep/launch/signal_inbox.h>

namespace lockstep::launch {

/// The launcher's view of a rank.
struct RankProcess {
  int rank = 0;
  pid_t pid = -1;
  int report_fd = -1;  ///< Read end of the pipe for its failure report, owned by the launcher.

  // Set once the rank has ended:
  bool ended = false;
  int wait_status = 0;
  Clock::time_point ended_at{};
  std::optional<FailureReport> report;

  bool failed() const { return ended && wait_status != 0; }
  /// Whether it has ended early, as it was asked to, with its work done (Interrupted).
  bool was_interrupted() const { return report && report->interrupted_by != 0; }
  /// When the rank failed: the time in its report, which is earlier than its end; without a report,
  /// the time of its end.
  Clock::time_point failed_at() const { return report ? report->when : ended_at; }
};

/// Waits until all ranks have ended, normally on their own. When a rank fails or does not join its
/// group in time, the others get SIGTERM. When a signal asks this process to stop, all ranks get
/// that signal. Ranks that are still running after LaunchOptions::grace (after a signal, after
/// LaunchOptions::interrupt_grace if it is set), or when a second request arrives
/// (is_second_request()), get SIGKILL. With LaunchOptions::ranks_exec, all this also applies to
/// every process that the ranks have started.
///
/// `launcher` is the process ID of the launcher if that is this process's parent, and 0 if this
/// process is the launcher itself. When the parent is gone, all ranks get SIGKILL immediately.
class Supervisor {
 public:
  Supervisor(std::vector<RankProcess>& ranks, const Arrivals& arrivals, SignalInbox& inbox,
             const LaunchOptions& options, pid_t launcher = 0)
      : ranks_(ranks),
        arrivals_(arrivals),
        inbox_(inbox),
        grace_(options.grace),
        interrupt_grace_(options.interrupt_grace),
        join_timeout_(std::min<Milliseconds>(options.join_timeout, kLongest)),
        ranks_exec_(options.ranks_exec),
        launcher_(launcher) {}

  LaunchResult run();
  /// Sends SIGKILL to all ranks that are still running, and waits up to a second for their end.
  void kill_all();

 private:
  bool all_ended() const;
  /// Whether all ranks have ended, and with ranks_exec also the processes that they started.
  bool nothing_runs() const;
  bool is_abandoned() const;  ///< Whether the parent, `launcher`, is gone.
  void reap();
  void reap_orphans();
  void receive(Milliseconds timeout);
  void wait_for_news();
  /// Whether ranks have not joined their group in time; if so, sets a result that names them.
  bool note_late();
  void signal_running(int signal);
  void stop_running();
  bool all_succeeded() const;
  int interrupting_signal(const RankProcess* failure) const;
  int exit_code_of(const RankProcess& failure) const;
  const RankProcess* first_failure() const;
  bool is_echo(const RankProcess& failure) const;
  LaunchResult result() const;

  std::vector<RankProcess>& ranks_;
  static constexpr std::chrono::hours kLongest{24 * 36525};  // 100 years; sums in nanoseconds fit

  const Arrivals& arrivals_;
  SignalInbox& inbox_;
  const Milliseconds grace_;
  const std::optional<Milliseconds> interrupt_grace_;
  const Milliseconds join_timeout_;
  const bool ranks_exec_;
  const pid_t launcher_;
  int stop_signal_ = 0;           ///< The first signal that asked this process to stop; 0: none.
  bool sent_to_all_ = false;      ///< Whether the terminal sent it to the ranks, too (Ctrl-C).
  Clock::time_point asked_at_{};  ///< When that signal was received.
  bool hurry_ = false;            ///< Whether a second request came while the ranks were stopping.
  bool gave_up_ = false;          ///< Whether ranks were killed because interrupt_grace_ was over.
  std::optional<Clock::time_point> stopped_at_;  ///< When this process told the ranks to stop.
  /// How long run() has waited, excluding time for which this process itself was suspended.
  Clock::duration waited_{0};
  std::string late_text_;  ///< Names the ranks that did not join in time; empty if all did.
  int first_late_ = -1;    ///< The first of them; -1: none.
};

}  // namespace lockstep::launch
