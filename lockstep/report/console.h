// The listener that fits where the output goes.
#pragma once

#include <memory>
#include <ostream>

#include <lockstep/report/terminal.h>
#include <lockstep/train/listener.h>

namespace lockstep {

/// A ProgressBar for an interactive terminal, else a LineLog. The stream must outlive it.
///   auto console = make_console_listener(std::cout, detect_terminal(STDOUT_FILENO));
std::unique_ptr<Listener> make_console_listener(std::ostream& out, const Terminal& terminal);

}  // namespace lockstep
