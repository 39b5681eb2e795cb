// Signals as messages: while an inbox lives, signals wait in a descriptor instead of interrupting
// the program.
#pragma once

#include <sys/types.h>

#include <csignal>
#include <optional>
#include <string>

#include <lockstep/core/clock.h>

namespace lockstep::launch {

struct ReceivedSignal {
  int number = 0;
  /// The terminal sent it (Ctrl-C) to all processes of its foreground group.
  bool from_terminal = false;
};

/// Signals that ask a program to end and are closer together than this belong to one request, as
/// when `kill` and a batch system signal the launcher and its process group.
inline constexpr Milliseconds kOneRequest{500};

/// Whether a signal that asks a program to end, `later` than the first one, is a second request.
/// The terminal sends one signal for each Ctrl-C.
inline bool is_second_request(bool first_from_terminal, bool from_terminal, Clock::duration later) {
  return (first_from_terminal && from_terminal) || later >= kOneRequest;
}

/// Returns "signal 15 (Terminated)".
std::string signal_text(int signal);

/// Collects SIGCHLD and the signals that ask a program to end (SIGINT, SIGTERM, SIGHUP). A signal
/// that the program ignores, as under nohup, stays ignored. Only one inbox may exist at a time, and
/// only in a single-threaded process.
class SignalInbox {
 public:
  SignalInbox();
  ~SignalInbox();  ///< Discards unread signals and restores the former state.
  SignalInbox(const SignalInbox&) = delete;
  SignalInbox& operator=(const SignalInbox&) = delete;

  /// Waits for a signal, at most `timeout` (negative: forever). Returns nullopt if the time ran
  /// out.
  std::optional<ReceivedSignal> next(Milliseconds timeout);

  /// Forwards a signal that one inbox received to the inbox of another process, as if it had
  /// arrived there.
  static void pass_on(const ReceivedSignal& signal, pid_t process);

  /// In a forked child: restores the signals as they were before the inbox.
  void restore_in_child();

 private:
  int fd_ = -1;
  sigset_t former_mask_{};
  struct sigaction former_child_action_{};
};

}  // namespace lockstep::launch
