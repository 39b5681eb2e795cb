// Prints a line when Ctrl-C ends a command that runs in one process.
#pragma once

#include <csignal>

namespace lockstep::cli {

/// While this object lives, SIGINT and SIGTERM print the line that a launcher prints for its ranks,
/// "error: interrupted by signal 2 (Interrupt)", and then end the process by their default action.
/// Only one such object may exist at a time.
class InterruptLine {
 public:
  InterruptLine();
  ~InterruptLine();
  InterruptLine(const InterruptLine&) = delete;
  InterruptLine& operator=(const InterruptLine&) = delete;

 private:
  static constexpr int kSignals[] = {SIGINT, SIGTERM};
  struct sigaction before_[2] = {};
};

}  // namespace lockstep::cli
