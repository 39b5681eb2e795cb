// Processes that processes started.
#pragma once

#include <sys/types.h>

#include <vector>

namespace lockstep {

/// The processes that this one started, those that they started, and so on, as far as they run
/// (zombies do not). Empty where there is no /proc.
std::vector<pid_t> running_descendants();

/// A signal (SIGSTOP, SIGTSTP) has stopped the process, and none has continued it. False where
/// there is no /proc.
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

}  // namespace lockstep
