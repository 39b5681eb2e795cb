#include <lockstep/parallel/pipeline/balance.h>

#include <torch/utils.h>

#include <algorithm>
#include <cstdio>
#include <limits>
#include <numeric>

#include <lockstep/core/clock.h>
#include <lockstep/core/error.h>
#include <lockstep/optim/distinct.h>
#include <lockstep/parallel/pipeline/partition.h>
#include <lockstep/parallel/pipeline/random_scope.h>
#include <lockstep/parallel/pipeline/saved_buffers.h>
#include <lockstep/parallel/pipeline/stage_backward.h>

namespace lockstep {
namespace {

constexpr int kRepeats = 8;  // the first warms up

// Times forward and backward of a layer, whose gradients are added nowhere. The layer gets a tensor
// that it may change in place.
double seconds_of_layer(torch::nn::AnyModule& layer, const torch::Tensor& input,
                        torch::Tensor& output) {
  const torch::AutoGradMode grad(true);
  const Tensors parameters = distinct(layer.ptr()->parameters());
  torch::Tensor x = input.clone();
  const bool differentiable = x.is_floating_point();
  pipeline::GradientSink sink;
  if (differentiable) sink = pipeline::GradientSink::attach(x);
  const Clock::time_point start = Clock::now();
  const torch::Tensor y = layer.forward(x);
  pipeline::StageBackward backward({y}, {sink}, parameters);
  backward.backward({torch::ones_like(y)});
  output = y.detach();
  // Reading an element waits for a GPU's kernels.
  if (!output.is_cpu()) output.flatten().narrow(0, 0, 1).cpu();
  return seconds_since(start);
}

double bytes_of_layer(torch::nn::AnyModule& layer, const torch::Tensor& input,
                      torch::Tensor& output) {
  const torch::NoGradGuard no_grad;
  output = layer.forward(input.clone());
  double bytes = static_cast<double>(output.nbytes());
  for (const torch::Tensor& parameter : distinct(layer.ptr()->parameters())) {
    bytes += static_cast<double>(parameter.nbytes()) * (parameter.requires_grad() ? 2 : 1);
  }
  return bytes;
}

double cost_of(torch::nn::AnyModule& layer, const torch::Tensor& input, BalanceBy by,
               torch::Tensor& output) {
  if (by == BalanceBy::kBytes) return bytes_of_layer(layer, input, output);
  double shortest = std::numeric_limits<double>::infinity();
  for (int repeat = 0; repeat < kRepeats; ++repeat) {
    const double seconds = seconds_of_layer(layer, input, output);
    if (repeat > 0) shortest = std::min(shortest, seconds);
  }
  return shortest;
}

std::string with_digits(double value) {
  char text[32];
  std::snprintf(text, sizeof(text), "%.3g", value);
  return text;
}

}  // namespace

std::string Balance::text() const {
  const double unit = by == BalanceBy::kTime ? 1e-3 : 1 << 20;
  std::vector<std::string> in_units;
  for (const double cost : costs) in_units.push_back(with_digits(cost / unit));
  const double all = std::accumulate(costs.begin(), costs.end(), 0.0);
  const double largest = costs.empty() ? 0 : *std::max_element(costs.begin(), costs.end());
  const double share = all > 0 ? largest * static_cast<double>(costs.size()) / all : 1;
  return str("balance by ", by == BalanceBy::kTime ? "time" : "bytes", ": ", join(sizes, " + "),
             " layers, ", join(in_units, " + "), by == BalanceBy::kTime ? " ms" : " MiB",
             "; the largest stage has ", with_digits(share), " times its share");
}

Balance balance(torch::nn::Sequential net, const torch::Tensor& sample, int stages, BalanceBy by) {
  const pipeline::SavedBuffers buffers(*net);
  Balance result{.by = by};
  try {
    const pipeline::RandomScope random(sample.device(), {.cpu = true, .device = true}, 0);
    torch::Tensor x = sample.detach();
    for (torch::nn::AnyModule& layer : *net) {
      torch::Tensor output;
      result.of_layers.push_back(cost_of(layer, x, by, output));
      x = output;
    }
  } catch (...) {
    buffers.restore();
    throw;
  }
  buffers.restore();
  result.sizes = pipeline::partition(result.of_layers, stages);
  auto layer = result.of_layers.begin();
  for (const int size : result.sizes) {
    result.costs.push_back(std::accumulate(layer, layer + size, 0.0));
    layer += size;
  }
  return result;
}

std::vector<torch::nn::Sequential> split(torch::nn::Sequential net, const std::vector<int>& sizes) {
  const auto layers = static_cast<int>(net->size());
  if (std::any_of(sizes.begin(), sizes.end(), [](int size) { return size < 1; }) ||
      std::accumulate(sizes.begin(), sizes.end(), 0) != layers) {
    throw ConfigError(str("split: sizes ", join(sizes, " + "), " are not those of ", layers,
                          " layers; each stage needs one at least"));
  }
  const auto names = net->named_children().keys();
  std::vector<torch::nn::Sequential> stages;
  auto layer = net->begin();
  auto name = names.begin();
  for (const int size : sizes) {
    torch::nn::Sequential& stage = stages.emplace_back();
    for (int i = 0; i < size; ++i) stage->push_back(std::string(*name++), *layer++);
  }
  return stages;
}

}  // namespace lockstep
