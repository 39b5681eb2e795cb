// What keeps operations of several groups moving while a thread waits for one of them.
//
// Nothing in Lockstep's own transports has a thread: they move when somebody calls in. A rank that waits
// in one group must therefore also move what it has started in others, or two ranks could wait for each
// other in different groups. Groups that come from one init_process_group share a Progress.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include <lockstep/comm/backends/shm/futex.h>

namespace lockstep {

/// A word of shared memory that must change before something can move.
struct AwaitedWord {
  shm::Word* word = nullptr;
  std::uint32_t seen = 0;           ///< sleep only while it has this value
  shm::Word* sleepers = nullptr;    ///< counts those who sleep, so that the writer knows whom to wake
};

/// Something that moves when it is called.
class Progressing {
 public:
  virtual ~Progressing() = default;
  /// Moves what can be moved, without blocking and without throwing. True when anything moved.
  virtual bool advance() noexcept = 0;
  /// Adds the words whose change could let it move; none when it is idle.
  virtual void awaited_words(std::vector<AwaitedWord>& words) { (void)words; }
};

/// Safe to use from several threads.
class Progress {
 public:
  void add(std::weak_ptr<Progressing> member);
  /// Advances all members but `except`. True when anything moved.
  bool advance(const Progressing* except);
  /// The words that all members but `except` wait for.
  void awaited_words(const Progressing* except, std::vector<AwaitedWord>& words);

 private:
  std::vector<std::shared_ptr<Progressing>> members();

  std::mutex mutex_;
  std::vector<std::weak_ptr<Progressing>> members_;
};

}  // namespace lockstep
