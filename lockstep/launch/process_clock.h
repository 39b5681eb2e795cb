// Time since the user started the command, not since main(): loading LibTorch counts.
#pragma once

namespace lockstep::launch {

/// Seconds since this program was started, from its entry in /proc, exact to 10 ms. If that cannot
/// be read, seconds since the first call. In a rank that launch_ranks() forked, seconds since the
/// launcher was started. Thread-safe.
double seconds_since_command_start();

}  // namespace lockstep::launch
