// Counts training steps for a hook.
#pragma once

#include <cstddef>
#include <cstdint>

namespace lockstep::parallel {

/// A step begins when the bucket index does not increase. (The is_last bucket cannot be used: it
/// may be a sparse gradient's, which hooks never see.)
class StepCounter {
 public:
  explicit StepCounter(std::int64_t begun = 0) : begun_(begun) {}

  /// The step, counted from 0, to which the bucket belongs.
  std::int64_t step_of(std::size_t bucket_index) {
    if (bucket_index < next_index_) ++begun_;
    next_index_ = bucket_index + 1;
    return begun_ - 1;
  }
  /// The number of steps that have begun.
  std::int64_t begun() const { return begun_; }

 private:
  std::int64_t begun_;
  std::size_t next_index_ = static_cast<std::size_t>(-1);
};

}  // namespace lockstep::parallel
