// A team of threads that wait for work: one function, called by all of them at once.
//
//   ThreadTeam team({"replica 0 on cpu", "replica 1 on cpu"});
//   team.run([&](std::size_t member) { outputs[member] = work(inputs[member]); });
#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include <lockstep/core/export.h>

namespace lockstep::detail {

/// The threads start and end with the team. Between two runs they wait for `patience` without
/// sleeping, because waking a thread takes tens of microseconds, and then sleep. Any thread except
/// the members may call run(); concurrent calls run one after the other.
class LOCKSTEP_API ThreadTeam {
 public:
  using Task = std::function<void(std::size_t member)>;

  /// Starts one thread for each of `names`, which prefix error messages. A thread that waits within
  /// its `patience`, including the caller of run(), yields its processor to any runnable thread.
  explicit ThreadTeam(std::vector<std::string> names,
                      std::chrono::microseconds patience = std::chrono::microseconds(0));
  /// Ends the threads. A member that destroys its own team is detached and ends on its own.
  ~ThreadTeam();
  ThreadTeam(const ThreadTeam&) = delete;
  ThreadTeam& operator=(const ThreadTeam&) = delete;

  std::size_t size() const { return names_.size(); }

  /// Calls task(member) on every thread and returns when all have finished. If any of them threw,
  /// run() rethrows the error of the first such member, in member order: as a ConfigError if it was
  /// one, otherwise as an Error, with the member's name and the first line of the text. The team
  /// remains usable. Throws ConfigError if a member calls it.
  void run(const Task& task);

  /// Throws ConfigError if a member calls it, like run().
  void refuse_members() const;

 private:
  struct State;
  static void work(const std::shared_ptr<State>& state, std::size_t member);
  void end() noexcept;

  std::vector<std::string> names_;
  std::shared_ptr<State> state_;  // shared with the threads
  std::mutex running_;            // held during a call of run()
  std::vector<std::thread> threads_;
};

}  // namespace lockstep::detail
