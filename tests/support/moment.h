// A point in time that one process of a test records and the others read.
#pragma once

#include <sys/mman.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <new>
#include <stdexcept>

#include <lockstep/core/clock.h>

namespace lockstep::testing_support {

/// Must be constructed before the processes are forked.
class Moment {
 public:
  Moment() {
    void* memory =
        mmap(nullptr, sizeof(Value), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) throw std::runtime_error("mmap");
    value_ = new (memory) Value(0);
  }
  ~Moment() { munmap(value_, sizeof(Value)); }
  Moment(const Moment&) = delete;
  Moment& operator=(const Moment&) = delete;

  void mark() { *value_ = Clock::now().time_since_epoch().count(); }
  double seconds_ago() const {
    const Clock::duration since = Clock::now().time_since_epoch() - Clock::duration(*value_);
    return std::chrono::duration<double>(since).count();
  }

 private:
  using Value = std::atomic<std::int64_t>;
  Value* value_;
};

}  // namespace lockstep::testing_support
