// Runs the ranks of a test as threads of this process, where a sanitizer sees them all, or as
// forked processes, which can be killed. Does not depend on LibTorch.
#pragma once

#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <exception>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include <lockstep/core/clock.h>
#include <lockstep/core/strings.h>

namespace lockstep::testing_support {

/// Calls `body(rank)` on one thread per rank. Returns the message of each rank's exception, or "".
inline std::vector<std::string> run_threads(int size, const std::function<void(int)>& body) {
  std::vector<std::string> errors(static_cast<std::size_t>(size));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < size; ++rank) {
    threads.emplace_back([&, rank] {
      try {
        body(rank);
      } catch (const std::exception& error) {
        errors[static_cast<std::size_t>(rank)] = error.what();
      }
    });
  }
  for (auto& thread : threads) thread.join();
  return errors;
}

/// The result of run_threads() or run_processes() if no rank failed. For EXPECT_EQ.
inline std::vector<std::string> no_errors(int size) {
  return std::vector<std::string>(static_cast<std::size_t>(size));
}

/// Calls `body(rank)` in one forked process per rank. Returns the message of each rank's exception,
/// "" if there was none, and "killed by signal 9" if a signal ended the rank. Ranks that run longer
/// than `limit` are killed. The calling process must not have used OpenMP (LibTorch's kernels)
/// before.
inline std::vector<std::string> run_processes(
    int size, const std::function<void(int)>& body,
    std::chrono::seconds limit = std::chrono::seconds(60)) {
  struct Child {
    pid_t pid;
    int pipe;
  };
  std::vector<Child> children;
  for (int rank = 0; rank < size; ++rank) {
    int ends[2];
    if (pipe(ends) != 0) throw std::runtime_error("pipe");
    const pid_t pid = fork();
    if (pid == 0) {
      close(ends[0]);
      std::string error;
      try {
        body(rank);
      } catch (const std::exception& caught) {
        error = caught.what();
      }
      const bool written = write(ends[1], error.data(), error.size()) >= 0;
      _exit(written ? 0 : 1);
    }
    close(ends[1]);
    children.push_back({pid, ends[0]});
  }
  const Deadline deadline(limit);
  std::vector<std::string> errors;
  for (const Child& child : children) {
    std::string text;
    char buffer[4096];
    for (;;) {
      pollfd polled{child.pipe, POLLIN, 0};
      const auto left = std::chrono::duration_cast<Milliseconds>(deadline.remaining()).count();
      if (poll(&polled, 1, static_cast<int>(left)) == 0) {
        kill(child.pid, SIGKILL);
        text = "ran longer than its limit";
        break;
      }
      const ssize_t count = read(child.pipe, buffer, sizeof(buffer));
      if (count <= 0) break;
      text.append(buffer, static_cast<std::size_t>(count));
    }
    close(child.pipe);
    int status = 0;
    waitpid(child.pid, &status, 0);
    if (WIFSIGNALED(status) && text.empty()) text = str("killed by signal ", WTERMSIG(status));
    errors.push_back(text);
  }
  return errors;
}

}  // namespace lockstep::testing_support
