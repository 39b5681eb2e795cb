// Merges the output of several ranks line by line.
#pragma once

#include <sys/types.h>

#include <vector>

#include <lockstep/core/clock.h>
#include <lockstep/launch/launcher.h>

namespace lockstep::launch {

/// A process that reads the ranks' standard output and standard error through pipes and writes them
/// to the caller's, according to RankOutput. If nothing has to be merged there is no such process,
/// and the ranks write directly.
///
/// It is a process of its own because it may block: if the output is not read, ranks wait as they
/// would without it, while the launcher continues to supervise them. If the reader has gone away,
/// ranks get SIGPIPE. The relay ends after the last writer, so a rank's last output arrives however
/// the rank ended.
///
/// Not thread-safe. Create it in a single-threaded process, after the SignalInbox: the relay
/// ignores signals that ask the job to end.
class OutputRelay {
 public:
  explicit OutputRelay(const LaunchOptions& options);
  ~OutputRelay();  ///< Closes the launcher's descriptors; does not wait.
  OutputRelay(const OutputRelay&) = delete;
  OutputRelay& operator=(const OutputRelay&) = delete;

  /// In a forked rank: redirects its standard output and error to the relay.
  void connect(int local_rank);
  /// In the launcher, after all ranks have been forked: only the ranks keep their pipes.
  void close_pipes();
  /// After all ranks have ended: waits at most `timeout` until their output has been passed on. If
  /// the output is not read, or a background process of a rank still writes, the relay continues on
  /// its own. Call it once.
  void drain(Milliseconds timeout);

  /// The relay's pid; -1 if there is none.
  pid_t process() const { return process_; }

 private:
  // The ends of a rank's pipes, -1 if it writes directly. Both streams may share one pipe.
  struct RankPipes {
    int out = -1;
    int err = -1;
  };

  std::vector<RankPipes> ranks_;
  int control_ = -1;
  pid_t process_ = -1;
};

}  // namespace lockstep::launch
