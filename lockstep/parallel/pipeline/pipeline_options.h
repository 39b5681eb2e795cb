// How a pipeline runs, for threads of one process and for ranks.
#pragma once

#include <chrono>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <torch/types.h>

#include <lockstep/parallel/pipeline/table.h>

namespace lockstep {

using Tensors = std::vector<torch::Tensor>;

/// The loss of a micro-batch, a tensor of one element, from the outputs of the last stage and the
/// target.
using PipelineLoss =
    std::function<torch::Tensor(const Tensors& outputs, const torch::Tensor& target)>;

/// Adds up the gradients of a stage's parameters over the replicas of the pipeline.
using ReduceStage = std::function<void(int stage, const Tensors& parameters)>;

/// PyTorch's names are ScheduleGPipe, Schedule1F1B, ScheduleInterleaved1F1B, ScheduleZBVZeroBubble.
/// pipeline/schedules.h says what each of them does, and costs.
enum class Schedule { kGPipe, k1F1B, kInterleaved, kZbH1, kZbV };

/// "gpipe", "1f1b", "interleaved", "zb-h1" or "zbv".
std::string_view schedule_name(Schedule schedule);
/// The names of all of them.
std::vector<std::string> schedule_names();
/// The inverse of schedule_name(); ConfigError for another word.
Schedule schedule_named(std::string_view name);

/// How many workers `schedule` puts `stages` stages on: two stages each for zbv and, unless the
/// caller knows better, for interleaved; else one each. ConfigError for fewer stages than that, and
/// for a number that two do not divide.
int workers_for(Schedule schedule, int stages);

/// What a criterion makes of the samples of its batch.
enum class LossReduction {
  kMean,  ///< the mean over the samples, as PyTorch's criteria by default
  kSum,   ///< the sum
};

struct PipelineOptions {
  /// Into how many parts a batch is cut, along dimension 0. Sizes differ by one sample at most, the
  /// larger ones come first.
  int micro_batches = 4;
  Schedule schedule = Schedule::k1F1B;
  /// A schedule of your own, such as pipeline::table_of() reads. It replaces `schedule`, and its
  /// number of micro-batches replaces `micro_batches`. Messages and reductions are added if it has
  /// none.
  std::optional<pipeline::Table> table{};
  /// Forwards keep their inputs only, and run again before the backward.
  bool recompute = false;
  /// Stages whose backward is not split, whatever the schedule says: worth it where most of a stage
  /// is custom functions, which cannot be split.
  std::vector<int> whole_backward = {};
  LossReduction loss_reduction = LossReduction::kMean;
  /// Threads of one process on CPUs: how many OpenMP threads each worker computes with. 0: its
  /// share of those that the constructor's caller has, at least one.
  int threads_per_worker = 0;
  /// Threads of one process: how long a stage waits for another's message. Between ranks the
  /// group's timeout holds.
  std::chrono::milliseconds timeout = std::chrono::minutes(5);
  /// Called on the worker of a stage as soon as its gradients of a step are complete, while other
  /// stages still compute: adds them up over the replicas of the pipeline. ConfigError where stages
  /// share a parameter, whose gradient is complete with none of them.
  ReduceStage reduce = nullptr;
  /// Threads of one process: also count the bytes that activations take, for
  /// Pipeline::peak_activation_bytes(). Every allocation then costs a lookup, so leave it off where
  /// the time of a step is measured.
  bool measure_memory = false;
};

namespace pipeline {

/// The same with the number of micro-batches of the user's own table, if there is one.
PipelineOptions with_numbers_of_table(PipelineOptions options);

/// The table that `options` asks for, with messages and, where it is wanted, reductions, checked.
/// There are `stages` stages on `workers` workers. ConfigError where they do not fit the schedule,
/// for options that cannot be, and for a table of the user's that check() refuses or that has other
/// numbers.
Table make_table(const PipelineOptions& options, int stages, int workers, int micro_batches);

}  // namespace pipeline
}  // namespace lockstep
