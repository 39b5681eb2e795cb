// Synchronised batch normalisation with a device's own kernels, which never block the host.
// Internal to sync_batch_norm.cpp.
#pragma once

#include <torch/types.h>

#include <lockstep/comm/group/process_group.h>

namespace lockstep::sync_batch_norm_kernels {

/// Statistics of all ranks' batches, in the form that LibTorch's kernels take.
struct Statistics {
  torch::Tensor mean;     ///< [C], at least float32
  torch::Tensor inverse;  ///< [C], 1 / sqrt(variance + eps)
  torch::Tensor counts;   ///< [ranks], int32: values per channel
};

/// Whether the kernels handle `input`: on every device but the CPU.
inline bool are_for(const torch::Tensor& input) { return !input.is_cpu(); }

/// Returns `tensor` as a dense tensor in a layout for which the kernels are fast: channels last or
/// contiguous.
torch::Tensor laid_out(const torch::Tensor& tensor);

/// Collective. `input` [N, C, ...] comes from laid_out(). Updates the running statistics, which may
/// be undefined. The host waits only on a rank with at most one value per channel, to check whether
/// all ranks together have more; if not, it throws ConfigError.
Statistics gather(const torch::Tensor& input, const torch::Tensor& running_mean,
                  const torch::Tensor& running_var, double momentum, double eps,
                  ProcessGroup& group);

/// `weight` and `bias` may be undefined.
torch::Tensor normalise(const torch::Tensor& input, const torch::Tensor& weight,
                        const torch::Tensor& bias, const Statistics& statistics, double eps);

struct Gradients {
  torch::Tensor input;
  torch::Tensor weight;  ///< this rank's part of the sum, as is `bias`
  torch::Tensor bias;
};

/// Collective. `input` is the one passed to gather().
Gradients backward(const torch::Tensor& gradient, const torch::Tensor& input,
                   const torch::Tensor& weight, const Statistics& statistics, ProcessGroup& group);

}  // namespace lockstep::sync_batch_norm_kernels
