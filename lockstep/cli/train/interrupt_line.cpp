#include <lockstep/cli/train/interrupt_line.h>

#include <unistd.h>

#include <string>

#include <lockstep/core/strings.h>
#include <lockstep/launch/signal_inbox.h>
#include <lockstep/report/terminal.h>
#include <lockstep/report/terminal_bar.h>

namespace lockstep::cli {
namespace {

// Prepared before a signal comes, because the handler may not allocate.
std::string& line_of(int signal) {
  static std::string of_interrupt, of_termination;
  return signal == SIGINT ? of_interrupt : of_termination;
}

// SA_RESETHAND restores the default action, which raise() triggers when this handler has returned.
void print_and_end(int signal) {
  const std::string& line = line_of(signal);
  [[maybe_unused]] const auto written = write(STDERR_FILENO, line.data(), line.size());
  raise(signal);
}

}  // namespace

// A signal that the caller ignores, as nohup does, stays ignored.
InterruptLine::InterruptLine() {
  const char* const clear = detect_terminal(STDERR_FILENO).interactive ? report::kClearLine : "";
  for (int i = 0; i < 2; ++i) {
    const int number = kSignals[i];
    line_of(number) =
        lockstep::str(clear, "error: interrupted by ", launch::signal_text(number), "\n");
    sigaction(number, nullptr, &before_[i]);
    if (before_[i].sa_handler != SIG_DFL) continue;
    struct sigaction action = {};
    action.sa_handler = print_and_end;
    action.sa_flags = SA_RESETHAND;
    sigaction(number, &action, nullptr);
  }
}

InterruptLine::~InterruptLine() {
  for (int i = 0; i < 2; ++i) sigaction(kSignals[i], &before_[i], nullptr);
}

}  // namespace lockstep::cli
