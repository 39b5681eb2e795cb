// Runs a pipeline's table with stages that either multiply matrices or wait. This header is
// independent of LibTorch.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include <lockstep/bench/pipeline/settings.h>
#include <lockstep/parallel/pipeline/schedule/replay.h>
#include <lockstep/parallel/pipeline/schedule/table.h>

namespace lockstep::bench {

/// Stages that waited instead of computing (ToyStages::wait_microseconds).
struct WaitingStages {
  int asked_microseconds = 0;    ///< duration requested
  double mean_microseconds = 0;  ///< mean duration of a wait
};

/// The results of running the table on threads.
struct PipelineMeasurement {
  pipeline::Table table{};        ///< the table that was run, including messages
  pipeline::Timeline timeline{};  ///< the step with the median duration, in seconds
  /// Peaks of activations, see ActivationBytes; empty if stages waited.
  std::vector<std::int64_t> worker_bytes{}, stage_bytes{};
  double step_seconds = 0;        ///< median duration of a step
  double empty_step_seconds = 0;  ///< median duration with stages that do nothing
  std::optional<WaitingStages> waiting{};
  int processors = 0;  ///< usable by the workers; 0: unknown
};

/// Trains `toys` according to `table` on the threads of this process and returns the step with the
/// median time. The timed steps alternate with steps of empty stages, which measure what running
/// the stages costs in addition to their computation; a separate step measures the bytes of
/// activations. Seeds LibTorch's generator.
PipelineMeasurement measure_pipeline(const pipeline::Table& table, const ToyStages& toys);

}  // namespace lockstep::bench
