// Time since the user started the command, not since main(): loading LibTorch counts.
#pragma once

namespace lockstep {

/// Seconds since this program was started (its entry in /proc, exact to 10 ms; where that cannot be
/// read, since the first call). In a rank that launch_ranks() forked: since the launcher was
/// started. Safe to call from any thread.
double seconds_since_command_start();

}  // namespace lockstep
