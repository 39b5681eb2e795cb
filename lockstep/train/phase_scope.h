// The phases of a step, as seconds and as spans of a trace.
#pragma once

#include <lockstep/core/clock.h>
#include <lockstep/trace/span_recorder.h>

namespace lockstep {

/// Adds its lifetime to `seconds`, and is a span named `phase`, a literal, while a trace is
/// recorded.
class PhaseScope {
 public:
  PhaseScope(double& seconds, const char* phase) : span_(phase, "phase"), seconds_(seconds) {}

 private:
  const SpanScope span_;
  const SecondsScope seconds_;
};

}  // namespace lockstep
