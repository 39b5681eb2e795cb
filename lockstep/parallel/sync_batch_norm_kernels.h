// The arithmetic of synchronised batch normalisation by a device's own kernels, which never make
// the host wait. Internal to sync_batch_norm.cpp.
#pragma once

#include <torch/types.h>

#include <lockstep/comm/group/process_group.h>

namespace lockstep::sync_batch_norm_kernels {

/// Statistics of all ranks' batches, as LibTorch's kernels take them.
struct Statistics {
  torch::Tensor mean;     ///< [C], at least float32
  torch::Tensor inverse;  ///< [C], 1 / sqrt(variance + eps)
  torch::Tensor counts;   ///< [ranks], int32: values of each channel
};

/// Whether the kernels are used for `input`: on every device but the CPU.
inline bool are_for(const torch::Tensor& input) { return !input.is_cpu(); }

/// Dense in the layout that the kernels are fast with: channels last, or contiguous.
torch::Tensor laid_out(const torch::Tensor& tensor);

/// Collective. `input` [N, C, ...] is laid_out(). Moves the running statistics, which may be
/// undefined. The host waits only on a rank that has at most one value for each channel, to see
/// whether all ranks together have more (ConfigError).
Statistics gather(const torch::Tensor& input, const torch::Tensor& running_mean,
                  const torch::Tensor& running_var, double momentum, double eps,
                  ProcessGroup& group);

/// `weight` and `bias` may be undefined.
torch::Tensor normalise(const torch::Tensor& input, const torch::Tensor& weight,
                        const torch::Tensor& bias, const Statistics& statistics, double eps);

struct Gradients {
  torch::Tensor input;
  torch::Tensor weight;  ///< this rank's part of the sum, as `bias`
  torch::Tensor bias;
};

/// Collective. `input` is that of gather().
Gradients backward(const torch::Tensor& gradient, const torch::Tensor& input,
                   const torch::Tensor& weight, const Statistics& statistics, ProcessGroup& group);

}  // namespace lockstep::sync_batch_norm_kernels
