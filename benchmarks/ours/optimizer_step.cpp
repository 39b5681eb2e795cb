// Measures the cost of an optimizer step and of zero_grad over flat memory, as
// DistributedDataParallel can allocate it, and over separate tensors:
//
//   optimizer_step [--threads 1] [--device cpu]
//
// Prints medians in microseconds; the two variants alternate. On CPUs ResNet-18 starts with cold
// caches, as after a backward. On `--device cuda`, a step's time ends when the GPU has finished it;
// the time for its launch is printed as well.
#include <algorithm>
#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

#include <torch/cuda.h>
#include <torch/types.h>

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

NamedTensors in_flat_memory(const Tensors& tensors, torch::Device device) {
  std::int64_t total = 0;
  for (const auto& tensor : tensors) total += padded(tensor);
  const auto parameters = torch::zeros({total}, device);
  const auto gradients = torch::zeros({total}, device);
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

NamedTensors alone(const Tensors& tensors, torch::Device device) {
  NamedTensors named;
  for (const auto& tensor : tensors) {
    named.emplace_back(std::to_string(named.size()),
                       torch::zeros(tensor.sizes(), device).requires_grad_());
    named.back().second.mutable_grad() = torch::zeros(tensor.sizes(), device);
  }
  return named;
}

struct Times {
  std::vector<double> step;
  std::vector<double> zero_grad;
  std::vector<double> launch;  // the host's time until step() returns
};

void wait_for(torch::Device device) {
  if (device.is_cuda()) torch::cuda::synchronize(device.index());
}

double median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + values.size() / 2, values.end());
  return values[values.size() / 2];
}

void time_once(Optimizer& optimizer, torch::Device device, Times& times) {
  wait_for(device);
  auto start = lockstep::Clock::now();
  optimizer.step();
  times.launch.push_back(lockstep::seconds_since(start) * 1e6);
  wait_for(device);
  times.step.push_back(lockstep::seconds_since(start) * 1e6);
  start = lockstep::Clock::now();
  optimizer.zero_grad();
  wait_for(device);
  times.zero_grad.push_back(lockstep::seconds_since(start) * 1e6);
}

struct Work {
  const char* net;
  Tensors tensors;
  int steps;
  bool cold;  // whether caches are flushed before each step
};

void measure(const Work& work, const OptimizerOptions& options, torch::Device device) {
  const NamedTensors parameters[] = {in_flat_memory(work.tensors, device),
                                     alone(work.tensors, device)};
  Optimizer flat(parameters[0], options);
  Optimizer single(parameters[1], options);
  Times flat_times;
  Times single_times;
  std::vector<char> cache(work.cold && device.is_cpu() ? kCacheBytes : 0);
  for (int i = 0; i < work.steps; ++i) {
    std::fill(cache.begin(), cache.end(), static_cast<char>(i));
    time_once(flat, device, flat_times);
    std::fill(cache.begin(), cache.end(), static_cast<char>(i + 1));
    time_once(single, device, single_times);
  }
  std::printf("%-9s %-6s step: flat %8.1f us, single tensors %8.1f us   zero_grad: %7.1f, %7.1f",
              work.net, flat.name().c_str(), median(flat_times.step), median(single_times.step),
              median(flat_times.zero_grad), median(single_times.zero_grad));
  if (device.is_cuda()) {
    std::printf("   launch: %7.1f, %7.1f", median(flat_times.launch), median(single_times.launch));
  }
  std::printf("\n");
}

}  // namespace

int main(int argc, char** argv) {
  int threads = 1;
  std::string device_name = "cpu";
  for (int i = 1; i < argc; ++i) {
    if (!std::strcmp(argv[i], "--threads") && i + 1 < argc)
      threads = std::atoi(argv[++i]);
    else if (!std::strcmp(argv[i], "--device") && i + 1 < argc)
      device_name = argv[++i];
    else
      return std::fprintf(stderr, "error: unknown argument %s\n", argv[i]), 2;
  }
  at::set_num_threads(threads);
  const torch::Device device(device_name);
  const Work works[] = {
      {"mnist", lockstep::MnistNet()->parameters(), 2000, false},
      {"resnet18", lockstep::resnet18(lockstep::ResNetStem::kCifar, 10)->parameters(),
       device.is_cpu() ? 60 : 1000, true}};
  for (const OptimizerOptions& options : {OptimizerOptions(lockstep::SgdOptions{.momentum = 0.9}),
                                          OptimizerOptions(lockstep::AdamWOptions{})}) {
    for (const Work& work : works) measure(work, options, device);
  }
}
