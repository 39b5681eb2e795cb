// Supervises the ranks of one host until the last has ended.
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

namespace lockstep {

/// The launcher's view of a rank.
struct RankProcess {
  int rank = 0;
  pid_t pid = -1;
  int report_fd = -1;  ///< Read end of its pipe, owned by the launcher.

  // Set once the rank has ended:
  bool ended = false;
  int wait_status = 0;
  Clock::time_point ended_at{};
  std::optional<FailureReport> report;

  bool failed() const { return ended && wait_status != 0; }
  /// The time of its report, which is earlier than the time of its end.
  Clock::time_point failed_at() const { return report ? report->when : ended_at; }
};

/// Runs until all ranks have ended. Normally they end on their own. When one fails, the others get
/// SIGTERM; when a signal asks to stop, all ranks get that signal. Ranks that are left after
/// `grace` get SIGKILL. With `ranks_exec` all this also applies to every process that ranks have
/// started. When the process `launcher`, our parent, is gone, all get SIGKILL at once; `launcher`
/// is 0 if this process is the launcher itself.
class Supervisor {
 public:
  Supervisor(std::vector<RankProcess>& ranks, const Arrivals& arrivals, SignalInbox& inbox,
             const LaunchOptions& options, pid_t launcher = 0)
      : ranks_(ranks),
        arrivals_(arrivals),
        inbox_(inbox),
        grace_(options.grace),
        join_timeout_(std::min<Milliseconds>(options.join_timeout, kLongest)),
        ranks_exec_(options.ranks_exec),
        launcher_(launcher) {}

  LaunchResult run();
  /// Ends all ranks at once, without asking for reasons.
  void kill_all();

 private:
  bool all_ended() const;
  bool nothing_runs() const;  ///< no process that has to end
  bool is_abandoned() const;  ///< The launcher is gone.
  void reap();
  void reap_orphans();
  void receive(Milliseconds timeout);
  void wait_for_news();
  /// Whether ranks have not joined their group in time; if so, sets a result that names them.
  bool note_late();
  void signal_running(int signal);
  void stop_running();
  int exit_code_of(const RankProcess& failure) const;
  const RankProcess* first_failure() const;
  bool is_echo(const RankProcess& failure) const;
  LaunchResult result() const;

  std::vector<RankProcess>& ranks_;
  static constexpr std::chrono::hours kLongest{24 * 36525};  // limit for a sum in nanoseconds

  const Arrivals& arrivals_;
  SignalInbox& inbox_;
  const Milliseconds grace_;
  const Milliseconds join_timeout_;
  const bool ranks_exec_;
  const pid_t launcher_;
  int stop_signal_ = 0;       ///< The first signal that asked to stop.
  bool sent_to_all_ = false;  ///< The ranks have got it too.
  bool hurry_ = false;        ///< The user asks (again) while stopping.
  std::optional<Clock::time_point> stopped_at_;
  Clock::duration waited_{0};  ///< Wait for the ranks' end, without time while we were stopped.
  std::string late_text_;      ///< Which ranks did not join in time; empty if all did.
  int first_late_ = -1;
};

}  // namespace lockstep
