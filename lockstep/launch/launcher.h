// Starts several ranks on this host and supervises them.
//
//   const LaunchResult result = launch_ranks({.nproc_per_node = 2}, [] { train(); });
//   if (!result.ok()) {
//     std::cerr << "error: " << result.message << '\n';
//     return result.exit_code;
//   }
#pragma once

#include <lockstep/core/cpp20.h>

#if LOCKSTEP_HAS_CPP20

#include <cstdint>
#include <functional>
#include <string>

#include <lockstep/core/clock.h>

namespace lockstep {

/// How what the ranks write to standard output and standard error reaches the caller's.
enum class RankOutput {
  kInherited,  ///< Ranks write directly.
  /// With several ranks, what does not go to a terminal is merged by whole lines. Ranks see a pipe.
  kWholeLines,
  kLabelled,  ///< All is merged by whole lines, each of which begins with its rank: "[rank 1] ".
};

struct LaunchOptions {
  int nproc_per_node = 1;         ///< 1 to 1024
  std::uint16_t master_port = 0;  ///< Where the ranks meet; 0 takes a free one (on one host).
  /// What ranks get between SIGTERM (or the signal that interrupts the run) and SIGKILL.
  Milliseconds grace{500};

  // A job on several hosts has a launcher with as many ranks on each. All of them meet at
  // master_addr:master_port, which is the host of node_rank 0.
  int nnodes = 1;
  int node_rank = 0;
  std::string master_addr = "127.0.0.1";

  /// `rank_main` becomes another program by exec. Then rank 0 listens at the meeting point itself
  /// (no LOCKSTEP_LISTEN_FD), the exit code of the run is the program's (128 + signal where a
  /// signal ended it), and when the run fails, or the caller is killed, what the ranks started is
  /// ended with them: all processes below the caller, which must have no other children. A process
  /// between the caller and the ranks, their parent, sees to the latter.
  bool ranks_exec = false;

  RankOutput rank_output = RankOutput::kWholeLines;

  /// Each rank calls joined_group() within this time after its start, else the run fails and names
  /// those that have not. It is for ranks that cannot notice their own deadlines: one that a signal
  /// has stopped is named two seconds after this time, any other after twice this time and five
  /// seconds. Time for which the caller itself is stopped does not count. 0: no limit, which
  /// `ranks_exec` needs.
  Milliseconds join_timeout{0};
};

struct LaunchResult {
  /// 0; the code of the first failing rank (1, or 2 for a ConfigError; see ranks_exec); 128 +
  /// signal if interrupted.
  int exit_code = 0;
  int failed_rank = -1;    ///< The rank that failed first; -1 if none did.
  int interrupted_by = 0;  ///< SIGINT, SIGTERM or SIGHUP when that ended the run.
  /// One line: "rank 1: truncated file ...", "rank 1 was killed by signal 9 (Killed): ...".
  std::string message{};
  std::string details{};  ///< The whole text of the exception, backtrace included; empty if none.

  bool ok() const { return exit_code == 0; }
};

/// Forks `nproc_per_node` ranks of the calling process; each runs `rank_main` with torchrun's
/// environment variables and ends without running static destructors. On one host rank 0 inherits
/// the listening socket of the meeting point as LOCKSTEP_LISTEN_FD, and all inherit
/// LOCKSTEP_SECRET: the caller's, else a random one, so that no other user of the host can join
/// (comm/secret.h). Returns when all have ended: by themselves, or once the first failed or SIGINT,
/// SIGTERM or SIGHUP reached the caller (which is passed on), within `grace` and 2.5 seconds.
/// Failures that only follow from another rank's are not reported. A rank cannot outlive its
/// launcher, not even one ended by SIGKILL. `join_timeout` limits how long ranks may take to meet.
///
/// Call from the main thread while no other thread exists: threads do not survive a fork, and an
/// OpenMP region before it makes the ranks hang. ConfigError for bad options, a busy port, and
/// several hosts without LOCKSTEP_SECRET (off loopback); Error when the system refuses more
/// processes.
LaunchResult launch_ranks(const LaunchOptions& options, const std::function<void()>& rank_main);

/// Called by a rank after init_process_group() (see LaunchOptions::join_timeout). Does nothing in a
/// process that no launch_ranks() started.
void joined_group();

}  // namespace lockstep

#endif
