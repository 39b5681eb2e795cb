// Which step of the training a hook is in.
#pragma once

#include <cstddef>
#include <cstdint>

namespace lockstep {

/// A step begins where the index of the buckets does not rise. (The bucket that is_last would not
/// do: a sparse gradient's may be, which hooks never see.)
class StepCounter {
 public:
  explicit StepCounter(std::int64_t begun = 0) : begun_(begun) {}

  /// The step, counted from 0, that the bucket belongs to.
  std::int64_t step_of(std::size_t bucket_index) {
    if (bucket_index < next_index_) ++begun_;
    next_index_ = bucket_index + 1;
    return begun_ - 1;
  }
  /// Steps of which a bucket was seen.
  std::int64_t begun() const { return begun_; }

 private:
  std::int64_t begun_;
  std::size_t next_index_ = static_cast<std::size_t>(-1);
};

}  // namespace lockstep
