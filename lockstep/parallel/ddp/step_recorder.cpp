#include <lockstep/parallel/ddp/step_recorder.h>

#include <algorithm>
#include <utility>

#include <lockstep/core/capture_scope.h>

namespace lockstep::detail {
namespace {

void shift(StepTimes& step, Clock::duration by) {
  for (auto* const time : {&step.begin, &step.backward, &step.computed, &step.reduced}) *time += by;
  for (BucketTimes& bucket : step.buckets) {
    for (auto* const time : {&bucket.ready, &bucket.start, &bucket.end}) *time += by;
  }
}

}  // namespace

void StepRecorder::measure_on(torch::Device device) {
  device_.reset();
  if (device.is_cpu()) return;
  device_.emplace(device);
  marks_.resize(kSteps);
}

// --- A step

void StepRecorder::begin(std::size_t buckets) {
  is_on_device_ = device_ && !is_capturing();
  if (unknown_ == kSteps) resolve_oldest();  // this step takes its place; it ended long ago
  if (device_) marks_[next_].clear();        // left by a step that ended with an exception
  StepTimes& step = current();
  step.begin = last_end_;
  step.buckets.assign(buckets, {});
  note(&StepTimes::backward);
  step.computed = step.backward;
}

void StepRecorder::ready(std::size_t bucket) { note(&BucketTimes::ready, bucket); }
void StepRecorder::start(std::size_t bucket) { note(&BucketTimes::start, bucket); }
void StepRecorder::end(std::size_t bucket) { note(&BucketTimes::end, bucket); }
void StepRecorder::computed() { note(&StepTimes::computed); }

void StepRecorder::note(Clock::time_point StepTimes::* time) {
  if (!is_on_device_) {
    current().*time = Clock::now();
    return;
  }
  if (!anchor_) {
    anchor_.emplace(device_->record());
    anchor_time_ = Clock::now();  // settle() corrects it
  }
  marks_[next_].push_back({.of_step = time, .moment = device_->record()});
}

void StepRecorder::note(Clock::time_point BucketTimes::* time, std::size_t bucket) {
  if (is_on_device_) {
    marks_[next_].push_back({.of_bucket = time, .bucket = bucket, .moment = device_->record()});
  } else {
    current().buckets[bucket].*time = Clock::now();
  }
}

void StepRecorder::reduced() {
  note(&StepTimes::reduced);
  if (!is_on_device_) finish(current());
  if (is_on_device_ || unknown_ > 0) ++unknown_;  // a captured step waits for earlier ones
  ++unaligned_;
  ++steps_;
  next_ = (next_ + 1) % kSteps;
  kept_ = std::min(kept_ + 1, kSteps - 1);  // one place is for the next step
}

// Called when all times of the step are known, except for buckets whose end was not observed.
void StepRecorder::finish(StepTimes& step) {
  for (BucketTimes& bucket : step.buckets) {
    if (bucket.end == Clock::time_point{}) bucket.end = step.reduced;
  }
  exposed_seconds_ += std::chrono::duration<double>(step.reduced - step.computed).count();
  last_end_ = step.reduced;
}

// --- Times of a device

// The time between nearby moments is exact, but not between distant ones, because it is a float.
// The anchor is therefore moved along.
void StepRecorder::resolve_oldest() {
  StepTimes& step = step_before(unknown_);
  std::vector<Mark>& marks = marks_[static_cast<std::size_t>(&step - ring_.data())];
  --unknown_;
  if (marks.empty()) return;
  marks.back().moment.synchronize();
  step.begin = last_end_;
  for (const Mark& mark : marks) {
    const Clock::time_point time =
        anchor_time_ + duration_of(StreamClock::seconds_between(*anchor_, mark.moment));
    if (mark.of_step != nullptr) {
      step.*mark.of_step = time;
    } else {
      step.buckets[mark.bucket].*mark.of_bucket = time;
    }
  }
  finish(step);
  anchor_time_ = step.reduced;
  std::swap(*anchor_, marks.back().moment);
  for (Mark& mark : marks) device_->recycle(std::move(mark.moment));
  marks.clear();
}

void StepRecorder::settle() {
  while (unknown_ > 0) resolve_oldest();
  if (anchor_ && !is_capturing()) follow_host_clock();
  unaligned_ = 0;
}

// The clocks of the device and the host drift apart, and the first moment was recorded before the
// device reached it.
void StepRecorder::follow_host_clock() {
  StreamClock::Moment here = device_->record();
  here.synchronize();
  const Clock::time_point now = Clock::now();
  const Clock::time_point expected =
      anchor_time_ + duration_of(StreamClock::seconds_between(*anchor_, here));
  const Clock::duration error = now - expected;
  for (std::size_t i = std::min(unaligned_, kSteps); i > 0; --i) shift(step_before(i), error);
  last_end_ += error;
  anchor_time_ = now;
  std::swap(*anchor_, here);
  device_->recycle(std::move(here));
}

void StepRecorder::clear() { kept_ = 0; }

std::vector<StepTimes> StepRecorder::last() const {
  std::vector<StepTimes> steps;
  for (std::size_t i = kept_; i > 0; --i) steps.push_back(ring_[(next_ + kSteps - i) % kSteps]);
  return steps;
}

}  // namespace lockstep::detail
