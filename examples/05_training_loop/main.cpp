// A training loop written by hand that stops anywhere and goes on as if it had not:
// docs/training_loop.md explains it. Runs on any number of ranks of one host, one too. Its argument is
// the backend, "auto" where there is none.
#include <cstdio>
#include <filesystem>
#include <string>
#include <vector>

#include <lockstep/lockstep.h>
#include <torch/torch.h>

using lockstep::DistributedDataParallel;
using lockstep::ProcessGroup;
using torch::nn::functional::cross_entropy;

namespace {

constexpr std::uint64_t kSeed = 1;
constexpr std::int64_t kEpochs = 20;

void require(bool holds, const char* what) {
  if (!holds) throw lockstep::Error(std::string("wrong result: ") + what);
}

// 240 images of 1x8x8 in four classes, each a shade of its class.
lockstep::ImageDataset shades() {
  const torch::Tensor labels = torch::arange(240).remainder(4);
  const torch::Tensor images = (labels * 60).to(torch::kUInt8).view({240, 1, 1, 1}).expand({240, 1, 8, 8});
  return lockstep::image_dataset(images.contiguous(), labels, 4, "shades");
}

struct NetImpl : torch::nn::Module {
  torch::Tensor forward(const torch::Tensor& x) { return output(dropout(torch::relu(norm(hidden(x.flatten(1)))))); }
  torch::nn::Linear hidden = register_module("hidden", torch::nn::Linear(64, 32));
  torch::nn::BatchNorm1d norm = register_module("norm", torch::nn::BatchNorm1d(32));
  torch::nn::Dropout dropout = register_module("dropout", torch::nn::Dropout(0.5));
  torch::nn::Linear output = register_module("output", torch::nn::Linear(32, 4));
};
TORCH_MODULE(Net);

lockstep::Loader load(const ProcessGroup& group, std::int64_t batch_size) {
  return {shades(),
          lockstep::DistributedSampler(240, {.rank = group.rank(), .world_size = group.size(), .seed = kSeed}),
          {lockstep::RandomHorizontalFlip{}, lockstep::Normalize{{0.5}, {0.3}}},
          {.batch_size = batch_size, .threads = 1, .seed = kSeed}};
}

lockstep::Evaluation evaluate(ProcessGroup& group, Net& net, torch::Device device) {
  const torch::NoGradGuard no_grad;
  net->eval();
  lockstep::Loader loader = load(group, 30);
  lockstep::MetricSums sums;
  for (const lockstep::Batch& batch : loader) {
    const torch::Tensor output = net->forward(batch.images);
    sums.add(cross_entropy(output, batch.labels) * batch.size, (output.argmax(1) == batch.labels).sum(), batch.size);
  }
  sums.all_reduce(group, device);  // the mean over the samples of all ranks, however many each had
  net->train();
  return sums.mean();
}

// Trains from `file`, if it is there, to the end, or for `most_steps`, and writes `file`. Returns the
// parameters.
torch::Tensor train(ProcessGroup& group, const std::filesystem::path& file, std::int64_t most_steps) {
  const torch::Device device = torch::kCPU;
  torch::manual_seed(kSeed);
  Net net;
  lockstep::Optimizer optimizer(*net, lockstep::AdamWOptions{.lr = 0.01});
  lockstep::Loader loader = load(group, 20);
  const lockstep::ScheduleOptions schedule{.kind = lockstep::ScheduleKind::kCosine, .warmup_epochs = 0.5};

  std::int64_t epoch = 1;  // counted from 1, as in a checkpoint
  std::int64_t step = 0;   // of the epoch
  if (std::filesystem::exists(file)) {
    const auto checkpoint = lockstep::load_checkpoint(file, *net, optimizer.state(), "training_loop");
    epoch = checkpoint.epoch;
    step = checkpoint.step;
    loader.restore(lockstep::sampler_position(checkpoint.settings));
  }
  DistributedDataParallel ddp(net, group);  // after the parameters have been loaded

  std::int64_t done = 0;
  const std::int64_t steps_per_epoch = loader.steps_per_epoch();
  while (epoch <= kEpochs && done < most_steps) {
    lockstep::Batch batch;
    while (done < most_steps && loader.next(batch)) {
      const std::int64_t total = (epoch - 1) * steps_per_epoch + step;
      optimizer.scale_lr(
          lockstep::learning_rate_factor(schedule, total, steps_per_epoch, kEpochs * steps_per_epoch));
      lockstep::seed_generators(lockstep::step_seed(kSeed, epoch, step, group.rank()), device);
      optimizer.zero_grad();
      torch::Tensor loss;
      {
        const lockstep::AutocastScope autocast(lockstep::Precision::kBf16, device.type());
        loss = cross_entropy(ddp.forward(batch.images), batch.labels);
      }
      loss.backward();
      lockstep::clip_grad_norm_(optimizer.parameters(), /*max_norm=*/1.0);
      optimizer.step();
      ++step;
      ++done;
    }
    if (step < steps_per_epoch) break;  // stopped on the way
    loader.set_epoch(epoch);            // the next one: samplers count from 0
    ++epoch;
    step = 0;
  }

  if (group.rank() == 0) {
    lockstep::save_checkpoint(file, *net, optimizer.state(),
                              {.recipe = "training_loop",
                               .epoch = epoch,
                               .step = step,
                               .settings = lockstep::to_settings(loader.position())});
  }
  group.barrier();  // until the file is there
  if (epoch > kEpochs) {
    const lockstep::Evaluation evaluation = evaluate(group, net, device);
    require(evaluation.samples == 240 && evaluation.loss < 1, "the net has learnt the shades");
  }
  return torch::cat([&] {
    std::vector<torch::Tensor> flat;
    for (const auto& parameter : net->parameters()) flat.push_back(parameter.detach().flatten());
    return flat;
  }());
}

}  // namespace

int main(int argc, char** argv) {
  lockstep::ProcessGroupOptions options;
  if (argc > 1) options.backend = argv[1];
  auto group = lockstep::init_process_group(options);
  torch::set_num_threads(1);
  const std::string id = group.broadcast_object(std::to_string(getpid()), 0);
  const auto folder = std::filesystem::temp_directory_path() / ("lockstep-training-loop-" + id);
  std::filesystem::create_directories(folder);

  const torch::Tensor expected = train(group, folder / "whole.safetensors", /*most_steps=*/1000);
  torch::Tensor got;
  for (int run = 0; run < 15; ++run) {  // stops after each 17 steps, in the middle of an epoch
    got = train(group, folder / "parts.safetensors", /*most_steps=*/17);
  }
  require(torch::equal(got, expected), "the run in parts is the whole one, to the last bit");

  group.barrier();
  if (group.rank() == 0) {
    std::filesystem::remove_all(folder);
    std::printf("group of %d over %s: all results are right\n", group.size(), group.backend().c_str());
  }
}
