// What one training step of the MNIST net costs on one thread, without communication and data:
//
//   mnist_step [--plain] [--batch 64] [--steps 300] [--threads 1]
//
// prints medians in milliseconds of each part. --plain composes the net of LibTorch's operations,
// as a user would; benchmarks/peers/mnist_step.py is the same in Python.
#include <algorithm>
#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

#include <torch/torch.h>

#include <lockstep/core/clock.h>
#include <lockstep/models/conv_pool_relu.h>
#include <lockstep/models/mnist_net.h>
#include <lockstep/optim/optimizer.h>

namespace {

using lockstep::Clock;

struct PlainNetImpl : torch::nn::Module {
  torch::Tensor forward(const torch::Tensor& images) {
    auto x = at::relu(at::max_pool2d(conv1->forward(images), 2));
    x = at::relu(at::max_pool2d(at::feature_dropout(conv2->forward(x), 0.5, is_training()), 2));
    x = at::dropout(at::relu(fc1->forward(x.flatten(1))), 0.5, is_training());
    return at::log_softmax(fc2->forward(x), 1);
  }
  torch::nn::Conv2d conv1 = register_module("conv1", torch::nn::Conv2d(1, 10, 5));
  torch::nn::Conv2d conv2 = register_module("conv2", torch::nn::Conv2d(10, 20, 5));
  torch::nn::Linear fc1 = register_module("fc1", torch::nn::Linear(320, 50));
  torch::nn::Linear fc2 = register_module("fc2", torch::nn::Linear(50, 10));
};
TORCH_MODULE(PlainNet);

double median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + values.size() / 2, values.end());
  return values[values.size() / 2];
}

struct Part {
  const char* name;
  std::vector<double> milliseconds{};
};

template <class Net>
void measure(Net net, std::int64_t batch, int steps) {
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

// The convolutional part alone, forward and backward.
void measure_convolutions(std::int64_t batch, int steps) {
  for (const auto& [in, size, out] : {std::tuple{1, 28, 10}, std::tuple{10, 12, 20}}) {
    const auto x = torch::randn({batch, in, size, size}, torch::requires_grad(in > 1));
    const auto w = torch::randn({out, in, 5, 5}, torch::requires_grad());
    const auto b = torch::randn({out}, torch::requires_grad());
    const auto name = std::string("conv ") + std::to_string(in) + "->" + std::to_string(out);
    torch::Tensor y;
    time_alone((name + " forward").c_str(), steps, [&] { y = lockstep::conv_pool_relu(x, w, b); });
    const auto gradient = torch::rand_like(y);
    time_alone((name + " backward").c_str(), steps, [&] {
      torch::autograd::grad({y}, {w, b}, {gradient}, /*retain_graph=*/true);
    });
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
  if (plain) {
    measure(PlainNet(), batch, steps);
  } else {
    measure(lockstep::MnistNet(), batch, steps);
    measure_convolutions(batch, steps);
  }
}
