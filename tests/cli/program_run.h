// Runs a program as a user would, and observes its results.
#pragma once

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include <tests/support/temporary_directory.h>

namespace lockstep::testing_support {

struct ProgramResult {
  int exit_code = -1;  ///< 128 + signal if a signal ended it
  std::string out;
  std::string err;
  int left_behind = 0;  ///< processes that outlived the program; they are killed

  /// Lines of standard error that begin with "error: ".
  int error_lines() const {
    int count = err.starts_with("error: ") ? 1 : 0;
    for (auto at = err.find("\nerror: "); at != std::string::npos;
         at = err.find("\nerror: ", at + 1)) {
      ++count;
    }
    return count;
  }
  /// Lines of standard error that do not begin with "note: ".
  int lines_beside_notes() const {
    std::istringstream lines(err);
    int count = 0;
    for (std::string line; std::getline(lines, line);) count += !line.starts_with("note: ");
    return count;
  }
};

/// Running processes whose parent is `parent`.
inline std::vector<pid_t> children_of(pid_t parent) {
  std::vector<pid_t> children;
  for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
    const std::string name = entry.path().filename();
    if (name.find_first_not_of("0123456789") != std::string::npos) continue;
    // "PID (NAME) STATE PARENT ...". The name may contain any characters.
    std::ifstream file(entry.path() / "stat");
    std::string stat;
    std::getline(file, stat, '\0');  // reading may fail for a process that is just ending
    const auto after_name = stat.rfind(") ");
    if (after_name == std::string::npos || stat[after_name + 2] == 'Z') continue;
    if (std::stol(stat.substr(after_name + 4)) != parent) continue;
    children.push_back(static_cast<pid_t>(std::stol(name)));
  }
  return children;
}

using Environment = std::map<std::string, std::string>;

/// A running program: its pid, and the files that receive its output.
class ProgramRun {
 public:
  /// `before_exec` runs in the child, in which signals have their default effects. Variables that
  /// launchers and users of Lockstep set are unset unless `environment` contains them.
  ProgramRun(const std::vector<std::string>& command, const Environment& environment = {},
             const std::function<void()>& before_exec = {}) {
    // Orphans of the program become children of this process, so that they can be counted.
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    std::fflush(nullptr);  // the child must not write what this process has written
    pid_ = fork();
    if (pid_ != 0) return;
    redirect("out", STDOUT_FILENO);
    redirect("err", STDERR_FILENO);
    // As from a terminal: nohup and background jobs of shells ignore signals, and a shell cannot
    // trap a signal that it was started to ignore.
    for (const int number : {SIGINT, SIGTERM, SIGHUP, SIGPIPE}) signal(number, SIG_DFL);
    for (const char* name : {"RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR",
                             "MASTER_PORT", "LOCKSTEP_DATA", "LOCKSTEP_MIRROR", "SLURM_PROCID"}) {
      unsetenv(name);
    }
    for (const auto& [name, value] : environment) setenv(name.c_str(), value.c_str(), 1);
    if (before_exec) before_exec();
    std::vector<char*> arguments;
    for (const std::string& word : command) arguments.push_back(const_cast<char*>(word.c_str()));
    arguments.push_back(nullptr);
    execv(arguments[0], arguments.data());
    _exit(127);
  }

  pid_t pid() const { return pid_; }

  /// The program's standard error so far.
  std::string error_so_far() const { return read_text(directory_ / "err"); }

  /// Waits until the program ends. Other runs in progress are counted as left behind and are
  /// killed.
  ProgramResult wait() {
    int status = 0;
    while (waitpid(pid_, &status, 0) < 0 && errno == EINTR) {
    }
    ProgramResult result;
    result.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    result.out = read_text(directory_ / "out");
    result.err = read_text(directory_ / "err");
    result.left_behind = end_orphans();
    return result;
  }

 private:
  void redirect(const std::string& name, int fd) const {
    const int file = open((directory_ / name).c_str(), O_CREAT | O_WRONLY | O_TRUNC, 0600);
    dup2(file, fd);
    close(file);
  }

  static int end_orphans() {
    const std::vector<pid_t> orphans = children_of(getpid());
    for (const pid_t orphan : orphans) kill(orphan, SIGKILL);
    return static_cast<int>(orphans.size());
  }

  TemporaryDirectory directory_;
  pid_t pid_ = -1;
};

inline ProgramResult run_to_end(const std::vector<std::string>& command,
                                const Environment& environment = {},
                                const std::function<void()>& before_exec = {}) {
  return ProgramRun(command, environment, before_exec).wait();
}

}  // namespace lockstep::testing_support
