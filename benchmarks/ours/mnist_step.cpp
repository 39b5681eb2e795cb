// Measures the cost of one training step of the MNIST net on one thread, without communication and
// data loading:
//
//   mnist_step [--plain] [--batch 64] [--steps 300] [--threads 1]
//
// Prints the median of each part in milliseconds. --plain measures a net of LibTorch's operations
// only, as a user would write it. benchmarks/peers/mnist_step.py does the same in Python.
#include <algorithm>
#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

#include <torch/csrc/autograd/autograd.h>
#include <torch/types.h>
#include <torch/utils.h>

#include <lockstep/core/clock.h>
#include <lockstep/models/conv_pool_relu.h>
#include <lockstep/models/mnist_net.h>
#include <lockstep/optim/optimizer.h>

namespace {

using lockstep::Clock;

double median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + values.size() / 2, values.end());
  return values[values.size() / 2];
}

struct Part {
  const char* name;
  std::vector<double> milliseconds{};
};

void measure(lockstep::MnistNet net, std::int64_t batch, int steps) {
  torch::manual_seed(0);
  const auto images = torch::randn({batch, 1, 28, 28});
  const auto labels = torch::randint(10, {batch}, torch::kLong);
  lockstep::Optimizer optimizer(*net, lockstep::SgdOptions{.lr = 0.01, .momentum = 0.5});
  std::vector<Part> parts = {{"zero_grad"}, {"forward"},   {"loss"},
                             {"backward"},  {"optimizer"}, {"step"}};
  for (int i = 0; i < steps; ++i) {
    const auto start = Clock::now();
    auto last = start;
    int part = 0;
    const auto mark = [&] {
      const auto now = Clock::now();
      parts[part++].milliseconds.push_back(
          std::chrono::duration<double, std::milli>(now - last).count());
      last = now;
    };
    optimizer.zero_grad();
    mark();
    const auto output = net->forward(images);
    mark();
    const auto loss = at::nll_loss(output, labels);
    mark();
    loss.backward();
    mark();
    optimizer.step();
    mark();
    last = start;
    mark();
  }
  for (auto& part : parts) std::printf("%-10s %7.3f ms\n", part.name, median(part.milliseconds));
}

template <class Function>
void time_alone(const char* name, int steps, Function&& function) {
  std::vector<double> times;
  for (int i = 0; i < steps; ++i) {
    const auto start = Clock::now();
    function();
    times.push_back(lockstep::seconds_since(start) * 1e3);
  }
  std::printf("  %-28s %7.3f ms\n", name, median(times));
}

// Measures the convolutional part alone, forward and backward.
void measure_convolutions(std::int64_t batch, int steps) {
  for (const auto& [in, size, out] : {std::tuple{1, 28, 10}, std::tuple{10, 12, 20}}) {
    const auto x = torch::randn({batch, in, size, size}, torch::requires_grad(in > 1));
    const auto w = torch::randn({out, in, 5, 5}, torch::requires_grad());
    const auto b = torch::randn({out}, torch::requires_grad());
    const auto name = std::string("conv ") + std::to_string(in) + "->" + std::to_string(out);
    torch::Tensor y;
    time_alone((name + " forward").c_str(), steps,
               [&] { y = lockstep::models::conv_pool_relu(x, w, b); });
    const auto gradient = torch::rand_like(y);
    time_alone((name + " backward").c_str(), steps,
               [&] { torch::autograd::grad({y}, {w, b}, {gradient}, /*retain_graph=*/true); });
  }
}

}  // namespace

int main(int argc, char** argv) {
  std::int64_t batch = 64;
  int steps = 300;
  int threads = 1;
  bool plain = false;
  for (int i = 1; i < argc; ++i) {
    const bool has_value = i + 1 < argc;
    if (!std::strcmp(argv[i], "--plain"))
      plain = true;
    else if (!std::strcmp(argv[i], "--batch") && has_value)
      batch = std::atoi(argv[++i]);
    else if (!std::strcmp(argv[i], "--steps") && has_value)
      steps = std::atoi(argv[++i]);
    else if (!std::strcmp(argv[i], "--threads") && has_value)
      threads = std::atoi(argv[++i]);
    else
      return std::fprintf(stderr, "error: unknown argument %s\n", argv[i]), 2;
  }
  at::set_num_threads(threads);
  std::printf("%s, batch %lld, %d thread(s)\n", plain ? "plain LibTorch" : "Lockstep",
              (long long)batch, threads);
  const lockstep::MnistNetOptions options = {.fused_kernels = !plain};
  measure(lockstep::MnistNet(options), batch, steps);
  if (!plain) measure_convolutions(batch, steps);
}
