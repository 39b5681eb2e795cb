// What an optimizer step and zero_grad cost over flat memory, as DistributedDataParallel can lay it
// out, and over single tensors:
//
//   optimizer_step [--threads 1]
//
// prints medians in microseconds; the two take turns. ResNet-18 begins with cold caches, as after a
// backward.
#include <algorithm>
#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

#include <torch/torch.h>

#include <lockstep/core/clock.h>
#include <lockstep/models/mnist_net.h>
#include <lockstep/models/resnet.h>
#include <lockstep/optim/optimizer.h>

namespace {

using lockstep::NamedTensors;
using lockstep::Optimizer;
using lockstep::OptimizerOptions;
using lockstep::Tensors;

constexpr std::int64_t kAlignedElements = 16;
constexpr std::size_t kCacheBytes = std::size_t{64} << 20;

std::int64_t padded(const torch::Tensor& tensor) {
  return (tensor.numel() + kAlignedElements - 1) / kAlignedElements * kAlignedElements;
}

NamedTensors in_flat_memory(const Tensors& tensors) {
  std::int64_t total = 0;
  for (const auto& tensor : tensors) total += padded(tensor);
  const auto parameters = torch::zeros({total});
  const auto gradients = torch::zeros({total});
  NamedTensors named;
  std::int64_t offset = 0;
  for (const auto& tensor : tensors) {
    const auto view = [&](const torch::Tensor& flat) {
      return flat.narrow(0, offset, tensor.numel()).view(tensor.sizes()).detach();
    };
    named.emplace_back(std::to_string(named.size()), view(parameters).requires_grad_());
    named.back().second.mutable_grad() = view(gradients);
    offset += padded(tensor);
  }
  return named;
}

NamedTensors alone(const Tensors& tensors) {
  NamedTensors named;
  for (const auto& tensor : tensors) {
    named.emplace_back(std::to_string(named.size()),
                       torch::zeros_like(tensor.detach()).requires_grad_());
    named.back().second.mutable_grad() = torch::zeros_like(tensor.detach());
  }
  return named;
}

struct Times {
  std::vector<double> step;
  std::vector<double> zero_grad;
};

double median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + values.size() / 2, values.end());
  return values[values.size() / 2];
}

void time_once(Optimizer& optimizer, Times& times) {
  auto start = lockstep::Clock::now();
  optimizer.step();
  times.step.push_back(lockstep::seconds_since(start) * 1e6);
  start = lockstep::Clock::now();
  optimizer.zero_grad();
  times.zero_grad.push_back(lockstep::seconds_since(start) * 1e6);
}

void measure(const char* net, const Tensors& tensors, const OptimizerOptions& options, int steps,
             bool cold) {
  const NamedTensors parameters[] = {in_flat_memory(tensors), alone(tensors)};
  Optimizer flat(parameters[0], options);
  Optimizer single(parameters[1], options);
  Times flat_times;
  Times single_times;
  std::vector<char> cache(cold ? kCacheBytes : 0);
  for (int i = 0; i < steps; ++i) {
    std::fill(cache.begin(), cache.end(), static_cast<char>(i));
    time_once(flat, flat_times);
    std::fill(cache.begin(), cache.end(), static_cast<char>(i + 1));
    time_once(single, single_times);
  }
  std::printf("%-9s %-6s step: flat %8.1f us, single tensors %8.1f us   zero_grad: %7.1f, %7.1f\n",
              net, flat.name().c_str(), median(flat_times.step), median(single_times.step),
              median(flat_times.zero_grad), median(single_times.zero_grad));
}

}  // namespace

int main(int argc, char** argv) {
  int threads = 1;
  for (int i = 1; i < argc; ++i) {
    if (!std::strcmp(argv[i], "--threads") && i + 1 < argc)
      threads = std::atoi(argv[++i]);
    else
      return std::fprintf(stderr, "error: unknown argument %s\n", argv[i]), 2;
  }
  at::set_num_threads(threads);
  const Tensors mnist = lockstep::MnistNet()->parameters();
  const Tensors resnet = lockstep::resnet18(lockstep::ResNetStem::kCifar, 10)->parameters();
  for (const OptimizerOptions& options : {OptimizerOptions(lockstep::SgdOptions{.momentum = 0.9}),
                                          OptimizerOptions(lockstep::AdamWOptions{})}) {
    measure("mnist", mnist, options, 2000, false);
    measure("resnet18", resnet, options, 60, true);
  }
}
