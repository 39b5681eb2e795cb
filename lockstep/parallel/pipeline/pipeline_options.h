// How a pipeline runs, for threads of one process and for ranks.
#pragma once

#include <chrono>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <torch/types.h>

#include <lockstep/parallel/pipeline/schedule/table.h>

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

/// How many stages each worker has: two by zbv and interleaved, one by the other schedules.
/// (interleaved can have more; then the caller knows how many workers there are.)
int stages_per_worker(Schedule schedule);

/// How many workers `stages` stages need, by stages_per_worker(). ConfigError for too few stages,
/// and for an odd number where a worker has two.
int workers_for(Schedule schedule, int stages);

/// How a criterion combines the losses of the samples of its batch.
enum class LossReduction {
  kMean,  ///< the mean over the samples, as PyTorch's criteria by default
  kSum,   ///< the sum
};

struct PipelineOptions {
  /// How many parts a batch is cut into, along dimension 0. Their sizes differ by one sample at
  /// most, and the larger ones come first.
  int micro_batches = 4;
  Schedule schedule = Schedule::k1F1B;
  /// A schedule of your own, such as pipeline::table_of() reads. It replaces `schedule`, and its
  /// number of micro-batches replaces `micro_batches`. Messages and reductions are added if it has
  /// none.
  std::optional<pipeline::Table> table{};
  /// Forwards keep their inputs only, and run again before the backward: less memory for
  /// activations, one more forward of each stage and micro-batch. The criterion runs twice, too. A
  /// stage that changes its inputs in place is a ConfigError.
  bool recompute = false;
  /// Stages whose backward is not split, although the schedule splits it. Use it where most of a
  /// stage is custom autograd functions, which cannot be split. Stages that say so themselves
  /// (StageModule::has_whole_backward()) need not be named.
  std::vector<int> whole_backward = {};
  LossReduction loss_reduction = LossReduction::kMean;
  /// Pipeline on CPUs: how many OpenMP threads each worker computes with. 0: its share of those
  /// that the constructor's caller has, at least one.
  int threads_per_worker = 0;
  /// Pipeline: how long a stage waits for another stage's message. Between ranks the group's
  /// timeout holds.
  std::chrono::milliseconds timeout = std::chrono::minutes(5);
  /// Adds up a stage's gradients over the replicas of the pipeline. Called on the stage's worker as
  /// soon as the gradients of a step are complete, while other stages still compute. ConfigError
  /// where stages share a parameter that requires a gradient, because no single stage completes its
  /// gradient.
  ///
  /// Pipeline calls it from its workers' threads, for stages of different workers at the same time
  /// and in any order: it must be thread-safe, and collectives need a group for each worker.
  /// DistributedPipeline calls it on the rank's thread, in the order of the table.
  ReduceStage reduce = nullptr;
  /// Also counts the bytes that activations take, for peak_activation_bytes() of Pipeline and of
  /// DistributedPipeline. Every allocation then costs a lookup, so leave it off where the time of a
  /// step matters.
  bool measure_memory = false;
};

namespace pipeline {

/// `options`, with the number of micro-batches of the user's own table if there is one.
PipelineOptions with_numbers_of_table(PipelineOptions options);

/// The table that `options` asks for, with messages and, where it is wanted, reductions, checked.
/// There are `stages` stages on `workers` workers. ConfigError where they do not fit the schedule,
/// for invalid options, and for a table of the user's that check() refuses or that has other
/// numbers of stages or workers.
Table make_table(const PipelineOptions& options, int stages, int workers, int micro_batches);

}  // namespace pipeline
}  // namespace lockstep
