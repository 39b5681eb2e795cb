// Options of a pipeline, which runs on threads of one process or on ranks.
#pragma once

#include <chrono>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <torch/types.h>

#include <lockstep/core/export.h>
#include <lockstep/optim/parameter_groups.h>
#include <lockstep/parallel/pipeline/schedule/table.h>

namespace lockstep {

using Tensors = std::vector<torch::Tensor>;

/// Computes the loss of a micro-batch, a tensor of one element, from the outputs of the last stage
/// and the target.
using PipelineLoss =
    std::function<torch::Tensor(const Tensors& outputs, const torch::Tensor& target)>;

/// Adds up the gradients of a stage's parameters over the replicas of the pipeline.
using ReduceStage = std::function<void(int stage, const Tensors& parameters)>;

/// PyTorch's names are ScheduleGPipe, Schedule1F1B, ScheduleInterleaved1F1B, ScheduleZBVZeroBubble.
/// See pipeline/schedule/schedules.h for what each schedule does and costs.
enum class Schedule { kGPipe, k1F1B, kInterleaved, kZbH1, kZbV };

/// "gpipe", "1f1b", "interleaved", "zb-h1" or "zbv".
LOCKSTEP_API std::string_view schedule_name(Schedule schedule);
/// The names of all schedules.
LOCKSTEP_API const std::vector<std::string>& schedule_names();
/// The inverse of schedule_name(). Throws ConfigError for an unknown name.
LOCKSTEP_API Schedule schedule_named(std::string_view name);

/// The number of stages of each worker: two for zbv and interleaved, one for the other schedules.
/// (interleaved can have more; then the caller determines the number of workers.)
LOCKSTEP_API int stages_per_worker(Schedule schedule);

/// The number of workers for `stages` stages, by stages_per_worker(). Throws ConfigError if there
/// are too few stages, or an odd number for a schedule with two per worker.
LOCKSTEP_API int workers_for(Schedule schedule, int stages);

/// How a criterion combines the losses of the samples of its batch.
enum class LossReduction {
  kMean,  ///< the mean over the samples, the default of PyTorch's criteria
  kSum,   ///< the sum
};

struct LOCKSTEP_API PipelineOptions {
  /// Number of parts into which a batch is cut, along dimension 0. Their sizes differ by at most
  /// one sample, larger ones first.
  int micro_batches = 4;
  Schedule schedule = Schedule::k1F1B;
  /// A user-defined schedule, for example one read with pipeline::table_of(). It replaces
  /// `schedule`, and its number of micro-batches replaces `micro_batches`. Messages and reductions
  /// are added if it has none.
  std::optional<pipeline::Table> table{};
  /// Forwards keep only their inputs and run again before the backward. This saves memory for
  /// activations and costs one more forward per stage and micro-batch; the criterion also runs
  /// twice, once without gradients. A stage that changes its inputs in place, or a criterion that
  /// changes the target, then causes a ConfigError.
  bool recompute = false;
  /// Stages whose backward stays whole even if the schedule splits backwards. Use it for stages
  /// that consist mostly of custom autograd functions, which cannot be split. Stages that declare
  /// it themselves (StageModule::has_whole_backward()) need not be listed.
  std::vector<int> whole_backward = {};
  LossReduction loss_reduction = LossReduction::kMean;
  /// Pipeline on CPUs: number of OpenMP threads of each worker. 0 means an equal share, at least
  /// one, of the threads that the constructor's caller has.
  int threads_per_worker = 0;
  /// Pipeline: timeout for a stage that waits for another stage's message. Between ranks the
  /// group's timeout applies.
  std::chrono::milliseconds timeout = std::chrono::minutes(5);
  /// Adds up a stage's gradients over the replicas of the pipeline. Called on the stage's worker as
  /// soon as the gradients of a step are complete, while other stages still compute. The
  /// constructor and step() throw ConfigError if stages share a parameter that requires a gradient,
  /// because no single stage completes its gradient, and so does the constructor if `tied` is not
  /// empty.
  ///
  /// Pipeline calls it from its workers' threads, for stages of different workers concurrently and
  /// in any order: it must be thread-safe, and collectives need a separate group for each worker.
  /// DistributedPipeline calls it on the rank's thread, in the order of the table.
  ReduceStage reduce = nullptr;
  /// Also counts the bytes of activations, for peak_activation_bytes() of Pipeline and
  /// DistributedPipeline. Every allocation then costs a lookup, so leave it off when step time
  /// matters.
  bool measure_memory = false;
  /// DistributedPipeline: weights that stages on several ranks share, such as an embedding that is
  /// also the decoder's weight. Each of these ranks has a copy and lists it under the same name, of
  /// the caller's choice: {{"words", embedding->weight}}. The constructor gives all copies the
  /// values of the first of these ranks, step() gives them the gradient of all uses, and
  /// clip_grad_norm_() counts them once. Must be empty for a Pipeline, whose stages share the
  /// tensor itself.
  NamedTensors tied = {};
};

namespace pipeline {

/// Returns `options`, with the number of micro-batches of the user-defined table if there is one.
LOCKSTEP_API PipelineOptions with_numbers_of_table(PipelineOptions options);

/// Makes and checks the table that `options` ask for, with messages and, if requested, reductions,
/// for `stages` stages on `workers` workers. Throws ConfigError if these do not fit the schedule,
/// if options are invalid, or if a user-defined table is rejected by check() or has different
/// numbers of stages or workers.
LOCKSTEP_API Table make_table(const PipelineOptions& options, int stages, int workers,
                              int micro_batches);

}  // namespace pipeline
}  // namespace lockstep
