// Joins the replicas' outputs on the first device.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include <torch/csrc/autograd/edge.h>
#include <torch/types.h>

namespace lockstep::detail::data_parallel {

/// A tensor joined from one part for each active replica; it also splits a gradient of the tensor
/// into the gradients of the parts.
class GatheredTensor {
 public:
  /// Concatenates the parts along the first dimension; parts without dimensions become a vector.
  /// The result is undefined if all parts are. Throws ConfigError if they differ in dtype, number
  /// of dimensions, or a size other than the first; `number` is the index of the output, for the
  /// error message.
  static GatheredTensor joined(const std::vector<torch::Tensor>& parts, torch::Device device,
                               std::size_t number);
  /// The sum of the parts, each times its share. Throws ConfigError unless each part is a single
  /// number.
  static GatheredTensor weighted_mean(const std::vector<torch::Tensor>& parts,
                                      std::vector<double> shares, torch::Device device);

  /// The joined tensor. It has no graph until attach_backward() gives it one.
  const torch::Tensor& tensor() const { return tensor_; }
  /// The edge through which a gradient enters the graph of a part; invalid if the part has no
  /// graph.
  const torch::autograd::Edge& root(std::size_t part) const { return roots_[part]; }
  /// Whether any part has a graph.
  bool has_roots() const;
  /// Returns the gradient of a part, on the part's device, from the `gradient` of the joined
  /// tensor.
  torch::Tensor gradient_of_part(const torch::Tensor& gradient, std::size_t part) const;
  /// Releases the joined tensor, whose values a backward does not need.
  void drop_tensor() { tensor_.reset(); }

 private:
  enum class Form { kConcatenated, kStacked, kWeightedMean };
  GatheredTensor(Form form, const std::vector<torch::Tensor>& parts);

  Form form_;
  torch::Tensor tensor_;
  std::vector<torch::autograd::Edge> roots_;
  std::vector<torch::Device> devices_;   // one for each part
  std::vector<std::int64_t> first_row_;  // one for each part; kConcatenated
  std::vector<std::int64_t> rows_;       // kConcatenated
  std::vector<double> shares_;           // kWeightedMean
};

}  // namespace lockstep::detail::data_parallel
