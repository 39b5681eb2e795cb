// The engine's waits: a thread polls for a while, then sleeps, and gives up once the operation can
// no longer complete.
#pragma once

#include <atomic>
#include <chrono>
#include <vector>

#include <lockstep/comm/backends/shm/engine_state.h>
#include <lockstep/comm/backends/shm/goal.h>
#include <lockstep/core/clock.h>

namespace lockstep::shm {

/// May be used from several threads.
class Waiter {
 public:
  /// `owner` is the engine, as it is registered in EngineOptions::progress.
  Waiter(EngineState& state, const comm::Progressing& owner) : state_(state), owner_(owner) {}

  /// Advances all operations. Returns whether the goal has been reached. Throws like wait().
  bool test(const Goal& goal);
  /// Throws CommError when the group has ended or can no longer reach the goal, and TimeoutError at
  /// the deadline.
  void wait(const Goal& goal, std::chrono::milliseconds timeout);
  /// Appends the words whose change lets an operation of this engine advance.
  void awaited_words(std::vector<comm::AwaitedWord>& words);

 private:
  bool reached(const Goal& goal, bool& moved);
  bool reached(const Goal& goal) {
    bool moved = false;
    return reached(goal, moved);
  }
  bool others_moved();
  bool sleep(const Goal& goal, std::chrono::nanoseconds longest,
             std::vector<comm::AwaitedWord>& words, bool& moved);
  void give_up_if_hopeless(const Goal& goal, const Deadline& deadline,
                           std::chrono::milliseconds timeout);

  EngineState& state_;
  const comm::Progressing& owner_;
  std::atomic<Clock::rep> next_doubt_ = 0;  // when test() next checks that the peers are alive
};

}  // namespace lockstep::shm
