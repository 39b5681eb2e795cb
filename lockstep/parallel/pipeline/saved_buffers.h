// A module's buffers, to be put back after a forward that must leave no trace in them.
#pragma once

#include <vector>

#include <torch/nn/module.h>

namespace lockstep::pipeline {

/// Copies of the buffers, such as the running statistics of batch normalisation.
class SavedBuffers {
 public:
  explicit SavedBuffers(const torch::nn::Module& module);

  /// Gives the buffers their values back without raising their versions: a graph may have saved
  /// them, and in training its backward does not read their values. Writes to no buffer on a CPU
  /// that has its value still: another worker's stage may share it and read it now.
  void restore() const;

 private:
  std::vector<torch::Tensor> buffers_;
  std::vector<torch::Tensor> values_;
};

}  // namespace lockstep::pipeline
