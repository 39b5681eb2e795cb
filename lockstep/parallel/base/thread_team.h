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

namespace lockstep {

/// The threads start with the team and end with it; between two runs they sleep, once they have
/// waited for `patience` without sleeping: to wake a thread takes tens of microseconds. Any thread
/// except the members may call run(); calls from several threads follow each other.
class ThreadTeam {
 public:
  using Task = std::function<void(std::size_t member)>;

  /// One thread for each of `names`, which begin the texts of the errors. Whoever waits within its
  /// `patience` gives the processor to any other thread that can run, run() itself included.
  explicit ThreadTeam(std::vector<std::string> names,
                      std::chrono::microseconds patience = std::chrono::microseconds(0));
  /// Ends the threads. A member that destroys its own team is left to end by itself.
  ~ThreadTeam();
  ThreadTeam(const ThreadTeam&) = delete;
  ThreadTeam& operator=(const ThreadTeam&) = delete;

  std::size_t size() const { return names_.size(); }

  /// Calls task(member) on every thread and returns when all have ended. When some of them threw,
  /// the first of these in the order of the members decides what run() throws: a ConfigError for a
  /// ConfigError, an Error otherwise, with the member's name and the first line of the text. The
  /// team can be used again afterwards. ConfigError when a member calls it.
  void run(const Task& task);

  /// ConfigError when a member calls it: run() would throw that, too.
  void refuse_members() const;

 private:
  struct State;
  static void work(const std::shared_ptr<State>& state, std::size_t member);
  void end() noexcept;

  std::vector<std::string> names_;
  std::shared_ptr<State> state_;  // shared with the threads
  std::mutex running_;            // held by the one call of run()
  std::vector<std::thread> threads_;
};

}  // namespace lockstep
