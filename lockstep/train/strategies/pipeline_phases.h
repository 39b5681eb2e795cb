// The time of a pipeline's step, by phase.
#pragma once

#include <lockstep/parallel/pipeline/schedule/replay.h>
#include <lockstep/train/task/listener.h>

namespace lockstep::train {

/// Adds the durations of the actions in `timeline` to `phases`, divided by `workers`, the number of
/// workers in it. Messages and reductions count as communication, and receives count also as waits
/// for another stage.
inline void add_phases(const pipeline::Timeline& timeline, int workers, PhaseSeconds& phases) {
  for (const auto& actions : timeline.workers) {
    for (const pipeline::Interval& interval : actions) {
      const double seconds = (interval.end - interval.begin) / workers;
      switch (interval.action.kind) {
        case pipeline::Kind::kForward:
          phases.forward += seconds;
          break;
        case pipeline::Kind::kBackward:
        case pipeline::Kind::kBackwardInput:
        case pipeline::Kind::kBackwardWeight:
          phases.backward += seconds;
          break;
        case pipeline::Kind::kReceiveForward:
        case pipeline::Kind::kReceiveBackward:
          phases.stage_waits += seconds;
          [[fallthrough]];
        default:
          phases.communication += seconds;
      }
    }
  }
}

}  // namespace lockstep::train
