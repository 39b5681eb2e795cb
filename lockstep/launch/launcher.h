// Starts several ranks on this host and supervises them.
//
//   const LaunchResult result = launch_ranks({.nproc_per_node = 2}, [] { train(); });
//   if (!result.ok()) { std::cerr << "error: " << result.message << '\n'; return result.exit_code;
//   }
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include <lockstep/core/clock.h>

namespace lockstep {

struct LaunchOptions {
  int nproc_per_node = 1;         ///< 1 to 1024
  std::uint16_t master_port = 0;  ///< Where the ranks meet on 127.0.0.1; 0 takes a free one.
  /// What ranks get between SIGTERM and SIGKILL once another has failed.
  Milliseconds grace{500};
};

struct LaunchResult {
  /// 0; the code of the first failing rank (1, or 2 for a ConfigError); 128 + signal if
  /// interrupted.
  int exit_code = 0;
  int failed_rank = -1;    ///< The rank that failed first; -1 if none did.
  int interrupted_by = 0;  ///< SIGINT, SIGTERM or SIGHUP when that ended the run.
  /// One line: "rank 1: truncated file ...", "rank 1 was killed by signal 9 (Killed): ...".
  std::string message;
  std::string details;  ///< The whole text of the exception, backtrace included; empty if none.

  bool ok() const { return exit_code == 0; }
};

/// Forks `nproc_per_node` ranks of the calling process; each runs `rank_main` with torchrun's
/// environment variables and ends without running static destructors. Rank 0 inherits the listening
/// socket of the meeting point as LOCKSTEP_LISTEN_FD, and all inherit LOCKSTEP_SECRET: the caller's,
/// else a random one, so that no other user of the host can join (comm/secret.h). Returns when all have ended: by themselves,
/// or within two seconds after the first failed or SIGINT, SIGTERM or SIGHUP reached the caller.
/// Failures that only follow from another rank's are not reported. A rank cannot outlive its
/// launcher, not even one ended by SIGKILL.
///
/// Call from the main thread while no other thread exists: threads do not survive a fork, and an
/// OpenMP region before it makes the ranks hang. ConfigError for bad options and a busy port; Error
/// when the system refuses more processes.
LaunchResult launch_ranks(const LaunchOptions& options, const std::function<void()>& rank_main);

}  // namespace lockstep
