// Trains one net in four ways: directly, with both forms of DataParallel, and with
// DistributedDataParallel. All four see the same batches and end with the same weights. Runs on any
// number of ranks, including one. Arguments: the backend (default "auto"), and "cuda" to use GPUs
// instead of CPU threads.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <utility>
#include <vector>

#include <lockstep/lockstep.h>
#include <torch/torch.h>

using lockstep::ProcessGroup;
using torch::nn::functional::cross_entropy;

namespace {

constexpr int kSteps = 5;

void require(bool holds, const char* what) {
  if (!holds) throw lockstep::Error(std::string("wrong result: ") + what);
}

// DataParallel clones the net, which therefore derives from Cloneable and registers its layers in
// reset().
struct NetImpl : torch::nn::Cloneable<NetImpl> {
  NetImpl() { NetImpl::reset(); }
  void reset() override {
    conv1 =
        register_module("conv1", torch::nn::Conv2d(torch::nn::Conv2dOptions(3, 16, 3).padding(1)));
    conv2 =
        register_module("conv2", torch::nn::Conv2d(torch::nn::Conv2dOptions(16, 32, 3).padding(1)));
    output = register_module("output", torch::nn::Linear(32 * 8 * 8, 10));
  }
  torch::Tensor forward(const torch::Tensor& images) {
    torch::Tensor x = torch::max_pool2d(torch::relu(conv1(images)), 2);
    x = torch::max_pool2d(torch::relu(conv2(x)), 2);
    return output(x.flatten(1));
  }
  torch::nn::Conv2d conv1{nullptr}, conv2{nullptr};
  torch::nn::Linear output{nullptr};
};
TORCH_MODULE(Net);

// A net on `device`, always with the same weights.
Net make_net(torch::Device device) {
  torch::manual_seed(1);
  Net net;
  net->to(device);
  return net;
}

struct Result {
  std::string name{};
  double step_seconds = 0;
  double loss = 0;  // loss of the last step
  torch::Tensor parameters{};
};

// Trains `net` for a few steps. In each, compute_loss() runs a forward and a backward and returns
// the loss. The first step is not timed.
template <class ComputeLoss>
Result train(std::string name, Net& net, const ComputeLoss& compute_loss) {
  torch::optim::SGD optimizer(net->parameters(), torch::optim::SGDOptions(0.05).momentum(0.9));
  Result result{.name = std::move(name)};
  auto start = std::chrono::steady_clock::now();
  for (int step = 0; step <= kSteps; ++step) {
    if (step == 1) start = std::chrono::steady_clock::now();  // the first step allocates memory
    optimizer.zero_grad();
    const torch::Tensor loss = compute_loss();
    optimizer.step();
    result.loss = loss.item<double>();
  }
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
  result.step_seconds = seconds.count() / kSteps;
  std::vector<torch::Tensor> flat;
  for (const torch::Tensor& parameter : net->parameters())
    flat.push_back(parameter.detach().flatten().cpu());
  result.parameters = torch::cat(flat);
  return result;
}

// The global batch and the devices that each way uses.
struct Setting {
  torch::Tensor x, y;
  std::vector<torch::Device> devices;  // devices of DataParallel's replicas
  torch::Device own_device;            // the device of this rank
};

Result train_alone(const Setting& setting) {
  Net net = make_net(setting.own_device);
  const torch::Tensor x = setting.x.to(setting.own_device), y = setting.y.to(setting.own_device);
  return train("the net by itself", net, [&] {
    auto loss = cross_entropy(net->forward(x), y);
    loss.backward();
    return loss;
  });
}

// The outputs of all replicas are joined on the first device, which computes the loss.
Result train_with_outputs(const Setting& setting) {
  Net net = make_net(setting.devices[0]);
  const torch::Tensor y = setting.y.to(setting.devices[0]);
  lockstep::DataParallel dp(net, setting.devices);
  return train("DataParallel, outputs joined", net, [&] {
    auto loss = cross_entropy(dp.forward(setting.x), y);
    loss.backward();  // the gradients are net's
    return loss;
  });
}

// Each replica computes the loss of its part, and only the losses are joined.
Result train_with_losses(const Setting& setting) {
  Net net = make_net(setting.devices[0]);
  lockstep::DataParallel dp(net, setting.devices);
  const auto criterion = [](const torch::Tensor& output, const torch::Tensor& target) {
    return cross_entropy(output, target);
  };
  return train("DataParallel, losses joined", net, [&] {
    auto loss = dp.loss(criterion, setting.x, setting.y);
    loss.backward();
    return loss;
  });
}

// Each rank is a process with one replica and its part of the batch.
Result train_on_ranks(const Setting& setting, ProcessGroup& group) {
  Net net = make_net(setting.own_device);
  const std::int64_t samples = setting.x.size(0) / group.size();
  const auto part = [&](const torch::Tensor& whole) {
    return whole.narrow(0, group.rank() * samples, samples).to(setting.own_device);
  };
  const torch::Tensor x = part(setting.x), y = part(setting.y);
  lockstep::DistributedDataParallel ddp(net, group);
  Result result = train("DistributedDataParallel", net, [&] {
    auto loss = cross_entropy(ddp.forward(x), y);
    loss.backward();  // returns with averaged gradients
    return loss;
  });
  auto loss = torch::full({1}, result.loss, torch::TensorOptions(setting.own_device));
  group.all_reduce(loss, lockstep::ReduceOp::kAverage);
  result.loss = loss.item<double>();
  return result;
}

}  // namespace

int main(int argc, char** argv) try {
  const bool gpus = argc > 2 && std::string(argv[2]) == "cuda";
  lockstep::ProcessGroupOptions options;
  if (argc > 1) options.backend = argv[1];
  if (gpus) {
    const auto worker = lockstep::worker_environment();
    const int index = worker ? worker->local_rank : 0;
    options.device = torch::Device(torch::kCUDA, static_cast<c10::DeviceIndex>(index));
  }
  auto group = lockstep::init_process_group(options);
  if (!std::getenv("OMP_NUM_THREADS")) {  // launchers set it to each rank's share
    torch::set_num_threads(std::max(1, torch::get_num_threads() / group.local_size()));
  }

  torch::manual_seed(0);
  const std::int64_t samples = 48 * group.size();  // in a global batch
  Setting setting{.x = torch::randn({samples, 3, 32, 32}),
                  .y = torch::randint(10, {samples}, torch::kInt64),
                  .devices = std::vector<torch::Device>(2, torch::Device(torch::kCPU)),
                  .own_device = options.device};
  if (gpus) setting.devices = {torch::Device(torch::kCUDA, 0), torch::Device(torch::kCUDA, 1)};

  const Result results[] = {train_alone(setting), train_with_outputs(setting),
                            train_with_losses(setting), train_on_ranks(setting, group)};
  for (const Result& result : results) {
    const torch::Tensor& expected = results[0].parameters;
    const double difference =
        ((result.parameters - expected).norm() / expected.norm()).item<double>();
    require(difference < 1e-3, "all four end with the same weights");
    require(std::abs(result.loss - results[0].loss) < 1e-3, "and with the same loss");
  }
  group.barrier();
  if (group.rank() != 0) return 0;
  for (const Result& result : results) {
    std::printf("%-30s %8.1f ms a step   loss %.6f\n", result.name.c_str(),
                1e3 * result.step_seconds, result.loss);
  }
  std::printf("group of %d over %s: all results are right\n", group.size(),
              group.backend().c_str());
  return 0;
} catch (const std::exception& error) {
  std::fprintf(stderr, "error: %s\n", error.what());
  return lockstep::exit_code(error);
}
