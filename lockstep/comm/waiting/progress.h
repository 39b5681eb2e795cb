// Keeps operations of several groups moving while a thread waits for one of them.
//
// Lockstep's own transports have no threads: their operations advance only while a caller is inside
// a call. A rank that waits in one group must therefore also advance its operations in other
// groups, or two ranks could wait for each other in different groups. All groups that come from one
// init_process_group share a Progress.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

#include <lockstep/comm/waiting/futex.h>

namespace lockstep::comm {

/// A word of memory that must change before an operation can advance.
struct AwaitedWord {
  shm::Word* word = nullptr;
  std::uint32_t seen = 0;         ///< a thread sleeps only while `word` has this value
  shm::Word* sleepers = nullptr;  ///< counts the sleeping threads that the writer must wake
  /// Owns the memory of both words. Their group may end in another thread while this one sleeps.
  std::shared_ptr<const void> owner = nullptr;
};

/// An object whose operations advance only when it is called.
class Progressing {
 public:
  virtual ~Progressing() = default;
  /// Advances all operations that can advance, without blocking. True if any advanced.
  virtual bool advance() noexcept = 0;
  /// Appends the words whose change could let this object advance; none if it is idle.
  virtual void awaited_words(std::vector<AwaitedWord>& words) { (void)words; }
  /// Whether threads that wait for something else must advance this object. May itself advance it.
  virtual bool needs_a_hand();
  /// How long a thread may sleep before it advances this object again. Limited if the object waits
  /// for something that changes no word, such as an event of a device.
  virtual std::chrono::nanoseconds longest_sleep() { return std::chrono::nanoseconds::max(); }
};

/// Safe to use from several threads.
class Progress {
 public:
  void add(std::weak_ptr<Progressing> member);
  bool has_members() { return !members().empty(); }
  /// Advances all members but `except`. True if anything advanced.
  bool advance(const Progressing* except);
  /// Appends the words that all members but `except` wait for, and the bell if a thread may ring
  /// it.
  void awaited_words(const Progressing* except, std::vector<AwaitedWord>& words);

  /// How long a thread may sleep on these words before it advances the members again.
  std::chrono::nanoseconds longest_sleep();

  /// Whether a member has an operation under way that no other thread advances.
  bool needs_a_hand();
  /// For a wait that has no words of its own to sleep on: advances all members, and if none
  /// advanced, sleeps until one of them can advance or a thread rings, at most `limit`. Returns at
  /// once if `is_over()` returns true; it is called after the awaited words were last read. May
  /// return early.
  void pause(std::chrono::nanoseconds limit, const std::function<bool()>& is_over);
  /// Wakes all sleeping threads after an event that changes no awaited word. Before the first
  /// ring(), will_ring() must be called, so that sleeping threads also watch the bell.
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

}  // namespace lockstep::comm
