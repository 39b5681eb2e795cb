// Batch normalisation over the batches of all ranks, with the statistics of the whole batch.
//
// Without it, a rank normalises with the mean and variance of its own few samples, which hurts when
// the batch per rank is small. PyTorch's equivalent is torch.nn.SyncBatchNorm, for CUDA only. This
// one works on any device, is exact for batches of different sizes, and replaces no module: the
// BatchNorm objects stay in place and keep their names, also in checkpoints.
//
//   auto synchronized = lockstep::convert_sync_batchnorm(*net, group);   // while this lives
//
// or DdpOptions::sync_batch_norm.
#pragma once

#include <memory>

#include <torch/nn/module.h>

#include <lockstep/comm/group/process_group.h>
#include <lockstep/core/export.h>

namespace lockstep {

/// Synchronises the batch normalisations that it was made for, as long as it lives. Movable. Must
/// not be destroyed during their forward.
class LOCKSTEP_API SyncBatchNorm {
 public:
  ~SyncBatchNorm();
  SyncBatchNorm(SyncBatchNorm&&) noexcept;
  SyncBatchNorm& operator=(SyncBatchNorm&&) noexcept;

  /// The number of synchronised modules.
  std::size_t size() const;

 private:
  friend SyncBatchNorm convert_sync_batchnorm(torch::nn::Module& module, ProcessGroup group);
  class State;
  explicit SyncBatchNorm(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

/// Synchronises every BatchNorm1d, 2d and 3d in `module`, and those of programs (program.h): from
/// now on a forward in training mode, and its backward, are collective over `group`, and all ranks
/// must run them in the same order. Evaluation is unchanged. Throws ConfigError for a module with
/// neither running statistics nor weights (affine), because its calls cannot be distinguished from
/// those of others. Pass a separate group (group.new_group()) to let these collectives overtake
/// others. LibTorch's own modules reject an input with just one value per channel on a rank before
/// it gets here.
[[nodiscard]] LOCKSTEP_API SyncBatchNorm convert_sync_batchnorm(torch::nn::Module& module,
                                                                ProcessGroup group);

/// One synchronised normalisation, like torch.nn.functional.batch_norm in training. Collective.
/// `input` is [N, C, ...]; N may differ between the ranks and may be 0. `weight`, `bias` and the
/// running statistics are [C] and may be undefined. Statistics are combined in float64 (Chan,
/// Golub, LeVeque 1979); the running variance is the unbiased one, as in PyTorch. The gradients of
/// weight and bias are this rank's part of the sum. A backward with create_graph can be
/// differentiated again, any number of times (gradient penalties); it and the backward through it
/// are collective like the first. Throws ConfigError if all ranks together have at most one value
/// per channel.
LOCKSTEP_API torch::Tensor sync_batch_norm(const torch::Tensor& input, const torch::Tensor& weight,
                                           const torch::Tensor& bias,
                                           const torch::Tensor& running_mean,
                                           const torch::Tensor& running_var, double momentum,
                                           double eps, const ProcessGroup& group);

}  // namespace lockstep
