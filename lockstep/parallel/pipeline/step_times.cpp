#include <lockstep/parallel/pipeline/step_times.h>

#include <algorithm>
#include <utility>

#include <lockstep/core/capture_scope.h>

namespace lockstep::pipeline {

WorkerClock::WorkerClock(torch::Device device) {
  if (!device.is_cpu()) clock_.emplace(device);
}

void WorkerClock::mark() {
  if (clock_ && !is_capturing()) moments_.push_back(clock_->record());
}

void WorkerClock::begin() {
  for (StreamClock::Moment& each : moments_) clock_->recycle(std::move(each));
  moments_.clear();
}

std::vector<StreamClock::Moment> WorkerClock::take() { return std::exchange(moments_, {}); }

StepTimes::StepTimes(std::vector<std::vector<Action>> actions, std::vector<Recording> recordings,
                     std::vector<std::shared_ptr<WorkerClock>> clocks)
    : actions_(std::move(actions)), recordings_(std::move(recordings)) {
  for (std::size_t w = 0; w < recordings_.size(); ++w) {
    DeviceTimes times{.clock = std::move(clocks[w])};
    if (times.clock) times.moments = times.clock->take();
    devices_.push_back(std::move(times));
  }
}

StepTimes::~StepTimes() {
  for (DeviceTimes& each : devices_) {
    for (StreamClock::Moment& moment : each.moments) each.clock->recycle(std::move(moment));
  }
}

bool StepTimes::is_known() const {
  return std::all_of(devices_.begin(), devices_.end(), [](const DeviceTimes& each) {
    return each.moments.empty() || each.moments.back().query();
  });
}

// The host cannot read a device's clock. It records a moment, waits for it, and thus knows by its
// own clock when the device reached that moment.
Clock::time_point StepTimes::began(std::size_t worker) const {
  const DeviceTimes& device = devices_[worker];
  if (device.moments.empty()) return recordings_[worker].times.front();
  if (device.began) return *device.began;
  device.moments.back().synchronize();  // the caller's stream may be another than the step's
  StreamClock::Moment here = device.clock->record();
  here.synchronize();
  const double since = StreamClock::seconds_between(device.moments.front(), here);
  device.began = Clock::now() - duration_of(since);
  device.clock->recycle(std::move(here));
  return *device.began;
}

const Timeline& StepTimes::timeline() const {
  if (!timeline_) timeline_ = timeline_of(actions_, recordings(/*aligned=*/true));
  return *timeline_;
}

// The times measured on devices replace those of the host.
std::vector<Recording> StepTimes::recordings(bool aligned) const {
  std::vector<Recording> recordings = recordings_;
  for (std::size_t w = 0; w < devices_.size(); ++w) {
    auto& times = recordings[w].times;
    if (times.empty()) continue;
    const Clock::time_point begin = aligned ? began(w) : Clock::time_point();
    const auto& moments = devices_[w].moments;
    if (moments.empty()) {
      const Clock::duration shift = begin - times.front();
      for (Clock::time_point& each : times) each += shift;
      continue;
    }
    moments.back().synchronize();
    times.clear();
    for (const StreamClock::Moment& each : moments) {
      times.push_back(begin + duration_of(StreamClock::seconds_between(moments.front(), each)));
    }
  }
  return recordings;
}

}  // namespace lockstep::pipeline
