// The phases of a step, as seconds and as spans of a trace.
#pragma once

#include <lockstep/trace/span_recorder.h>
#include <lockstep/train/measuring/phase_timer.h>

namespace lockstep {

/// Adds its lifetime to `seconds`, of the host or of a device (PhaseTimer), and is a span named
/// `phase`, a literal, while a trace is recorded.
class PhaseScope {
 public:
  PhaseScope(double& seconds, const char* phase) : span_(phase, "phase"), seconds_(seconds) {}

 private:
  const SpanScope span_;
  const PhaseSecondsScope seconds_;
};

}  // namespace lockstep
