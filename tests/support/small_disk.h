// Mounts a small file system that a test can fill up.
#pragma once

#include <sched.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <functional>
#include <string>

namespace lockstep::testing_support {

/// Exit code of a child of in_child() that is not allowed to mount a file system.
inline constexpr int kNoMount = 99;

/// Calls `run` in a child process and returns its exit code: the result of `run`, 100 after an
/// exception, which is printed on standard error, and -1 if a signal ended the child.
inline int in_child(const std::function<int()>& run) {
  std::fflush(nullptr);
  const pid_t child = fork();
  if (child == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    int code = 100;
    try {
      code = run();
    } catch (const std::exception& error) {
      std::fprintf(stderr, "%s\n", error.what());
    }
    _exit(code);
  }
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

/// Mounts a file system of the given size ("700k") at `path`. Only this process and its children
/// see it, until they end, so call this in a child of in_child(). False if it is not allowed.
inline bool mount_small_disk(const std::filesystem::path& path, const std::string& size) {
  return unshare(CLONE_NEWNS) == 0 &&
         mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0 &&
         mount("tmpfs", path.c_str(), "tmpfs", 0, ("size=" + size).c_str()) == 0;
}

/// Changes the size of that file system to, for example, "700k". False if more is in use.
inline bool resize_disk(const std::filesystem::path& path, const std::string& size) {
  return mount("tmpfs", path.c_str(), "tmpfs", MS_REMOUNT, ("size=" + size).c_str()) == 0;
}

}  // namespace lockstep::testing_support
