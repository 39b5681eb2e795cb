// A process between the launcher and its ranks, which ends what the ranks have started when the
// launcher can no longer do so.
#pragma once

#include <sys/types.h>

#include <functional>

#include <lockstep/launch/launcher.h>
#include <lockstep/launch/output_relay.h>
#include <lockstep/launch/signal_inbox.h>

namespace lockstep {

/// Runs `supervise` in a child of the calling process, the guardian, and returns its result.
/// `supervise` gets the launcher's pid, forks the ranks and looks after them.
///
/// The guardian is in a process group of its own, so that a signal to the launcher's group does not
/// strike it; signals that reach `inbox` here are passed on to the copy of `inbox` there. When the
/// launcher is killed, the guardian gets SIGTERM, and its parent is no longer the launcher. When
/// the guardian is killed, the launcher, which adopts the orphans, kills all processes below itself
/// but the relay, and returns a failure.
///
/// Rethrows what `supervise` threw as Error, or ConfigError. Error when the system refuses another
/// process.
LaunchResult run_guarded(SignalInbox& inbox, OutputRelay& relay,
                         const std::function<LaunchResult(pid_t launcher)>& supervise);

}  // namespace lockstep
