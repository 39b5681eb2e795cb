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
// Does what Pipeline does with threads, by the same tables and stages. The gradients are the same,
// bit for bit, if the default generators of all ranks are seeded alike.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include <torch/types.h>

#include <lockstep/comm/process_group.h>
#include <lockstep/parallel/pipeline/pipeline.h>

namespace lockstep {

/// Rank r is worker r of the table. Runs on the caller's thread. Shares its modules, which it moves
/// to the device. All ranks make it with the same options and call the same. Not thread-safe.
///
/// When a rank fails, or its process dies, the step ends on all ranks, and the group with it: the
/// error is the failed rank's own (see StepFailure), elsewhere a CommError that names the rank.
class DistributedPipeline {
 public:
  /// Collective. `stages` are the stages of this rank, in ascending order of the model's; Pipeline
  /// says which schedule has which of them where. ConfigError, on every rank, where they do not fit
  /// together or the options differ. Weights that stages of one rank share are tied as Pipeline
  /// ties them; those of different ranks are different tensors, whose gradients the caller has to
  /// add up.
  DistributedPipeline(std::vector<pipeline::StageModule> stages, ProcessGroup group,
                      torch::Device device, const PipelineOptions& options = {});
  ~DistributedPipeline();
  DistributedPipeline(DistributedPipeline&&) noexcept;
  DistributedPipeline& operator=(DistributedPipeline&&) noexcept;

  /// Collective. As Pipeline::step(). `x` is used on the rank of the first stage, `y` and
  /// `criterion` on that of the last, which gets the loss of the batch; the others get an undefined
  /// tensor. A batch has as many samples as micro-batches at least, unless all ranks say how many
  /// `samples` it has: a smaller one then goes through in as many parts as it has samples.
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

  /// Collective. As Pipeline::forward(); the outputs are on the rank of the last stage, elsewhere
  /// there are none. `samples` as above.
  Tensors forward(const Tensors& x, std::optional<std::int64_t> samples = std::nullopt);

  void train(bool on = true);
  void eval() { train(false); }

  /// Those of this rank's stages, each once.
  Tensors parameters() const;
  const pipeline::Table& table() const;
  /// What this rank did in the last step; the lines of the other workers are empty.
  const pipeline::Timeline& timeline() const;

 private:
  torch::Tensor step_with(const PipelineLoss& loss, const Tensors& x, const torch::Tensor& y,
                          std::optional<std::int64_t> samples);

  class Impl;
  std::unique_ptr<Impl> impl_;
};

/// Collective. Clips by the norm of all gradients of all ranks of `group`, each of which gives the
/// parameters that it alone has, and returns that norm. `norm_type` is positive; infinity is the
/// largest element. As torch.nn.utils.clip_grad_norm_ of all parameters together, up to the order
/// of additions. Not for sparse gradients.
torch::Tensor clip_grad_norm_(const Tensors& parameters, double max_norm, ProcessGroup& group,
                              double norm_type = 2);

}  // namespace lockstep
