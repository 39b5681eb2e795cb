// The nets for the comparison with Python's DistributedDataParallel. ddp_oracle.py defines the same
// nets.
#pragma once

#include <algorithm>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <torch/nn/module.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>

#include <lockstep/core/error.h>
#include <lockstep/models/mnist_net.h>
#include <lockstep/models/resnet.h>

namespace lockstep::oracle {

struct Model {
  std::shared_ptr<torch::nn::Module> module;
  /// The loss of a batch in step `step` on rank `rank`. "branches" uses a different branch on each
  /// rank.
  std::function<torch::Tensor(const torch::Tensor& x, std::int64_t step, int rank)> forward;
  double momentum = 0.5;  ///< 0 for sparse gradients
  bool find_unused_parameters = false;
  std::vector<std::string> sparse = {};
};

/// An embedding with sparse gradients.
struct WordsImpl : torch::nn::Module {
  torch::Tensor forward(const torch::Tensor& x) { return head(embedding(x).mean(1)); }
  torch::nn::Embedding embedding = register_module(
      "embedding", torch::nn::Embedding(torch::nn::EmbeddingOptions(100, 16).sparse(true)));
  torch::nn::Linear head = register_module("head", torch::nn::Linear(16, 10));
};

/// In step s, rank r uses branch (r + s) mod 3. The third branch has no layer.
struct BranchesImpl : torch::nn::Module {
  torch::Tensor forward(torch::Tensor x, std::int64_t branch) {
    x = torch::tanh(trunk(x));
    if (branch == 0) x = torch::tanh(left(x));
    if (branch == 1) x = torch::tanh(right(x));
    return head(x);
  }
  torch::nn::Linear trunk = register_module("trunk", torch::nn::Linear(20, 16));
  torch::nn::Linear left = register_module("left", torch::nn::Linear(16, 16));
  torch::nn::Linear right = register_module("right", torch::nn::Linear(16, 16));
  torch::nn::Linear head = register_module("head", torch::nn::Linear(16, 10));
};

/// One weight under two names, used twice.
struct TiedImpl : torch::nn::Module {
  torch::Tensor forward(torch::Tensor x) {
    x = torch::tanh(torch::linear(x, first));
    return head(torch::tanh(torch::linear(x, second)));
  }
  torch::Tensor first = register_parameter("first", torch::empty({20, 20}));
  torch::Tensor second = register_parameter("second", first);
  torch::nn::Linear head = register_module("head", torch::nn::Linear(20, 10));
};

/// Removes duplicates. C++'s parameters() lists a tied weight once per name, and an optimizer would
/// step it as often.
inline std::vector<torch::Tensor> distinct(const std::vector<torch::Tensor>& tensors) {
  std::vector<torch::Tensor> found;
  for (const auto& tensor : tensors) {
    const auto same = [&](const torch::Tensor& other) { return other.is_same(tensor); };
    if (std::none_of(found.begin(), found.end(), same)) found.push_back(tensor);
  }
  return found;
}

template <class Module>
Model plain(std::shared_ptr<Module> module) {
  return {.module = module, .forward = [module](const torch::Tensor& x, std::int64_t, int) {
            return module->forward(x);
          }};
}

inline Model make_model(const std::string& name) {
  // Our fused kernel rounds differently, which would decide near ties of max-pool and ReLU.
  if (name == "mnist") {
    return plain(MnistNet(MnistNetOptions{.dropout = false, .fused_kernels = false}).ptr());
  }
  if (name == "resnet18") return plain(resnet18(ResNetStem::kCifar, 10).ptr());
  if (name == "tied") return plain(std::make_shared<TiedImpl>());
  if (name == "words") {
    Model model = plain(std::make_shared<WordsImpl>());
    model.momentum = 0;
    model.sparse = {"embedding.weight"};
    return model;
  }
  if (name == "branches") {
    auto module = std::make_shared<BranchesImpl>();
    return {.module = module,
            .forward = [module](const torch::Tensor& x, std::int64_t step,
                                int rank) { return module->forward(x, (rank + step) % 3); },
            .find_unused_parameters = true};
  }
  throw ConfigError("there is no model '" + name + "'");
}

}  // namespace lockstep::oracle
