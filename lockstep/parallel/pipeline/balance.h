// Splits a torch::nn::Sequential into stages of nearly the same cost.
//
//   const auto choice = lockstep::balance(net, x, 2);
//   std::cout << choice.text() << '\n';
//   auto stages = lockstep::split(net, choice.sizes);
//   lockstep::Pipeline pipe({stages[0], stages[1]}, {torch::kCPU, torch::kCPU});
//
// Like torchgpipe's balance_by_time and balance_by_size (Kim et al., arXiv 2004.09910).
#pragma once

#include <string>
#include <vector>

#include <torch/nn/modules/container/sequential.h>
#include <torch/types.h>

#include <lockstep/core/export.h>

namespace lockstep {

enum class BalanceBy {
  /// The time of a layer's forward and backward: the shortest of a few passes through the whole
  /// net. As in training, no gradient with respect to the sample is computed.
  kTime,
  /// The bytes of a layer's parameters, their gradients, and its outputs for the sample.
  kBytes,
};

struct LOCKSTEP_API Balance {
  BalanceBy by = BalanceBy::kTime;
  std::vector<int> sizes{};         ///< the number of layers of each stage, for split()
  std::vector<double> costs{};      ///< the total cost of each stage's layers, in seconds or bytes
  std::vector<double> of_layers{};  ///< the cost of each layer

  /// One line: "balance by time: 5 + 3 layers, 12.1 + 11.8 ms; the largest stage has 1.01 times its
  /// share".
  std::string text() const;
};

/// Cuts `net` into `stages` stages so that the costliest one costs as little as possible. `sample`
/// is an input of `net`, of the size of a micro-batch, on the module's device. Parameters,
/// gradients, buffers and the default random generators are unchanged. Measuring by time needs
/// memory for the activations of `sample` and for one gradient per parameter. Throws ConfigError if
/// there are fewer layers than stages.
LOCKSTEP_API Balance balance(torch::nn::Sequential net, const torch::Tensor& sample, int stages,
                             BalanceBy by = BalanceBy::kTime);

/// Cuts `net` into one Sequential for each of `sizes`, with that many layers. The results share the
/// modules of `net`, and the layers keep their names, so parameters have the same names as in
/// `net`. Throws ConfigError unless the sizes add up to the number of layers.
LOCKSTEP_API std::vector<torch::nn::Sequential> split(torch::nn::Sequential net,
                                                      const std::vector<int>& sizes);

}  // namespace lockstep
