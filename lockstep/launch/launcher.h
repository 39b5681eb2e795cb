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
#include <optional>
#include <string>

#include <lockstep/core/clock.h>
#include <lockstep/core/error.h>
#include <lockstep/core/export.h>

namespace lockstep {

/// How the ranks' standard output and standard error reach the caller's.
enum class RankOutput {
  kInherited,  ///< Ranks write directly.
  /// With several ranks, output that does not go to a terminal is merged by whole lines. The ranks
  /// then write to a pipe.
  kWholeLines,
  kLabelled,  ///< All output is merged by whole lines, each prefixed with its rank: "[rank 1] ".
};

struct LOCKSTEP_API LaunchOptions {
  int nproc_per_node = 1;         ///< 1 to 1024
  std::uint16_t master_port = 0;  ///< Port of the meeting point; 0 (one host only): a free one.
  /// Time between SIGTERM (or the signal that interrupts the run) and SIGKILL for the ranks.
  Milliseconds grace{500};
  /// Set if the ranks do not end at SIGINT and SIGTERM but finish their work first, such as a
  /// checkpoint, and then throw Interrupted: the time that they have for it, instead of `grace`. If
  /// all ranks end in this time without an error, the run has succeeded. Ranks should ignore
  /// further signals, because a signal to the whole process group reaches them twice.
  std::optional<Milliseconds> interrupt_grace{};

  // A job on several hosts has one launcher per host, with the same number of ranks each. All ranks
  // meet at master_addr:master_port, which is the host of node_rank 0.
  int nnodes = 1;
  int node_rank = 0;
  std::string master_addr = "127.0.0.1";

  /// Set if `rank_main` becomes another program by exec. Then rank 0 listens at the meeting point
  /// itself (no LOCKSTEP_LISTEN_FD), and the exit code of the run is the program's (128 + signal if
  /// a signal ended it). If the run fails, or the caller is killed, all descendants of the caller
  /// are ended, including processes that ranks started; the caller must have no other children. The
  /// ranks' parent is then an extra process, a child of the caller, which does this after the
  /// caller is killed.
  bool ranks_exec = false;

  RankOutput rank_output = RankOutput::kWholeLines;

  /// Limit for the time from a rank's start to its call of joined_group(); 0: no limit, which
  /// `ranks_exec` requires. If a rank exceeds it, the run fails and names the ranks that have not
  /// joined. The limit is for ranks that cannot notice their own deadlines: a rank that a signal
  /// has stopped is named two seconds after this time, any other rank after twice this time plus
  /// five seconds. Time during which the caller itself is stopped does not count.
  Milliseconds join_timeout{0};
};

/// Thrown by a rank that has ended its work early because a signal asked it to. launch_ranks() then
/// waits for the other ranks as after a success, and returns that signal as interrupted_by.
class LOCKSTEP_API Interrupted : public Error {
 public:
  /// what() is "interrupted by signal 15 (Terminated)".
  explicit Interrupted(int signal);
  int signal() const { return signal_; }

 private:
  int signal_;
};

struct LOCKSTEP_API LaunchResult {
  /// 0 on success; the code of the first failing rank (1, or 2 for a ConfigError; see ranks_exec);
  /// 128 + signal if interrupted.
  int exit_code = 0;
  int failed_rank = -1;  ///< The rank that failed first; -1 if none did.
  /// SIGINT, SIGTERM or SIGHUP if that ended the run: a signal to the caller, or one to a rank that
  /// threw Interrupted.
  int interrupted_by = 0;
  /// One line: "rank 1: truncated file ...", "rank 1 was killed by signal 9 (Killed): ...".
  std::string message{};
  std::string details{};  ///< The whole text of the exception, backtrace included; empty if none.

  bool ok() const { return exit_code == 0; }
};

/// Forks `nproc_per_node` ranks of the calling process; each runs `rank_main` with torchrun's
/// environment variables and ends without running static destructors. On one host rank 0 inherits
/// the listening socket of the meeting point as LOCKSTEP_LISTEN_FD. All ranks inherit
/// LOCKSTEP_SECRET, the caller's or a random one, so that no other user of the host can join
/// (comm/rendezvous/secret.h). Returns when all ranks have ended. When the first rank fails, or
/// SIGINT, SIGTERM or SIGHUP reaches the caller (which passes it on), the others end within `grace`
/// plus 2.5 seconds. A second signal ends them at once; signals less than half a second apart count
/// as one, unless both come from the terminal. Failures that only follow from another rank's
/// failure are not reported. A rank cannot outlive its launcher, even if SIGKILL ends the launcher.
/// `join_timeout` limits how long ranks may take to meet.
///
/// Call from the main thread while no other thread exists: threads do not survive a fork, and an
/// earlier OpenMP region makes the ranks hang. Throws a ConfigError for invalid options, a busy
/// port, and several hosts without LOCKSTEP_SECRET (except on loopback), and an Error if the system
/// refuses more processes.
LOCKSTEP_API LaunchResult launch_ranks(const LaunchOptions& options,
                                       const std::function<void()>& rank_main);

/// Called by a rank after init_process_group() (see LaunchOptions::join_timeout). No-op in a
/// process that launch_ranks() did not start.
LOCKSTEP_API void joined_group();

}  // namespace lockstep

#endif
