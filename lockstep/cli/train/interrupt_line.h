// The line of a command in one process that Ctrl-C ends.
#pragma once

#include <csignal>

namespace lockstep {

/// While it lives, SIGINT and SIGTERM print the line that a launcher prints of its ranks, "error:
/// interrupted by signal 2 (Interrupt)", and then end the process as they would have. There may be
/// one at a time.
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

}  // namespace lockstep
