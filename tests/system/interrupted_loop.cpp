// A training loop written by hand that saves when a signal asks it to stop, and resumes exactly.
// Usage: interrupted_loop FOLDER. It resumes from FOLDER/checkpoint.safetensors if that exists, and
// appends the number of each step to FOLDER/steps. Its exit code after a signal is 128 + signal.
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <fstream>

#include <lockstep/lockstep.h>
#include <torch/nn/functional/loss.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/dropout.h>
#include <torch/nn/modules/linear.h>

namespace {

constexpr std::uint64_t kSeed = 5;
constexpr std::int64_t kEpochs = 30;
constexpr std::int64_t kSamples = 2000;
constexpr std::int64_t kSaveEvery = 20;  // steps

static lockstep::StopRequest stop;

struct NetImpl : torch::nn::Module {
  torch::Tensor forward(const torch::Tensor& images) {
    return output(dropout(torch::relu(norm(hidden(images.flatten(1))))));
  }
  torch::nn::Linear hidden = register_module("hidden", torch::nn::Linear(64, 128));
  torch::nn::BatchNorm1d norm = register_module("norm", torch::nn::BatchNorm1d(128));
  torch::nn::Dropout dropout = register_module("dropout", torch::nn::Dropout(0.5));
  torch::nn::Linear output = register_module("output", torch::nn::Linear(128, 4));
};
TORCH_MODULE(Net);

lockstep::ImageDataset images() {
  const torch::Tensor numbers = torch::arange(kSamples);
  const torch::Tensor pixels = torch::arange(kSamples * 64).mul(37).remainder(251);
  return lockstep::image_dataset(pixels.to(torch::kUInt8).view({kSamples, 1, 8, 8}),
                                 numbers.remainder(4), 4, "numbers");
}

void train(lockstep::ProcessGroup& group, const std::filesystem::path& folder) {
  const std::filesystem::path file = folder / "checkpoint.safetensors";
  torch::manual_seed(kSeed);
  Net net;
  lockstep::Optimizer optimizer(*net, lockstep::AdamWOptions{.lr = 0.01});
  const lockstep::DistributedSampler sampler(
      kSamples, {.rank = group.rank(), .world_size = group.size(), .seed = kSeed});
  lockstep::Loader loader(images(), sampler,
                          {lockstep::RandomHorizontalFlip{}, lockstep::Normalize{{0.5}, {0.3}}},
                          {.batch_size = 20, .threads = 1, .seed = kSeed});
  const std::int64_t steps_per_epoch = loader.steps_per_epoch();
  std::int64_t epoch = 1;
  if (std::filesystem::exists(file)) {
    const auto checkpoint = lockstep::load_checkpoint(file, *net, optimizer.state(), "loop");
    epoch = checkpoint.epoch;
    loader.restore(lockstep::sampler_position(checkpoint.settings));
  }
  lockstep::DistributedDataParallel ddp(net, group);
  std::ofstream steps(folder / "steps", std::ios::app);
  const auto step_of_epoch = [&] { return steps_per_epoch - loader.steps_left(); };
  const auto save = [&] {
    if (group.rank() != 0) return;
    lockstep::save_checkpoint(file, *net, optimizer.state(),
                              {.recipe = "loop",
                               .epoch = epoch,
                               .step = step_of_epoch(),
                               .settings = lockstep::to_settings(loader.position())});
    steps << "saved " << (epoch - 1) * steps_per_epoch + step_of_epoch() << std::endl;
  };
  while (epoch <= kEpochs) {
    lockstep::Batch batch;
    while (loader.next(batch)) {
      const std::int64_t step = step_of_epoch();
      const std::int64_t total = (epoch - 1) * steps_per_epoch + step;
      lockstep::seed_generators(lockstep::step_seed(kSeed, epoch, step, group.rank()), torch::kCPU);
      optimizer.zero_grad();
      torch::nn::functional::cross_entropy(ddp.forward(batch.images), batch.labels).backward();
      optimizer.step();
      if (group.rank() == 0) steps << "step " << total << std::endl;
      torch::Tensor requested = torch::tensor({stop.requested() ? 1 : 0}, torch::kInt32);
      group.all_reduce(requested, lockstep::ReduceOp::kMax);
      if (requested.item<int>() != 0) {
        save();
        group.barrier();  // the file exists before any rank ends
        return;
      }
      if (total % kSaveEvery == 0) save();
    }
    loader.set_epoch(epoch++);  // samplers count from 0
    save();
  }
  group.barrier();
}

}  // namespace

int main(int argc, char** argv) try {
  if (argc != 2) throw lockstep::ConfigError("usage: interrupted_loop FOLDER");
  for (int number : {SIGINT, SIGTERM})
    std::signal(number, [](int signal) { stop.request(signal); });
  torch::set_num_threads(1);
  lockstep::ProcessGroup group = lockstep::init_process_group();
  train(group, argv[1]);
  return stop.signal() == 0 ? 0 : 128 + stop.signal();
} catch (const std::exception& error) {
  std::fprintf(stderr, "error: %s\n", error.what());
  return 1;
}
