// Finds the descendants of a process.
#pragma once

#include <sys/types.h>

#include <vector>

namespace lockstep::launch {

/// All running descendants of this process (zombies do not count). Empty if there is no /proc.
std::vector<pid_t> running_descendants();

/// Whether a signal (SIGSTOP, SIGTSTP) has stopped the process and SIGCONT has not continued it
/// since. False if there is no /proc.
bool is_stopped(pid_t process);

/// While it lives, a descendant whose parent ends becomes this process's child instead of init's,
/// so that it can still be found.
class OrphanKeeper {
 public:
  explicit OrphanKeeper(bool keep);
  ~OrphanKeeper();
  OrphanKeeper(const OrphanKeeper&) = delete;
  OrphanKeeper& operator=(const OrphanKeeper&) = delete;

 private:
  bool changed_ = false;
};

}  // namespace lockstep::launch
