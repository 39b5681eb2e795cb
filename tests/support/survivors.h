// Synchronises the ranks, in processes, that survive the death of another one.
#pragma once

#include <sys/mman.h>

#include <atomic>
#include <chrono>
#include <new>
#include <stdexcept>
#include <thread>

#include <lockstep/core/clock.h>

namespace lockstep::testing_support {

/// Must be constructed before the processes are forked. Keeps survivors from leaving early: the
/// others could then name them, rather than the dead rank, in their errors.
class Survivors {
 public:
  explicit Survivors(int count) : count_(count) {
    void* memory =
        mmap(nullptr, sizeof(Value), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) throw std::runtime_error("mmap");
    told_ = new (memory) Value(0);
  }
  ~Survivors() { munmap(told_, sizeof(Value)); }
  Survivors(const Survivors&) = delete;
  Survivors& operator=(const Survivors&) = delete;

  /// Must be called when this rank has its error. Returns when all have theirs, or after ten
  /// seconds.
  void wait_for_all() {
    ++*told_;
    const Deadline deadline(std::chrono::seconds(10));
    while (*told_ < count_ && !deadline.expired()) {
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
  }

 private:
  using Value = std::atomic<int>;
  const int count_;
  Value* told_;
};

}  // namespace lockstep::testing_support
