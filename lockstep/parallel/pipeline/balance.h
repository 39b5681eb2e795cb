// Splits a torch::nn::Sequential into stages of nearly the same cost.
//
//   const auto choice = lockstep::balance(net, x, 2);
//   std::cout << choice.text() << '\n';
//   auto stages = lockstep::split(net, choice.sizes);
//   lockstep::Pipeline pipe({stages[0], stages[1]}, {torch::kCPU, torch::kCPU});
//
// As torchgpipe's balance_by_time and balance_by_size (Kim et al., arXiv 2004.09910).
#pragma once

#include <string>
#include <vector>

#include <torch/nn/modules/container/sequential.h>
#include <torch/types.h>

namespace lockstep {

enum class BalanceBy {
  /// A layer's forward and backward, measured with the others' in a few passes through the net: the
  /// shortest. As in training, no gradient of the sample is computed.
  kTime,
  /// A layer's parameters, their gradients, and its outputs for the sample.
  kBytes,
};

struct Balance {
  BalanceBy by = BalanceBy::kTime;
  std::vector<int> sizes{};         ///< for each stage the number of its layers, for split()
  std::vector<double> costs{};      ///< for each stage the sum of its layers, in seconds or bytes
  std::vector<double> of_layers{};  ///< the cost of each layer

  /// One line: "balance by time: 5 + 3 layers, 12.1 + 11.8 ms; the largest stage has 1.01 times its
  /// share".
  std::string text() const;
};

/// Cuts `net` so that the costliest of `stages` stages costs as little as it can. `sample` is an
/// input of `net`, of the size of a micro-batch, on the module's device. Parameters, gradients,
/// buffers and the default generators of random numbers stay as they are. By time it takes memory
/// for the activations of `sample` and one gradient of each parameter while it measures.
/// ConfigError for fewer layers than stages.
Balance balance(torch::nn::Sequential net, const torch::Tensor& sample, int stages,
                BalanceBy by = BalanceBy::kTime);

/// Cuts `net` into one Sequential for each of `sizes`, with that many layers. They share the
/// modules of `net`, and the layers keep their names, so that parameters are called as in `net`.
/// ConfigError unless the sizes add up to the number of layers.
std::vector<torch::nn::Sequential> split(torch::nn::Sequential net, const std::vector<int>& sizes);

}  // namespace lockstep
