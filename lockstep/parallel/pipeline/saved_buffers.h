// Saves a module's buffers and restores them after a forward that must not change them.
#pragma once

#include <vector>

#include <torch/nn/module.h>

namespace lockstep::pipeline {

/// Copies of the buffers, such as the running statistics of batch normalisation.
class SavedBuffers {
 public:
  explicit SavedBuffers(const torch::nn::Module& module);

  /// Restores the values of the buffers without raising their version counters: a graph may have
  /// saved the buffers, and in training its backward does not read their values. Does not write to
  /// a CPU buffer whose value is unchanged, because another worker's stage may share it and be
  /// reading it.
  void restore() const;

 private:
  std::vector<torch::Tensor> buffers_;
  std::vector<torch::Tensor> values_;
};

}  // namespace lockstep::pipeline
