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
// It does with ranks what Pipeline does with threads, by the same tables and stages. The gradients
// are the same, bit for bit, if the default generators of all ranks are seeded alike.
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
#include <lockstep/parallel/pipeline/activation_memory.h>
#include <lockstep/parallel/pipeline/clip_grad_of_ranks.h>
#include <lockstep/parallel/pipeline/pipeline.h>

namespace lockstep {

/// Rank r is worker r of the table and computes on the caller's thread. The pipeline shares its
/// modules, which it moves to the device. All ranks construct it with the same options and make the
/// same calls in the same order. Not thread-safe.
///
/// Messages go over the group. Where that is over NCCL, they go over Gloo, through host memory: a
/// schedule may keep workers from waiting for each other only where sends do not wait, and NCCL's
/// do.
///
/// When a rank fails, or its process dies, the step ends on each other rank when the action that it
/// is in has ended, and the group ends with it. The failed rank throws its own error (see
/// StepFailure), the others a CommError that names that rank.
class DistributedPipeline {
 public:
  /// Collective. `stages` are the stages of this rank, in their order in the model; the constructor
  /// of Pipeline says which stages a worker has. ConfigError, on every rank, where they do not fit
  /// together or the options differ. The ranks tell each other which stages have a whole backward,
  /// because all need one table. Weights that stages of one rank share are tied as Pipeline
  /// ties them. Stages of different ranks have different tensors: if these stand for one weight,
  /// the caller has to add up their gradients, as the Trainer's strategies do. A rank that cannot
  /// use its device, or cannot move its stages there, ends the group on all ranks.
  DistributedPipeline(std::vector<pipeline::StageModule> stages, ProcessGroup group,
                      torch::Device device, const PipelineOptions& options = {});
  ~DistributedPipeline();
  DistributedPipeline(DistributedPipeline&&) noexcept;
  DistributedPipeline& operator=(DistributedPipeline&&) noexcept;

  /// Collective. As Pipeline::step(). `x` is used on the rank of the first stage, `y` and
  /// `criterion` on that of the last, which gets the loss of the batch; the others get an undefined
  /// tensor. A batch has at least as many samples as micro-batches, unless all ranks say how many
  /// `samples` it has: a smaller one then goes through in as many parts as it has samples, and `y`
  /// may be undefined if the criterion does not read it. ConfigError, on the rank that has `x` or
  /// `y`, if `samples` is not the size of the batch.
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

  /// Collective. As Pipeline::forward(). The rank of the last stage gets the outputs, the others an
  /// empty list. `samples` as above.
  Tensors forward(const Tensors& x, std::optional<std::int64_t> samples = std::nullopt);

  void train(bool on = true);
  void eval() { train(false); }

  /// Ends the pipeline and its group on all ranks, as ProcessGroup::abort() does: for a rank that
  /// fails between steps, whose peers may already wait for its messages. Over NCCL an abort of the
  /// group alone would not reach them.
  void abort(const std::string& reason);

  /// The parameters of this rank's stages, each once.
  Tensors parameters() const;
  const pipeline::Table& table() const;
  /// What this rank did in the last step; the lines of the other workers are empty. So a bubble()
  /// or a replay() of it means nothing; write_trace() has all ranks.
  const pipeline::Timeline& timeline() const;
  /// Collective. The last step of all ranks as one file for Perfetto or chrome://tracing, which
  /// rank 0 writes: a row for each rank. Times are those of each host's monotonic clock, which
  /// begins when the host boots. DataError, on all ranks, where it cannot be written.
  void write_trace(const std::filesystem::path& path);
  /// For each stage of this rank the most micro-batches whose activations it held at once in the
  /// last step.
  std::vector<int> peak_activations() const;
  /// The most bytes that the activations of each stage of this rank took at once in the last step,
  /// and, as the only worker, those of the rank. Inputs that another rank has sent count.
  /// ConfigError without PipelineOptions::measure_memory.
  ActivationBytes peak_activation_bytes() const;

 private:
  torch::Tensor step_with(const PipelineLoss& loss, const Tensors& x, const torch::Tensor& y,
                          std::optional<std::int64_t> samples);

  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace lockstep
