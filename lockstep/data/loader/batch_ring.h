// Fills a ring of buffers on threads, ahead of the consumer, which receives the batches in order.
//
//   BatchRing ring(fill, {.threads = 2, .slots = 4});
//   ring.start(0, steps);
//   while (auto slot = ring.next()) use(*slot);   // batches 0, 1, 2, ...
//
// The ring knows nothing of images: `fill(slot, batch)` writes batch number `batch` into buffer
// number `slot`. The content of a batch must depend only on its number, so that neither the number
// of threads nor their timing changes what the consumer sees.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <exception>
#include <functional>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

namespace lockstep::data {

struct BatchRingOptions {
  int threads = 0;  ///< Threads that fill; 0: next() fills the slot itself.
  int slots = 2;    ///< One is in use, the others are filled ahead. At least 2 with threads.
  /// The threads' processors; empty: those of the thread that constructs the ring.
  std::vector<int> cpus{};
};

/// Only one thread may call start(), next() and stop(). `fill` runs on the ring's threads, several
/// at once for different slots.
///
/// While a trace is recorded, each next() of a ring with threads records the number of batches that
/// were ready ("ready batches"). If it is often 0, the consumer is waiting for the fillers.
///
/// Every wait ends: the consumer's when its batch is filled or has failed, a filler's when a slot
/// is free or the ring stops. The destructor waits only for running calls of `fill`.
class BatchRing {
 public:
  using Fill = std::function<void(int slot, std::int64_t batch)>;

  /// Throws a ConfigError for invalid options, and an Error if the system refuses a thread.
  BatchRing(Fill fill, const BatchRingOptions& options);
  ~BatchRing();
  BatchRing(const BatchRing&) = delete;
  BatchRing& operator=(const BatchRing&) = delete;

  /// Starts a sequence of batches [first, end), and drops the previous one, finished or not. When
  /// it returns, no fill of the old sequence is running.
  void start(std::int64_t first, std::int64_t end);

  /// Returns the slot of the next batch, or nothing after the last one or before start(). From this
  /// call on, the slot that the previous call returned may be overwritten. If `fill` threw an
  /// exception for this batch, rethrows it and ends the sequence; all batches before it have been
  /// delivered.
  std::optional<int> next();

  /// Ends the sequence, like start() with no batches.
  void stop() { start(0, 0); }

 private:
  enum class State { kEmpty, kFilling, kFull, kFailed };
  struct Slot {
    State state = State::kEmpty;
    std::exception_ptr error;
  };

  void quit();
  void record_ready_batches() const;
  void run_filler(const std::vector<int>& cpus);
  int slot_of(std::int64_t batch) const {
    return static_cast<int>((batch - first_) % static_cast<std::int64_t>(slots_.size()));
  }
  bool work_left() const {
    return claimed_ < end_ && slots_[slot_of(claimed_)].state == State::kEmpty;
  }
  std::optional<int> fill_inline();

  const Fill fill_;
  std::mutex mutex_;
  std::condition_variable slot_free_;    // fillers wait: a slot became free, or quit_
  std::condition_variable slot_filled_;  // the consumer waits: a fill ended
  std::vector<Slot> slots_;
  std::int64_t first_ = 0;  // first batch of the sequence
  std::int64_t end_ = 0;
  std::int64_t claimed_ = 0;    // next batch that a filler takes
  std::int64_t delivered_ = 0;  // next batch that next() returns
  std::optional<int> in_use_;   // slot that the consumer holds
  int filling_ = 0;             // running fills
  bool quit_ = false;
  std::vector<std::jthread> fillers_;  // last: destroyed (joined) before the state they use
};

}  // namespace lockstep::data
