// A process between the launcher and its ranks. It ends all processes that the ranks started if the
// launcher no longer can.
#pragma once

#include <sys/types.h>

#include <functional>

#include <lockstep/launch/launcher.h>
#include <lockstep/launch/output_relay.h>
#include <lockstep/launch/signal_inbox.h>

namespace lockstep::launch {

/// Runs `supervise` in a child of the calling process, the guardian, and returns its result.
/// `supervise` gets the launcher's pid, forks the ranks and supervises them.
///
/// The guardian is in a process group of its own, so a signal to the launcher's group does not
/// reach it directly; signals that reach `inbox` in this process are passed on to the guardian's
/// copy of `inbox`. If the launcher is killed, the guardian gets SIGTERM, and its parent is no
/// longer the launcher. If the guardian is killed, the launcher adopts the orphans, kills all its
/// descendants except the relay, and returns a failure.
///
/// Rethrows exceptions of `supervise` as Error or ConfigError. Throws an Error if the system
/// refuses another process.
LaunchResult run_guarded(SignalInbox& inbox, OutputRelay& relay,
                         const std::function<LaunchResult(pid_t launcher)>& supervise);

}  // namespace lockstep::launch
