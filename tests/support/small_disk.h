// A small file system of a test's own, which becomes full.
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

/// For a child of in_child() to say that it may not mount a file system.
inline constexpr int kNoMount = 99;

/// The exit code of `run` in a process of its own; -1 when a signal has ended it. An exception goes
/// to standard error, and its code is 100.
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

/// Mounts a file system of that size ("700k"), which exists in this process and its children only,
/// for good: for a child of in_child(). False where that is not allowed.
inline bool mount_small_disk(const std::filesystem::path& path, const std::string& size) {
  return unshare(CLONE_NEWNS) == 0 &&
         mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0 &&
         mount("tmpfs", path.c_str(), "tmpfs", 0, ("size=" + size).c_str()) == 0;
}

/// Gives it another size, such as "700k". False where more than that is in use.
inline bool resize_disk(const std::filesystem::path& path, const std::string& size) {
  return mount("tmpfs", path.c_str(), "tmpfs", MS_REMOUNT, ("size=" + size).c_str()) == 0;
}

}  // namespace lockstep::testing_support
