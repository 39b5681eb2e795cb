// The content that `lockstep explain pipeline` shows of a schedule, as text (pipeline_text.h) and
// as a picture (pipeline_svg.h). Independent of LibTorch: measurements are passed as a timeline.
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

/// A step, with timelines of the workers.
struct PipelineChart {
  std::string name{};         ///< "replayed" or "measured"
  std::string explanation{};  ///< one line
  pipeline::Timeline timeline{};
  std::string unit{};  ///< unit of its times: "ms", "us", or none
};

/// Stages that waited instead of computing.
struct WaitingStages {
  int asked_microseconds = 0;
  double mean_microseconds = 0;  ///< mean duration of a wait
};

/// The share of all workers' time in which they do not compute, from 0 to 1.
struct NamedBubble {
  std::string key{};   ///< in JSON
  std::string name{};  ///< for people: the origin of the number
  double bubble = 0;
};

/// The cost of the machinery around the stages, in seconds.
struct ExecutorCost {
  double step = 0;         ///< a whole step: the median of the calls
  double empty_step = 0;   ///< the same table with stages that do nothing: the median of the calls
  double over_replay = 0;  ///< the measured step minus its replay
};

struct PipelinePicture {
  std::string title{};
  pipeline::Table table{};
  std::vector<int> peak_activations{};       ///< see pipeline::TableFacts
  std::vector<std::int64_t> worker_bytes{};  ///< see ActivationBytes; empty: unknown
  std::vector<std::int64_t> stage_bytes{};   ///< see ActivationBytes; empty: unknown
  std::optional<ExecutorCost> executor{};    ///< only for a measured step
  std::optional<WaitingStages> waiting{};    ///< if stages waited instead of computing
  std::vector<PipelineChart> charts{};
  std::vector<NamedBubble> bubbles{};
  std::vector<std::string> notes{};
};

/// The results of a run of the table on threads.
struct PipelineMeasurement {
  pipeline::Table table{};        ///< as run, including messages
  pipeline::Timeline timeline{};  ///< the step with the median time, in seconds
  std::vector<std::int64_t> worker_bytes{}, stage_bytes{};  ///< as in PipelinePicture
  double step_seconds = 0, empty_step_seconds = 0;          ///< see ExecutorCost
  std::optional<WaitingStages> waiting{};
  int processors = 0;  ///< usable by the workers; 0: unknown
};

/// The table replayed with nominal times.
PipelinePicture picture_of(const ExplainPipelineSettings& settings);
/// The measured step next to its replay from the measured durations.
PipelinePicture picture_of(const ExplainPipelineSettings& settings,
                           const PipelineMeasurement& measured);

/// The stages of a worker, in ascending order.
std::vector<int> stages_of_worker(const pipeline::Table& table, std::size_t worker);
/// The bytes of each stage of a worker, "1 MiB + 512 KiB" in the order of stages_of_worker(). Empty
/// if they are unknown, or if the worker has one stage, whose bytes are the worker's own.
std::string stage_bytes_text(const PipelinePicture& picture, std::size_t worker);
/// The executor's share of a step, from 0 to 1 or more.
double executor_share(const ExecutorCost& cost);
/// The table as CSV in lines of at most `columns`, as far as its cells allow. Continuation lines
/// are indented.
std::vector<std::string> wrapped_table(const pipeline::Table& table, std::size_t columns);

/// {"schedule", "workers", "stages", "micro_batches", "peak_activations", then a number for each
/// bubble: "bubble" as measured, "bubble_replayed", "bubble_formula"}. A measurement adds
/// "step_ms", the median of whole steps; "executor_ms", the median for the table with stages that
/// do nothing; "executor_share", its share of step_ms; and "over_replay_ms", the step of "bubble"
/// minus its replay. Stages that compute add "worker_bytes" and "stage_bytes", the peak size of
/// activations; stages that wait add "wait_us" and "wait_us_mean".
std::string picture_json(const PipelinePicture& picture);

}  // namespace lockstep
