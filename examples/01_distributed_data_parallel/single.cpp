// Trains a small network in one process. main.cpp is the same program for many processes: see
// README.md.
#include <cstdio>

#include <torch/torch.h>

constexpr int64_t kSamples = 4096, kFeatures = 20, kClasses = 3, kSteps = 32, kEpochs = 5;

struct NetImpl : torch::nn::Module {
  NetImpl() {
    hidden = register_module("hidden", torch::nn::Linear(kFeatures, 64));
    output = register_module("output", torch::nn::Linear(64, kClasses));
  }
  torch::Tensor forward(torch::Tensor x) { return output(torch::relu(hidden(x))); }

  torch::nn::Linear hidden{nullptr}, output{nullptr};
};
TORCH_MODULE(Net);

int main() {
  torch::set_num_threads(1);
  torch::manual_seed(0);
  // Random points in a space that random planes divide into classes.
  const auto images = torch::randn({kSamples, kFeatures});
  const auto labels = images.matmul(torch::randn({kFeatures, kClasses})).argmax(1);

  Net net;
  auto& model = *net;
  torch::optim::SGD optimizer(net->parameters(), torch::optim::SGDOptions(0.1).momentum(0.9));

  for (int64_t epoch = 0; epoch < kEpochs; ++epoch) {
    auto order = torch::randperm(kSamples, at::detail::createCPUGenerator(epoch));
    for (const auto& rows : order.chunk(kSteps)) {
      optimizer.zero_grad();
      auto loss =
          torch::cross_entropy_loss(model.forward(images.index({rows})), labels.index({rows}));
      loss.backward();
      optimizer.step();
    }
    torch::NoGradGuard no_grad;
    const auto loss = torch::cross_entropy_loss(net->forward(images), labels).item<double>();
    std::printf("epoch %ld: loss %.6f\n", static_cast<long>(epoch + 1), loss);
  }
}
