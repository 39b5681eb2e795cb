// Networks and helpers for the tests of DataParallel.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <ATen/Parallel.h>
#include <gtest/gtest.h>
#include <torch/nn/cloneable.h>
#include <torch/nn/module.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/pimpl.h>

namespace lockstep::testing_support {

inline std::vector<torch::Device> cpus(std::size_t count) {
  return std::vector<torch::Device>(count, torch::Device(torch::kCPU));
}

/// Sets LibTorch's thread count for this thread, and for replicas made during its lifetime.
class ThreadsScope {
 public:
  explicit ThreadsScope(int threads) : former_(at::get_num_threads()) {
    at::set_num_threads(threads);
  }
  ~ThreadsScope() { at::set_num_threads(former_); }
  ThreadsScope(const ThreadsScope&) = delete;
  ThreadsScope& operator=(const ThreadsScope&) = delete;

 private:
  int former_;
};

inline torch::Tensor normal(at::IntArrayRef shape, std::uint64_t seed) {
  auto generator = at::detail::createCPUGenerator(seed);
  return torch::randn(shape, generator);
}

inline torch::Tensor classes(std::int64_t samples, std::int64_t count, std::uint64_t seed) {
  auto generator = at::detail::createCPUGenerator(seed);
  return torch::randint(count, {samples}, generator, torch::kInt64);
}

/// The norm of the difference, relative to the norm of `expected` (at least 1e-2).
inline double difference(const torch::Tensor& got, const torch::Tensor& expected) {
  const auto a = got.detach().to(torch::kFloat64), b = expected.detach().to(torch::kFloat64);
  return ((a - b).norm() / b.norm().clamp_min(1e-2)).item<double>();
}

/// The gradients of a module's parameters; undefined where a parameter has none.
inline std::vector<torch::Tensor> gradients_of_parameters(const torch::nn::Module& module) {
  std::vector<torch::Tensor> gradients;
  for (const torch::Tensor& parameter : module.parameters()) {
    const torch::Tensor& gradient = parameter.grad();
    gradients.push_back(gradient.defined() ? gradient.clone() : gradient);
  }
  return gradients;
}

inline void expect_equal(const std::vector<torch::Tensor>& got,
                         const std::vector<torch::Tensor>& expected, double tolerance,
                         const std::string& what) {
  ASSERT_EQ(got.size(), expected.size()) << what;
  for (std::size_t i = 0; i < got.size(); ++i) {
    ASSERT_EQ(got[i].defined(), expected[i].defined()) << what << ' ' << i;
    if (!got[i].defined()) continue;
    EXPECT_LE(difference(got[i], expected[i]), tolerance) << what << ' ' << i;
  }
}

/// Copies parameters and buffers between modules of the same structure.
inline void copy_state(torch::nn::Module& to, const torch::nn::Module& from) {
  const torch::NoGradGuard no_grad;
  const auto parameters = from.parameters(), buffers = from.buffers();
  for (std::size_t i = 0; i < parameters.size(); ++i) to.parameters()[i].copy_(parameters[i]);
  for (std::size_t i = 0; i < buffers.size(); ++i) to.buffers()[i].copy_(buffers[i]);
}

inline torch::Tensor squared_error(const torch::Tensor& output, const torch::Tensor& target) {
  return torch::mse_loss(output, target);
}

/// Two linear layers, optionally with a batch normalisation between them.
struct SmallNetImpl : torch::nn::Cloneable<SmallNetImpl> {
  explicit SmallNetImpl(bool with_norm = false) : has_norm(with_norm) { SmallNetImpl::reset(); }
  void reset() override {
    first = register_module("first", torch::nn::Linear(4, 8));
    if (has_norm) norm = register_module("norm", torch::nn::BatchNorm1d(8));
    last = register_module("last", torch::nn::Linear(8, 3));
  }
  torch::Tensor forward(const torch::Tensor& x) {
    auto y = first(x);
    if (has_norm) y = norm(y);
    return last(torch::tanh(y));
  }
  bool has_norm;
  torch::nn::Linear first{nullptr}, last{nullptr};
  torch::nn::BatchNorm1d norm{nullptr};
};
TORCH_MODULE(SmallNet);

/// An embedding whose weight is also registered as the decoder's weight.
struct TiedNetImpl : torch::nn::Cloneable<TiedNetImpl> {
  TiedNetImpl() { TiedNetImpl::reset(); }
  void reset() override {
    embedding = register_module("embedding", torch::nn::Embedding(11, 6));
    hidden = register_module("hidden", torch::nn::Linear(6, 6));
    decoder = register_parameter("decoder", embedding->weight);
  }
  torch::Tensor forward(const torch::Tensor& tokens) {
    return torch::linear(torch::tanh(hidden(embedding(tokens).mean(1))), decoder);
  }
  torch::nn::Embedding embedding{nullptr};
  torch::nn::Linear hidden{nullptr};
  torch::Tensor decoder;
};
TORCH_MODULE(TiedNet);

/// Calls a function on the input before its linear layer. The function runs on the replicas'
/// threads.
struct ProbedNetImpl : torch::nn::Cloneable<ProbedNetImpl> {
  using Probe = std::function<torch::Tensor(const torch::Tensor& x)>;
  explicit ProbedNetImpl(Probe given) : probe(std::move(given)) { ProbedNetImpl::reset(); }
  void reset() override { linear = register_module("linear", torch::nn::Linear(4, 3)); }
  torch::Tensor forward(const torch::Tensor& x) { return linear(probe(x)); }
  Probe probe;
  torch::nn::Linear linear{nullptr};
};
TORCH_MODULE(ProbedNet);

}  // namespace lockstep::testing_support
