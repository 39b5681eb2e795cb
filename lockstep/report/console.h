// Listeners that print a run to a terminal or a stream.
#pragma once

#include <memory>
#include <ostream>
#include <vector>

#include <lockstep/report/terminal.h>
#include <lockstep/train/task/listener.h>

namespace lockstep {

/// A ProgressBar for an interactive terminal, else a LineLog. The stream must outlive it.
///   auto console = make_console_listener(std::cout, detect_terminal(STDOUT_FILENO));
std::unique_ptr<Listener> make_console_listener(std::ostream& out, const Terminal& terminal);

/// What `lockstep train` prints of a run, for TrainerOptions::listeners: the progress of epochs and
/// steps, and the tables of the model, of the run and of its profile, where the options ask for
/// them. The stream must outlive the listeners.
std::vector<ListenerHandle> make_terminal_listeners(std::ostream& out, const Terminal& terminal);

}  // namespace lockstep
