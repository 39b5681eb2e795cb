#include <lockstep/train/stop_agreement.h>

#include <algorithm>
#include <utility>

#include <lockstep/comm/call/device_stream.h>

namespace lockstep::train {
namespace {

constexpr double kSecondsBetweenExchanges = 0.2;
constexpr std::int64_t kLongestInterval = 1000;  // steps
// Steps of an interval may suddenly take longer than before; it grows with care.
constexpr std::int64_t kGrowth = 4;
// Steps from the beginning of an exchange to its end. A host is some steps ahead of its device, for
// which it must not wait.
constexpr std::int64_t kStepsOnHost = 1;
constexpr std::int64_t kStepsOnDevice = 2;

// The places of the exchanged numbers, which are reduced to their maxima, and how many there are.
constexpr std::int64_t kRequestPlace = 0;  // 1 + the signal
constexpr std::int64_t kOutOfTimePlace = 1;
constexpr std::int64_t kIntervalPlace = 2;
constexpr std::int64_t kPlaces = 3;

}  // namespace

bool StopAgreement::time_is_over() const {
  return max_seconds_ && seconds_since(start_) >= *max_seconds_;
}

void StopAgreement::decide_alone() {
  out_of_time_ = time_is_over();
  if (request_ == nullptr || !request_->requested()) return;
  requested_ = true;
  signal_ = request_->signal();
}

// Rank 0's proposal: the number of steps that take kSecondsBetweenExchanges.
std::int64_t StopAgreement::next_interval() {
  const std::int64_t before = measured_step_;
  const Clock::time_point begin = std::exchange(measured_at_, Clock::now());
  measured_step_ = step_;
  if (begin == Clock::time_point{} || step_ <= before) return 1;
  const double seconds = std::chrono::duration<double>(measured_at_ - begin).count() /
                         static_cast<double>(step_ - before);
  const double steps = kSecondsBetweenExchanges / std::max(seconds, 1e-9);
  const auto most = static_cast<double>(std::min(kGrowth * interval_, kLongestInterval));
  return static_cast<std::int64_t>(std::clamp(steps, 1.0, most));
}

void StopAgreement::begin(ProcessGroup& group) {
  const bool is_first = group.rank() == 0;
  const bool is_requested = request_ != nullptr && request_->requested();
  const bool on_stream = !device_.is_cpu() && group.runs_on_stream();
  const auto options = torch::TensorOptions(torch::kInt64).pinned_memory(!device_.is_cpu());
  torch::Tensor values = torch::zeros({kPlaces}, options);
  auto* const own = values.mutable_data_ptr<std::int64_t>();
  own[kRequestPlace] = is_requested ? 1 + request_->signal() : 0;
  own[kOutOfTimePlace] = is_first && time_is_over() ? 1 : 0;
  own[kIntervalPlace] = is_first ? next_interval() : 0;
  if (!device_.is_cpu()) values = values.to(device_, /*non_blocking=*/true);
  exchange_.emplace(StopExchange{.values = values,
                                 .work = group.async_all_reduce(values, ReduceOp::kMax),
                                 .began_after = step_});
  if (!on_stream) return;
  exchange_->work->wait();  // the stream waits, not the host
  exchange_->on_host = torch::empty({kPlaces}, options);
  exchange_->on_host.copy_(values, /*non_blocking=*/true);
  exchange_->arrived.emplace(comm::mark_stream(device_));
}

void StopAgreement::finish() {
  torch::Tensor values;
  if (exchange_->arrived) {
    exchange_->arrived->synchronize();
    values = exchange_->on_host;
  } else {
    exchange_->work->wait();
    values = exchange_->values.cpu();
  }
  const auto* const all = values.const_data_ptr<std::int64_t>();
  requested_ = all[kRequestPlace] > 0;
  signal_ = requested_ ? static_cast<int>(all[kRequestPlace] - 1) : 0;
  out_of_time_ = all[kOutOfTimePlace] > 0;
  interval_ = std::max<std::int64_t>(all[kIntervalPlace], 1);
  next_begin_ = exchange_->began_after + interval_;
  exchange_.reset();
}

void StopAgreement::after_step(std::int64_t step, ProcessGroup& group) {
  if (!is_used() || requested_) return;
  step_ = step;
  if (group.size() == 1) return decide_alone();
  const std::int64_t duration = device_.is_cpu() ? kStepsOnHost : kStepsOnDevice;
  if (exchange_ && step_ >= exchange_->began_after + duration) finish();
  if (!requested_ && !exchange_ && step_ >= next_begin_) begin(group);
}

void StopAgreement::settle(ProcessGroup& group) {
  if (!is_used() || requested_) return;
  if (group.size() == 1) return decide_alone();
  if (exchange_) finish();
  if (requested_) return;
  begin(group);
  finish();
}

}  // namespace lockstep::train
