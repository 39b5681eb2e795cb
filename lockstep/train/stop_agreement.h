// The step at which all ranks of a run stop early: TrainerOptions::stop_request and
// max_time_seconds. Internal to lockstep/train.
#pragma once

#include <cstdint>
#include <optional>

#include <c10/core/Event.h>
#include <torch/types.h>

#include <lockstep/comm/group/process_group.h>
#include <lockstep/core/clock.h>
#include <lockstep/train/stop_request.h>

namespace lockstep::train {

/// A reduction that has begun.
struct StopExchange {
  torch::Tensor values{};
  WorkPtr work{};
  torch::Tensor on_host{};              ///< a copy of `values` that are on a device's stream
  std::optional<c10::Event> arrived{};  ///< when `on_host` is filled
  std::int64_t began_after = 0;         ///< step
};

/// A rank that gets a request cannot stop alone, because the others wait for its gradients. The
/// ranks therefore reduce what each of them knows, about five times a second. The reduction begins
/// after a step and ends after a later one, so that it overlaps with the steps between and no rank
/// waits for it. Use it on one thread only.
class StopAgreement {
 public:
  /// `request` may be null; it must outlive this object. `max_seconds` counts from `start`, by rank
  /// 0's clock. `device` is one that the group can send from.
  StopAgreement(const StopRequest* request, std::optional<double> max_seconds,
                Clock::time_point start, torch::Device device)
      : request_(request), max_seconds_(max_seconds), start_(start), device_(device) {}

  /// Collective. Called after each step of the run, whose number is `step`.
  void after_step(std::int64_t step, ProcessGroup& group);
  /// Collective. Waits until all ranks agree on what they know now.
  void settle(ProcessGroup& group);

  /// Whether a rank has a request, and all ranks know it.
  bool requested() const { return requested_; }
  /// StopRequest::signal() of that rank, the largest if several have one.
  int signal() const { return signal_; }
  /// Whether rank 0's clock has passed max_seconds, and all ranks know it.
  bool out_of_time() const { return out_of_time_; }

 private:
  bool is_used() const { return request_ != nullptr || max_seconds_.has_value(); }
  bool time_is_over() const;
  void decide_alone();
  std::int64_t next_interval();
  void begin(ProcessGroup& group);
  void finish();

  const StopRequest* const request_;
  const std::optional<double> max_seconds_;
  const Clock::time_point start_;
  const torch::Device device_;
  bool requested_ = false;
  int signal_ = 0;
  bool out_of_time_ = false;

  std::optional<StopExchange> exchange_{};
  std::int64_t step_ = 0;           // the latest
  std::int64_t next_begin_ = 0;     // the step after which the next exchange begins
  std::int64_t interval_ = 1;       // steps between the beginnings of two exchanges
  std::int64_t measured_step_ = 0;  // on rank 0: the step of the latest measurement, and its time
  Clock::time_point measured_at_{};
};

}  // namespace lockstep::train
