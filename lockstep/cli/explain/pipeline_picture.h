// What `lockstep explain pipeline` shows of a schedule, as text (pipeline_text.h) and as a picture
// (pipeline_svg.h). Without LibTorch: what was measured comes as a timeline.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <lockstep/cli/explain/pipeline_settings.h>
#include <lockstep/parallel/pipeline/schedule/replay.h>
#include <lockstep/parallel/pipeline/schedule/table.h>

namespace lockstep {

/// A step, with lines of time for the workers.
struct PipelineChart {
  std::string name{};         ///< "replayed" or "measured"
  std::string explanation{};  ///< one line
  pipeline::Timeline timeline{};
  std::string unit{};  ///< unit of its times: "ms", "us", or none
};

/// Stages that waited instead of computing.
struct WaitingStages {
  int asked_microseconds = 0;
  double mean_microseconds = 0;  ///< that a wait took
};

/// The share of all workers' time in which they do not compute, 0 to 1.
struct NamedBubble {
  std::string key{};   ///< in JSON
  std::string name{};  ///< for people: where the number comes from
  double bubble = 0;
};

/// What the machinery around the stages takes, in seconds.
struct ExecutorCost {
  double step = 0;         ///< a whole step: the median of the calls
  double empty_step = 0;   ///< the same table with stages that do nothing: the median of the calls
  double over_replay = 0;  ///< what the measured step took longer than its replay
};

struct PipelinePicture {
  std::string title{};
  pipeline::Table table{};
  std::vector<int> peak_activations{};       ///< see pipeline::TableFacts
  std::vector<std::int64_t> worker_bytes{};  ///< see ActivationBytes; empty: not known
  std::vector<std::int64_t> stage_bytes{};   ///< see ActivationBytes; empty: not known
  std::optional<ExecutorCost> executor{};    ///< only for a measured step
  std::optional<WaitingStages> waiting{};    ///< where stages did not compute
  std::vector<PipelineChart> charts{};
  std::vector<NamedBubble> bubbles{};
  std::vector<std::string> notes{};
};

/// The results of a run of the table on threads.
struct PipelineMeasurement {
  pipeline::Table table{};        ///< as it ran, with messages
  pipeline::Timeline timeline{};  ///< the step that took the median time, in seconds
  std::vector<std::int64_t> worker_bytes{}, stage_bytes{};  ///< as in PipelinePicture
  double step_seconds = 0, empty_step_seconds = 0;          ///< see ExecutorCost
  std::optional<WaitingStages> waiting{};
  int processors = 0;  ///< number that the workers could use; 0: not known
};

/// The table replayed on paper.
PipelinePicture picture_of(const ExplainPipelineSettings& settings);
/// The step as it was beside its replay from the measured durations.
PipelinePicture picture_of(const ExplainPipelineSettings& settings,
                           const PipelineMeasurement& measured);

/// The stages of a worker, in ascending order.
std::vector<int> stages_of_worker(const pipeline::Table& table, std::size_t worker);
/// The bytes of each stage of a worker, "1 MiB + 512 KiB" in the order of stages_of_worker(). Empty
/// where they are not known, and where the worker has one stage, whose bytes are its own.
std::string stage_bytes_text(const PipelinePicture& picture, std::size_t worker);
/// The part of a step that the executor takes, 0 to 1 and more.
double executor_share(const ExecutorCost& cost);
/// The table as CSV in lines of at most `columns`, as far as its cells allow. The continuation of a
/// line is indented.
std::vector<std::string> wrapped_table(const pipeline::Table& table, std::size_t columns);

/// {"schedule", "workers", "stages", "micro_batches", "peak_activations", then a number for each
/// bubble: "bubble" as measured, "bubble_replayed", "bubble_formula"}. What was measured adds
/// "step_ms", the median of whole steps; "executor_ms", the same for the table with stages that do
/// nothing, and "executor_share", its part of step_ms; "over_replay_ms", what the step of "bubble"
/// took longer than its replay. Stages that compute add "worker_bytes" and "stage_bytes", the most
/// that activations took at once; stages that wait add "wait_us" and "wait_us_mean".
std::string picture_json(const PipelinePicture& picture);

}  // namespace lockstep
