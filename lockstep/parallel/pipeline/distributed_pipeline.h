// DistributedPipeline: the stages of one model on the ranks of a process group.
//
//   auto group = lockstep::init_process_group();
//   lockstep::DistributedPipeline pipe({my_stage}, group, torch::kCPU, {.micro_batches = 8});
//   torch::optim::SGD optimizer(pipe.parameters(), 0.1);
//   for (...) {
//     optimizer.zero_grad();
//     auto loss = pipe.step(criterion, x, y);  // x on the first rank, y on the last one
//     lockstep::clip_grad_norm_(pipe.parameters(), 1.0, group);
//     optimizer.step();
//   }
//
// Does on ranks what Pipeline does on threads, with the same tables and stages. The gradients are
// bitwise equal to Pipeline's if the default generators of all ranks have the same seed.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <torch/types.h>

#include <lockstep/comm/group/process_group.h>
#include <lockstep/core/export.h>
#include <lockstep/parallel/pipeline/activation_memory.h>
#include <lockstep/parallel/pipeline/clip_grad_of_ranks.h>
#include <lockstep/parallel/pipeline/pipeline.h>

namespace lockstep {

/// Rank r is worker r of the table and computes on the caller's thread. The pipeline shares the
/// modules passed to it and moves them to the device. All ranks must construct it with the same
/// options and make the same calls in the same order. Not thread-safe.
///
/// Messages use the group's backend, except that a group over NCCL sends them over Gloo, through
/// host memory: some schedules are free of deadlocks only if a send does not wait for its receive,
/// and NCCL's sends may wait.
///
/// When a rank fails, or its process dies, each other rank ends the step after its current action,
/// and the group is aborted. The failed rank throws its own error (see StepFailure), the others a
/// CommError that names that rank.
class LOCKSTEP_API DistributedPipeline {
 public:
  /// Collective. `stages` are the stages of this rank, in their order in the model; Pipeline's
  /// constructor documents which stages each worker has. Throws ConfigError, on every rank, if the
  /// stages do not fit together or the options differ. All ranks need the same table, so each rank
  /// tells the others which of its stages do not split their backward. Weights shared by stages of
  /// one rank are tied, as in Pipeline. Stages of different ranks have separate tensors: if these
  /// represent one weight, name it in PipelineOptions::tied. Throws ConfigError, on every rank, if
  /// only one rank names a weight, if the copies have different types or shapes, or if a tensor is
  /// not a parameter of the rank's stages. A rank that cannot use its device, or cannot move its
  /// stages there, aborts the group on all ranks.
  DistributedPipeline(std::vector<pipeline::StageModule> stages, ProcessGroup group,
                      torch::Device device, const PipelineOptions& options = {});
  ~DistributedPipeline();
  DistributedPipeline(DistributedPipeline&&) noexcept;
  DistributedPipeline& operator=(DistributedPipeline&&) noexcept;

  /// Collective. Like Pipeline::step(). Copies of tied weights have the gradient of all uses
  /// afterwards, so that equal optimizers keep them equal. `x` is used on the rank of the first
  /// stage, `y` and `criterion` on the rank of the last one. The last rank gets the loss of the
  /// batch, the others an undefined tensor. A batch must have at least as many samples as there are
  /// micro-batches, unless all ranks pass its size as `samples`. With `samples`, a smaller batch is
  /// split into single samples, and `y` may be undefined if the criterion does not read it. Throws
  /// ConfigError, on the rank that has `x` or `y`, if `samples` is not the size of the batch.
  template <class Criterion>
  torch::Tensor step(Criterion&& criterion, const torch::Tensor& x, const torch::Tensor& y,
                     std::optional<std::int64_t> samples = std::nullopt) {
    return step(std::forward<Criterion>(criterion), x.defined() ? Tensors{x} : Tensors{}, y,
                samples);
  }
  template <class Criterion>
  torch::Tensor step(Criterion&& criterion, const Tensors& x, const torch::Tensor& y,
                     std::optional<std::int64_t> samples = std::nullopt) {
    return step_with(pipeline::detail::loss_of_criterion(criterion), x, y, samples);
  }

  /// Collective. Like Pipeline::forward(). The rank of the last stage gets the outputs, the others
  /// an empty list. `samples` has the same meaning as in step().
  Tensors forward(const Tensors& x, std::optional<std::int64_t> samples = std::nullopt);

  /// Calls train(on) on the modules of this rank's stages.
  void train(bool on = true);
  void eval() { train(false); }

  /// Aborts the pipeline and its group on all ranks, like ProcessGroup::abort(). Call it on a rank
  /// that fails between steps, when its peers may already be waiting for its messages. Over NCCL,
  /// aborting only the group would not reach them.
  void abort(const std::string& reason);

  /// The parameters of this rank's stages, without duplicates.
  Tensors parameters() const;
  const pipeline::Table& table() const;
  /// The actions of this rank in the last step; the rows of the other workers are empty. The
  /// timeline's bubble() and replay() are therefore meaningless; write_trace() covers all ranks. On
  /// a GPU, the call waits for the step to finish on the device, whose times it returns. The
  /// reference is valid until the next step.
  const pipeline::Timeline& timeline() const;
  /// Like Pipeline::step_times().
  std::shared_ptr<const pipeline::StepTimes> step_times() const;
  /// Collective. Rank 0 writes the last step of all ranks to one file for Perfetto or
  /// chrome://tracing, with a row for each rank. Times are converted to rank 0's monotonic clock.
  /// Throws DataError, on all ranks, if the file cannot be written.
  void write_trace(const std::filesystem::path& path);
  /// For each stage of this rank, the largest number of micro-batches whose activations the stage
  /// held at the same time in the last step.
  std::vector<int> peak_activations() const;
  /// The peak bytes of activations in the last step, for each stage of this rank and, as the only
  /// element of `workers`, for the rank. Inputs received from another rank are included. Throws
  /// ConfigError without PipelineOptions::measure_memory.
  ActivationBytes peak_activation_bytes() const;

 private:
  torch::Tensor step_with(const PipelineLoss& loss, const Tensors& x, const torch::Tensor& y,
                          std::optional<std::int64_t> samples);

  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace lockstep
