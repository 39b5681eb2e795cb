#include <lockstep/cli/train/stop_on_signal.h>

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdint>
#include <string>
#include <thread>

#include <lockstep/core/clock.h>
#include <lockstep/core/strings.h>
#include <lockstep/launch/signal_inbox.h>
#include <lockstep/report/terminal.h>
#include <lockstep/report/terminal_bar.h>

namespace lockstep::cli {
namespace {

// The lines about a signal.
struct SignalLines {
  std::string first{};
  std::string second{};
  std::string too_late{};
};

// What the handlers use. All of it is prepared before a signal comes, because a handler may not
// allocate.
struct StopState {
  StopRequest* request = nullptr;
  bool supervised = false;
  bool speaks = false;
  unsigned patience_seconds = 0;
  SignalLines interrupt{};    // SIGINT
  SignalLines termination{};  // SIGTERM
  // When the first signal came, in ticks of Clock; 0: none has come.
  std::atomic<std::int64_t> first_at{0};
  std::atomic<int> first_signal{0};
  std::atomic<bool> first_from_terminal{false};
  std::atomic<int> running_handlers{0};
};

static_assert(std::atomic<std::int64_t>::is_always_lock_free, "a handler must not wait for a lock");

// Never destroyed: a signal may come at any time.
StopState& stop_state() {
  static StopState& state = *new StopState;
  return state;
}

const SignalLines& lines_about(int signal) {
  const StopState& state = stop_state();
  return signal == SIGINT ? state.interrupt : state.termination;
}

void print_line(const std::string& line) {
  if (!stop_state().speaks) return;
  [[maybe_unused]] const auto written = write(STDERR_FILENO, line.data(), line.size());
}

// Lives as long as a handler runs.
class RunningHandler {
 public:
  RunningHandler() { ++stop_state().running_handlers; }
  ~RunningHandler() { --stop_state().running_handlers; }
  RunningHandler(const RunningHandler&) = delete;
  RunningHandler& operator=(const RunningHandler&) = delete;
};

// The default action takes effect once no handler blocks the signal.
void end_by(int number) {
  std::signal(number, SIG_DFL);
  raise(number);
}

void on_stop_signal(int number, siginfo_t* info, void* /*context*/) {
  const RunningHandler running;
  const int error_before = errno;
  StopState& state = stop_state();
  const bool from_terminal = info->si_code == SI_KERNEL;
  const Clock::duration now = Clock::now().time_since_epoch();
  std::int64_t first_at = 0;
  if (state.first_at.compare_exchange_strong(first_at, now.count())) {
    state.first_from_terminal = from_terminal;
    state.first_signal = number;
    state.request->request(number);
    print_line(lines_about(number).first);
    if (!state.supervised) alarm(state.patience_seconds);
  } else if (!state.supervised &&
             launch::is_second_request(state.first_from_terminal, from_terminal,
                                       now - Clock::duration(first_at))) {
    print_line(lines_about(number).second);
    end_by(number);
  }
  errno = error_before;
}

void on_end_of_patience(int /*number*/) {
  const int first = stop_state().first_signal;
  if (first == 0) return;
  print_line(lines_about(first).too_late);
  end_by(first);
}

SignalLines make_lines(int number, unsigned patience_seconds) {
  const char* const clear = detect_terminal(STDERR_FILENO).interactive ? report::kClearLine : "";
  const std::string interrupted = "interrupted by " + launch::signal_text(number);
  return {.first = lockstep::str(clear, "note: ", interrupted,
                                 ": the run finishes its step and saves a checkpoint; a second "
                                 "signal ends it without saving\n"),
          .second = lockstep::str(clear, "error: ", interrupted, '\n'),
          .too_late = lockstep::str(clear, "error: ", interrupted, "; the run did not save within ",
                                    patience_seconds, " s; resume from an earlier checkpoint\n")};
}

}  // namespace

StopOnSignal::StopOnSignal(StopRequest& request, const Options& options) {
  StopState& state = stop_state();
  state.request = &request;
  state.supervised = options.supervised;
  state.speaks = options.speaks;
  state.patience_seconds = static_cast<unsigned>(
      std::max<std::int64_t>(std::chrono::ceil<std::chrono::seconds>(options.patience).count(), 1));
  state.interrupt = make_lines(SIGINT, state.patience_seconds);
  state.termination = make_lines(SIGTERM, state.patience_seconds);
  state.first_at = 0;
  state.first_signal = 0;
  state.first_from_terminal = false;
  struct sigaction end = {};
  end.sa_handler = on_end_of_patience;
  sigaction(SIGALRM, &end, &alarm_before_);
  struct sigaction action = {};
  action.sa_sigaction = on_stop_signal;
  action.sa_flags = SA_SIGINFO | SA_RESTART;
  for (const int number : kSignals) sigaddset(&action.sa_mask, number);
  for (int i = 0; i < 2; ++i) {
    sigaction(kSignals[i], nullptr, &before_[i]);
    if (before_[i].sa_handler != SIG_IGN) sigaction(kSignals[i], &action, nullptr);
  }
}

// A supervised process is about to end. The launcher waits for it, whatever signals come.
StopOnSignal::~StopOnSignal() {
  const bool supervised = stop_state().supervised;
  for (int i = 0; i < 2; ++i) {
    if (supervised) {
      std::signal(kSignals[i], SIG_IGN);
    } else {
      sigaction(kSignals[i], &before_[i], nullptr);
    }
  }
  // Another thread may still run a handler: it uses the request, and it may set the alarm.
  while (stop_state().running_handlers > 0) std::this_thread::yield();
  if (!supervised) alarm(0);
  sigaction(SIGALRM, &alarm_before_, nullptr);
}

}  // namespace lockstep::cli
