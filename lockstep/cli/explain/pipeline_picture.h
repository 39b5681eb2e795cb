// What `lockstep explain pipeline` shows for a schedule, as text (pipeline_text.h) and as a drawing
// (pipeline_svg.h). Independent of LibTorch: measurements are passed as a timeline.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <lockstep/bench/pipeline/measured_pipeline.h>
#include <lockstep/cli/explain/pipeline_settings.h>
#include <lockstep/parallel/pipeline/schedule/replay.h>
#include <lockstep/parallel/pipeline/schedule/table.h>

namespace lockstep::cli {

/// One step, as a chart with a lane for each worker.
struct PipelineChart {
  std::string name{};         ///< "replayed" or "measured"
  std::string explanation{};  ///< one line
  pipeline::Timeline timeline{};
  std::string unit{};  ///< unit of its times: "ms", "us", or none
};

/// A bubble, and how it was obtained.
struct NamedBubble {
  std::string key{};   ///< the key in JSON
  std::string name{};  ///< the label in text and drawings, such as "measured"
  double bubble = 0;   ///< share of all workers' time in which they do not compute, 0 to 1
};

/// The time, in seconds, that the pipeline spends on running its stages, in addition to their
/// computation.
struct ExecutorCost {
  double step = 0;         ///< median duration of a step
  double empty_step = 0;   ///< median duration with stages that do nothing
  double over_replay = 0;  ///< duration of the step in the chart minus that of its replay
};

struct PipelinePicture {
  std::string title{};
  pipeline::Table table{};
  std::vector<int> peak_activations{};            ///< see pipeline::TableFacts
  std::vector<std::int64_t> worker_bytes{};       ///< see ActivationBytes; empty: unknown
  std::vector<std::int64_t> stage_bytes{};        ///< see ActivationBytes; empty: unknown
  std::optional<ExecutorCost> executor{};         ///< only for a measured step
  std::optional<bench::WaitingStages> waiting{};  ///< only if stages waited instead of computing
  std::vector<PipelineChart> charts{};
  std::vector<NamedBubble> bubbles{};
  std::vector<std::string> notes{};
};

/// Shows the table replayed with nominal durations: a forward takes 1, a backward 2.
PipelinePicture picture_of(const ExplainPipelineSettings& settings);
/// Shows the measured step and its replay, which has the measured durations but no waits.
PipelinePicture picture_of(const ExplainPipelineSettings& settings,
                           const bench::PipelineMeasurement& measured);

/// The stages of a worker, in ascending order.
std::vector<int> stages_of_worker(const pipeline::Table& table, std::size_t worker);
/// The activation bytes of each stage of a worker, such as "1 MiB + 512 KiB", in the order of
/// stages_of_worker(). Empty if they are unknown, or if the worker has only one stage, whose bytes
/// equal the worker's.
std::string stage_bytes_text(const PipelinePicture& picture, std::size_t worker);
/// The duration of an empty step divided by that of a step. Normally below 1.
double executor_share(const ExecutorCost& cost);
/// The table as CSV, wrapped to lines of at most `columns`. A line exceeds that limit only if a
/// single cell does. Continuation lines are indented.
std::vector<std::string> wrapped_table(const pipeline::Table& table, std::size_t columns);

/// A JSON object with "schedule", "workers", "stages", "micro_batches", "peak_activations", and, as
/// far as they are known, "bubble" (measured), "bubble_replayed" and "bubble_formula". A
/// measurement adds "step_ms", the median duration of a step; "executor_ms", the median for the
/// table with stages that do nothing; "executor_share", which is executor_ms / step_ms; and
/// "over_replay_ms", the duration of the step in the chart minus that of its replay. Stages that
/// compute add "worker_bytes" and "stage_bytes", the peak size of activations; stages that wait add
/// "wait_us" and "wait_us_mean".
std::string picture_json(const PipelinePicture& picture);

}  // namespace lockstep::cli
