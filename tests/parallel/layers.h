// A net and inputs for tests of the reducer.
#pragma once

#include <string>
#include <vector>

#include <torch/nn/module.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/pimpl.h>

namespace lockstep::testing_support {

// Linear layers 4 -> 4. The caller decides which of them run, and in which order.
struct LayersImpl : torch::nn::Module {
  explicit LayersImpl(int count, torch::Dtype dtype = torch::kFloat32) {
    for (int i = 0; i < count; ++i) {
      layers.push_back(
          register_module(std::string(1, static_cast<char>('a' + i)), torch::nn::Linear(4, 4)));
      auto generator = at::detail::createCPUGenerator(static_cast<std::uint64_t>(i) + 1);
      const torch::NoGradGuard no_grad;
      layers.back()->weight.copy_(torch::randn({4, 4}, generator) / 2);
      layers.back()->bias.copy_(torch::randn({4}, generator));
    }
    to(dtype);
  }
  /// `order` lists the layers in the order of use: "abc" runs a first.
  torch::Tensor forward(torch::Tensor x, const std::string& order) {
    for (const char name : order) x = torch::tanh(layers[static_cast<std::size_t>(name - 'a')](x));
    return x;
  }
  std::vector<torch::nn::Linear> layers;
};
TORCH_MODULE(Layers);

inline torch::nn::Linear without_bias(std::int64_t size) {
  return torch::nn::Linear(torch::nn::LinearOptions(size, size).bias(false));
}

inline torch::Tensor input_of(int rank, int step = 0) {
  auto generator = at::detail::createCPUGenerator(static_cast<std::uint64_t>(100 * step + rank));
  return torch::randn({3, 4}, generator);
}

inline void zero_grad(torch::nn::Module& module) { module.zero_grad(); }

}  // namespace lockstep::testing_support
