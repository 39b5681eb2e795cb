#include <lockstep/parallel/pipeline/balance.h>

#include <torch/utils.h>

#include <algorithm>
#include <cstdio>
#include <limits>
#include <numeric>

#include <lockstep/core/clock.h>
#include <lockstep/core/error.h>
#include <lockstep/optim/distinct.h>
#include <lockstep/parallel/pipeline/random_scope.h>
#include <lockstep/parallel/pipeline/saved_buffers.h>
#include <lockstep/parallel/pipeline/schedule/partition.h>
#include <lockstep/parallel/pipeline/stage_backward.h>

namespace lockstep {
namespace {

constexpr int kPasses = 6;  // the first is a warm-up

struct TimedLayer {
  Tensors parameters{};
  Tensors sums{};  // gradients of the parameters, summed over the passes
  pipeline::StageBackward backward{};
  torch::Tensor output{};
  double seconds = 0;                                         // in this pass
  double shortest = std::numeric_limits<double>::infinity();  // over all passes but the first
};

// Reads an element of `output`, which waits for a GPU's kernels.
double seconds_of_work(Clock::time_point start, const torch::Tensor& output) {
  if (!output.is_cpu()) output.flatten().narrow(0, 0, 1).cpu();
  return seconds_since(start);
}

// Returns whether the output needs a gradient, because its layer's parameters or its input do.
bool time_forward(torch::nn::AnyModule& layer, const torch::Tensor& input, bool needs_gradient,
                  TimedLayer& timed) {
  const torch::AutoGradMode grad(true);
  torch::Tensor x = input.detach();
  pipeline::GradientSink sink;
  if (needs_gradient) sink = pipeline::GradientSink::attach(x);
  const Clock::time_point start = Clock::now();
  const torch::Tensor y = layer.forward(x);
  timed.output = y.detach();
  timed.seconds = seconds_of_work(start, timed.output);
  timed.backward = pipeline::StageBackward({y}, {sink}, timed.parameters);
  return y.requires_grad();
}

// Accumulates the gradients as a pipeline does over micro-batches, but not in .grad.
void time_backward(TimedLayer& timed) {
  const torch::NoGradGuard no_grad;
  const torch::Tensor gradient = torch::ones_like(timed.output);
  const Clock::time_point start = Clock::now();
  timed.backward.backward({gradient});
  const std::vector<Tensors> gradients = timed.backward.take_tied_gradients();
  timed.sums.resize(gradients.size());
  for (std::size_t k = 0; k < gradients.size(); ++k) {
    for (const torch::Tensor& each : gradients[k]) {
      torch::Tensor& sum = timed.sums[k];
      if (sum.defined()) {
        sum.add_(each);
      } else {
        sum = each.clone();
      }
    }
  }
  timed.seconds += seconds_of_work(start, timed.output);
  timed.backward = {};
}

// Each pass runs forward through all layers and then backward, like a micro-batch: a layer timed in
// isolation would find its weights and activations in the processor's caches.
std::vector<double> times_of_layers(torch::nn::Sequential& net, const torch::Tensor& sample) {
  std::vector<TimedLayer> layers;
  for (torch::nn::AnyModule& layer : *net) {
    layers.push_back({.parameters = optim::distinct(layer.ptr()->parameters())});
  }
  for (int pass = 0; pass < kPasses; ++pass) {
    torch::Tensor x = sample.clone();  // a layer may change its input in place
    bool needs_gradient = false;       // as in training: the sample is data
    auto timed = layers.begin();
    for (torch::nn::AnyModule& layer : *net) {
      needs_gradient = time_forward(layer, x, needs_gradient, *timed);
      x = (timed++)->output;
    }
    for (auto each = layers.rbegin(); each != layers.rend(); ++each) {
      time_backward(*each);
      each->output = torch::Tensor();
      if (pass > 0) each->shortest = std::min(each->shortest, each->seconds);
    }
  }
  std::vector<double> times;
  for (const TimedLayer& each : layers) times.push_back(each.shortest);
  return times;
}

std::vector<double> bytes_of_layers(torch::nn::Sequential& net, const torch::Tensor& sample) {
  const torch::NoGradGuard no_grad;
  std::vector<double> bytes_of_each;
  torch::Tensor x = sample.clone();
  for (torch::nn::AnyModule& layer : *net) {
    x = layer.forward(x);
    double bytes = static_cast<double>(x.nbytes());
    for (const torch::Tensor& parameter : optim::distinct(layer.ptr()->parameters())) {
      bytes += static_cast<double>(parameter.nbytes()) * (parameter.requires_grad() ? 2 : 1);
    }
    bytes_of_each.push_back(bytes);
  }
  return bytes_of_each;
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
    result.of_layers = by == BalanceBy::kTime ? times_of_layers(net, sample.detach())
                                              : bytes_of_layers(net, sample.detach());
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
