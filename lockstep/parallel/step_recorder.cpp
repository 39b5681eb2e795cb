#include <lockstep/parallel/step_recorder.h>

#include <algorithm>

namespace lockstep {

void StepRecorder::begin(std::size_t buckets) {
  StepTimes& step = current();
  step.begin = last_end_;
  step.backward = Clock::now();
  step.computed = step.backward;
  step.buckets.assign(buckets, {});
}

void StepRecorder::reduced() {
  StepTimes& step = current();
  step.reduced = Clock::now();
  for (BucketTimes& bucket : step.buckets) {
    if (bucket.end == Clock::time_point{}) bucket.end = step.reduced;
  }
  exposed_seconds_ += std::chrono::duration<double>(step.reduced - step.computed).count();
  last_end_ = step.reduced;
  ++steps_;
  next_ = (next_ + 1) % kSteps;
  kept_ = std::min(kept_ + 1, kSteps - 1);  // one place is the next step's
}

std::vector<StepTimes> StepRecorder::last() const {
  std::vector<StepTimes> steps;
  for (std::size_t i = kept_; i > 0; --i) steps.push_back(ring_[(next_ + kSteps - i) % kSteps]);
  return steps;
}

}  // namespace lockstep
