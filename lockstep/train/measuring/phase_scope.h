// The phases of a step, as seconds and as spans of a trace.
#pragma once

#include <lockstep/core/trace/span_recorder.h>
#include <lockstep/train/measuring/phase_timer.h>

namespace lockstep::train {

/// Adds its lifetime to `seconds`, measured on the host or on a device (PhaseTimer). While a trace
/// is recorded, it is also a span named `phase`, which must be a string literal.
class PhaseScope {
 public:
  PhaseScope(double& seconds, const char* phase) : span_(phase, "phase"), seconds_(seconds) {}

 private:
  const SpanScope span_;
  const PhaseSecondsScope seconds_;
};

}  // namespace lockstep::train
