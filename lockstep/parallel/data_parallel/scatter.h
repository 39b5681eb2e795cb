// A batch, shared out to the replicas.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include <torch/types.h>

namespace lockstep::data_parallel {

/// The tensors of a batch in parts, one for each replica: rows of its first dimension. A tensor
/// without dimensions, and an undefined one, goes to every replica. On the batch's own device a
/// part is a view. Parts of tensors that require gradients are leaves of the replica's own graph.
class Scatter {
 public:
  /// ConfigError if no tensor has a first dimension, if those that have one differ in it, or if it
  /// is 0.
  Scatter(const std::vector<torch::Tensor>& batch, const std::vector<torch::Device>& devices,
          const std::vector<double>& weights);

  std::int64_t samples() const { return samples_; }
  /// The number of samples of each replica. 0: it gets nothing and rests.
  const std::vector<std::int64_t>& sizes() const { return sizes_; }
  /// The replicas that get something, in ascending order.
  const std::vector<std::size_t>& active() const { return active_; }
  /// A replica's tensors, in the order of the batch; empty for a replica that rests.
  const std::vector<torch::Tensor>& part(std::size_t replica) const { return parts_[replica]; }
  /// The places in the batch of the tensors that need gradients.
  const std::vector<std::size_t>& differentiable() const { return differentiable_; }
  const torch::Tensor& whole(std::size_t place) const { return batch_[place]; }

 private:
  std::vector<torch::Tensor> batch_;
  std::int64_t samples_ = 0;
  std::vector<std::int64_t> sizes_;
  std::vector<std::size_t> active_;
  std::vector<std::vector<torch::Tensor>> parts_;
  std::vector<std::size_t> differentiable_;
};

}  // namespace lockstep::data_parallel
