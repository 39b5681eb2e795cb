// What keeps operations of several groups moving while a thread waits for one of them.
//
// Nothing in Lockstep's own transports has a thread: they move when somebody calls in. A rank that
// waits in one group must therefore also move what it has started in others, or two ranks could
// wait for each other in different groups. Groups that come from one init_process_group share a
// Progress.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

#include <lockstep/comm/waiting/futex.h>

namespace lockstep {

/// A word of memory that must change before something can move.
struct AwaitedWord {
  shm::Word* word = nullptr;
  std::uint32_t seen = 0;         ///< sleep only while it has this value
  shm::Word* sleepers = nullptr;  ///< counts those who sleep, so that the writer knows whom to wake
  /// Of the memory in which they lie: its group may end in another thread while this one sleeps.
  std::shared_ptr<const void> owner = nullptr;
};

/// Something that moves when it is called.
class Progressing {
 public:
  virtual ~Progressing() = default;
  /// Moves what can be moved, without blocking and without throwing. True when anything moved.
  virtual bool advance() noexcept = 0;
  /// Adds the words whose change could let it move; none when it is idle.
  virtual void awaited_words(std::vector<AwaitedWord>& words) { (void)words; }
  /// Whether whoever waits for something else must lend it a hand. May advance.
  virtual bool needs_a_hand();
};

/// Safe to use from several threads.
class Progress {
 public:
  void add(std::weak_ptr<Progressing> member);
  bool has_members() { return !members().empty(); }
  /// Advances all members but `except`. True when anything moved.
  bool advance(const Progressing* except);
  /// The words that all members but `except` wait for, and the bell where somebody may ring.
  void awaited_words(const Progressing* except, std::vector<AwaitedWord>& words);

  /// Whether a member has something under way that nobody else is moving.
  bool needs_a_hand();
  /// For a wait that has nothing of its own to sleep on: advances all members, and if nothing moved
  /// sleeps until one of them can move or somebody rings, at most `limit`. Returns at once when
  /// `is_over`, which is asked after the last look at what it would sleep on.
  void pause(std::chrono::nanoseconds limit, const std::function<bool()>& is_over);
  /// Something happened that no word tells: all who sleep look again. Whoever may ring says so
  /// before: the others sleep more lightly then.
  void ring();
  void will_ring() { has_ringers_ = true; }

 private:
  std::vector<std::shared_ptr<Progressing>> members();

  std::mutex mutex_;
  std::vector<std::weak_ptr<Progressing>> members_;
  std::atomic<bool> has_ringers_ = false;
  shm::Word bell_ = 0;
  shm::Word listeners_ = 0;
};

}  // namespace lockstep
