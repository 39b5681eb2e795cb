// Listeners that print a run to a terminal or a stream.
#pragma once

#include <filesystem>
#include <memory>
#include <ostream>
#include <vector>

#include <lockstep/core/export.h>
#include <lockstep/report/terminal.h>
#include <lockstep/train/task/listener.h>

namespace lockstep {

/// A ProgressBar for an interactive terminal, otherwise a LineLog. The stream must outlive it.
///   auto console = make_console_listener(std::cout, detect_terminal(STDOUT_FILENO));
LOCKSTEP_API std::unique_ptr<Listener> make_console_listener(std::ostream& out,
                                                             const Terminal& terminal);

/// The listeners of `lockstep train`, for TrainerOptions::listeners: they print the progress of
/// epochs and steps, and, if the options ask for them, the tables of the model, the run and its
/// profile. The stream must outlive the listeners. `folder` is that of the RunRecord, if there is
/// one: in a resumed run, the table also has the epochs that the record has from before.
LOCKSTEP_API std::vector<ListenerHandle> make_terminal_listeners(
    std::ostream& out, const Terminal& terminal, const std::filesystem::path& folder = {});

/// Adds to make_terminal_listeners() a listener that keeps a record of the run in `folder`, so that
/// `lockstep report FOLDER` and `lockstep doctor FOLDER` work. The folder of the checkpoints is a
/// good place:
///   options.listeners = make_run_listeners(std::cout, detect_terminal(STDOUT_FILENO),
///                                          options.checkpoints.directory);
LOCKSTEP_API std::vector<ListenerHandle> make_run_listeners(std::ostream& out,
                                                            const Terminal& terminal,
                                                            const std::filesystem::path& folder);

}  // namespace lockstep
