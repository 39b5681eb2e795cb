#include <lockstep/bench/pipeline/waiting_stage.h>

#include <sys/prctl.h>
#include <time.h>

#include <algorithm>
#include <cerrno>
#include <string>
#include <utility>
#include <vector>

#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/function.h>

#include <lockstep/core/clock.h>
#include <lockstep/core/measuring/quantile.h>
#include <lockstep/parallel/pipeline/gradient_nodes.h>

namespace lockstep::bench {
namespace {

using torch::autograd::variable_list;

constexpr int kCalibrationWaits = 20;
// Lateness does not depend on the length of a wait, so calibration uses waits of at most this
// length.
constexpr std::chrono::nanoseconds kLongestCalibration = std::chrono::milliseconds(2);

// steady_clock is the kernel's monotonic clock. Sleeps until the end, because a thread that spun
// for the last microseconds would take the processor from others.
void sleep_to(Clock::time_point deadline) {
  // By default the kernel may delay a wake-up by 50 us, to wake several threads at once.
  [[maybe_unused]] thread_local const int slack = prctl(PR_SET_TIMERSLACK, 1UL);
  const auto since_boot = deadline.time_since_epoch();
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(since_boot);
  const auto rest = std::chrono::duration_cast<std::chrono::nanoseconds>(since_boot - seconds);
  timespec at{};
  at.tv_sec = static_cast<time_t>(seconds.count());
  at.tv_nsec = static_cast<long>(rest.count());
  while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &at, nullptr) == EINTR) {
  }
}

// An own node instead of a torch::autograd::Function, which cannot be asked for one gradient alone.
class WaitBackward final : public torch::autograd::Node {
 public:
  WaitBackward(torch::autograd::edge_list edges, std::shared_ptr<CalibratedWait> wait)
      : Node(std::move(edges)), has_input_(next_edge(0).is_valid()), wait_(std::move(wait)) {}

  variable_list apply(variable_list&& gradients) override {
    variable_list results(2);
    if (!has_input_) {
      (*wait_)();
    } else if (task_should_compute_output(0)) {
      (*wait_)();
      results[0] = gradients.at(0);
    }
    if (task_should_compute_output(1)) {
      (*wait_)();
      results[1] = torch::zeros({1});
    }
    return results;
  }
  std::string name() const override { return "lockstep::WaitBackward"; }

 private:
  const bool has_input_;  // initially: a split backward removes the edge
  const std::shared_ptr<CalibratedWait> wait_;
};

}  // namespace

CalibratedWait::CalibratedWait(std::chrono::nanoseconds length) : length_(length) {
  if (length.count() <= 0) return;
  const std::chrono::nanoseconds slept = std::min(length, kLongestCalibration);
  std::vector<double> late;  // in nanoseconds
  for (int i = 0; i < kCalibrationWaits; ++i) {
    const Clock::time_point deadline = Clock::now() + slept;
    sleep_to(deadline);
    late.push_back(seconds_since(deadline) * 1e9);
  }
  const std::chrono::nanoseconds usual(static_cast<std::int64_t>(median(late)));
  lateness_ = std::clamp(usual, std::chrono::nanoseconds(0), length);
}

void CalibratedWait::operator()() {
  if (length_.count() <= 0) return;
  const Clock::time_point begin = Clock::now();
  sleep_to(begin + length_ - lateness_);
  const std::chrono::nanoseconds took = Clock::now() - begin;
  nanoseconds_ += took.count();
  ++waits_;
}

double CalibratedWait::mean_seconds() const {
  const std::int64_t waits = waits_;
  if (waits == 0) return 0;
  return static_cast<double>(nanoseconds_) / static_cast<double>(waits) / 1e9;
}

void CalibratedWait::forget() {
  nanoseconds_ = 0;
  waits_ = 0;
}

WaitingStageImpl::WaitingStageImpl(std::shared_ptr<CalibratedWait> wait)
    : wait_(std::move(wait)), weight_(register_parameter("weight", torch::zeros({1}))) {}

torch::Tensor WaitingStageImpl::forward(const torch::Tensor& x) {
  (*wait_)();
  torch::Tensor y = x.detach();
  if (c10::GradMode::is_enabled()) {
    torch::autograd::edge_list edges = torch::autograd::collect_next_edges(x, weight_);
    torch::autograd::create_gradient_edge(
        y, pipeline::make_node<WaitBackward>(std::move(edges), wait_));
  }
  return y;
}

}  // namespace lockstep::bench
