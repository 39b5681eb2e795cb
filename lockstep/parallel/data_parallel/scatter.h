// A batch, split among the replicas.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include <torch/types.h>

#include <lockstep/core/export.h>

namespace lockstep::detail::data_parallel {

/// The tensors of a batch, split along the first dimension into one part for each replica. A tensor
/// without dimensions, or an undefined one, goes to every replica. On the batch's own device a part
/// is a view. Parts of tensors that require gradients are leaves of the replica's own graph.
class LOCKSTEP_API Scatter {
 public:
  /// Throws ConfigError if no tensor has a first dimension, if the first dimensions differ, or if
  /// they are 0.
  Scatter(const std::vector<torch::Tensor>& batch, const std::vector<torch::Device>& devices,
          const std::vector<double>& weights);

  std::int64_t samples() const { return samples_; }
  /// The number of samples of each replica; 0 for an idle replica.
  const std::vector<std::int64_t>& sizes() const { return sizes_; }
  /// The replicas that get samples, in ascending order.
  const std::vector<std::size_t>& active() const { return active_; }
  /// A replica's tensors, in the order of the batch; empty for an idle replica.
  const std::vector<torch::Tensor>& part(std::size_t replica) const { return parts_[replica]; }
  /// The indices in the batch of the tensors that need gradients.
  const std::vector<std::size_t>& differentiable() const { return differentiable_; }
  /// The unsplit tensor at index `place` of the batch.
  const torch::Tensor& whole(std::size_t place) const { return batch_[place]; }

 private:
  std::vector<torch::Tensor> batch_;
  std::int64_t samples_ = 0;
  std::vector<std::int64_t> sizes_;
  std::vector<std::size_t> active_;
  std::vector<std::vector<torch::Tensor>> parts_;
  std::vector<std::size_t> differentiable_;
};

}  // namespace lockstep::detail::data_parallel
