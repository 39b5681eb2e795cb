// Batch normalisation over the batches of all ranks: the statistics are those of the whole batch.
//
// A rank normalises with the mean and variance of its own few samples otherwise, which hurts when a
// batch per rank is small. In PyTorch this is torch.nn.SyncBatchNorm, for CUDA only; here it is for
// any device, exact for batches of different sizes, and changes no module: the BatchNorm objects
// that a module holds and calls stay, with their names and in its checkpoints.
//
//   auto synchronized = lockstep::convert_sync_batchnorm(*net, group);   // while this lives
//
// or DdpOptions::sync_batch_norm.
#pragma once

#include <memory>

#include <torch/nn/module.h>

#include <lockstep/comm/group/process_group.h>

namespace lockstep {

/// While it lives, the batch normalisations that it was made for are synchronised. Movable. Must be
/// destroyed outside of their forward.
class SyncBatchNorm {
 public:
  ~SyncBatchNorm();
  SyncBatchNorm(SyncBatchNorm&&) noexcept;
  SyncBatchNorm& operator=(SyncBatchNorm&&) noexcept;

  /// How many modules.
  std::size_t size() const;

 private:
  friend SyncBatchNorm convert_sync_batchnorm(torch::nn::Module& module, ProcessGroup group);
  class State;
  explicit SyncBatchNorm(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

/// Every BatchNorm1d, 2d and 3d in `module`: from now on a forward in training mode is collective
/// over `group`, and so is its backward; all ranks must run them in one order. Evaluation is as
/// before. ConfigError for one that has neither running statistics nor weights (affine), which
/// nothing tells apart from others. A group of its own (group.new_group) lets them pass other
/// collectives. LibTorch's modules refuse a rank's input that has just one value for each channel
/// before they come here.
[[nodiscard]] SyncBatchNorm convert_sync_batchnorm(torch::nn::Module& module, ProcessGroup group);

/// One such normalisation, as torch.nn.functional.batch_norm in training. Collective. `input` [N,
/// C, ...]; N may differ between the ranks, and be 0. `weight`, `bias` and the running statistics,
/// [C], may be undefined. Statistics are combined in float64 (Chan, Golub, LeVeque 1979); the
/// running variance is the unbiased one, as PyTorch's. Gradients of weight and bias are this rank's
/// part of the sum. A backward with create_graph can be differentiated again, as often as wanted
/// (penalties on gradients); it and the backward through it are collective like the first.
/// ConfigError when the ranks together have no more than one value for each channel.
torch::Tensor sync_batch_norm(const torch::Tensor& input, const torch::Tensor& weight,
                              const torch::Tensor& bias, const torch::Tensor& running_mean,
                              const torch::Tensor& running_var, double momentum, double eps,
                              const ProcessGroup& group);

}  // namespace lockstep
