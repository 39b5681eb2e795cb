// A hand-written training loop that can stop anywhere and resume exactly. docs/training_loop.md
// explains it. Runs on any number of ranks of one host, including one. The argument is the backend
// (default "auto").
#include <cstdio>
#include <exception>
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
constexpr std::int64_t kShardedEpochs = 4;
constexpr std::int64_t kSaveEvery = 10;  // save after this number of steps

void require(bool holds, const char* what) {
  if (!holds) throw lockstep::Error(std::string("wrong result: ") + what);
}

// 240 images of 1x8x8 in four classes. Each class has its own shade.
lockstep::ImageDataset shades() {
  const torch::Tensor labels = torch::arange(240).remainder(4);
  const torch::Tensor images =
      (labels * 60).to(torch::kUInt8).view({240, 1, 1, 1}).expand({240, 1, 8, 8});
  return lockstep::image_dataset(images.contiguous(), labels, 4, "shades");
}

struct NetImpl : torch::nn::Module {
  torch::Tensor forward(const torch::Tensor& x) {
    return output(dropout(torch::relu(norm(hidden(x.flatten(1))))));
  }
  torch::nn::Linear hidden = register_module("hidden", torch::nn::Linear(64, 32));
  torch::nn::BatchNorm1d norm = register_module("norm", torch::nn::BatchNorm1d(32));
  torch::nn::Dropout dropout = register_module("dropout", torch::nn::Dropout(0.5));
  torch::nn::Linear output = register_module("output", torch::nn::Linear(32, 4));
};
TORCH_MODULE(Net);

lockstep::Loader load(const ProcessGroup& group) {
  return {shades(),
          lockstep::DistributedSampler(
              240, {.rank = group.rank(), .world_size = group.size(), .seed = kSeed}),
          {lockstep::RandomHorizontalFlip{}, lockstep::Normalize{{0.5}, {0.3}}},
          {.batch_size = 20, .threads = 1, .seed = kSeed}};
}

torch::Tensor flat_parameters(const torch::nn::Module& module) {
  std::vector<torch::Tensor> flat;
  for (const auto& parameter : module.parameters()) flat.push_back(parameter.detach().flatten());
  return torch::cat(flat);
}

lockstep::Evaluation evaluate(ProcessGroup& group, Net& net, torch::Device device) {
  const torch::NoGradGuard no_grad;
  net->eval();
  lockstep::Loader loader(shades(), lockstep::EvaluationSampler(240, group.rank(), group.size()),
                          {lockstep::Normalize{{0.5}, {0.3}}}, {.batch_size = 30, .threads = 1});
  lockstep::Metrics metrics;
  for (const lockstep::Batch& batch : loader) {
    const torch::Tensor output = net->forward(batch.images);
    metrics.add("loss", cross_entropy(output, batch.labels), batch.size);
    metrics.add_sum("accuracy", (output.argmax(1) == batch.labels).sum(), batch.size,
                    lockstep::MetricUnit::kFraction);
  }
  // the mean over the samples of all ranks, however many each had
  metrics.all_reduce(group, device);
  net->train();
  return metrics.mean();
}

// Trains to the end or for `most_steps`, starting from `file` if it exists. Writes `file` every few
// steps, after each epoch and at the end. Returns the parameters.
torch::Tensor train(ProcessGroup& group, const std::filesystem::path& file,
                    std::int64_t most_steps) {
  const torch::Device device = torch::kCPU;
  const lockstep::Precision precision =
      device.is_cpu() ? lockstep::Precision::k32 : lockstep::Precision::kBf16;
  torch::manual_seed(kSeed);
  Net net;
  lockstep::Optimizer optimizer(*net, lockstep::AdamWOptions{.lr = 0.01});
  lockstep::Loader loader = load(group);
  const std::int64_t steps_per_epoch = loader.steps_per_epoch();
  const lockstep::ScheduleOptions schedule{.kind = lockstep::ScheduleKind::kCosine,
                                           .warmup_epochs = 0.5};

  std::int64_t epoch = 1;  // counted from 1, as in a checkpoint
  std::int64_t step = 0;   // steps of the epoch
  if (std::filesystem::exists(file)) {
    const auto checkpoint =
        lockstep::load_checkpoint(file, *net, optimizer.state(), "training_loop");
    epoch = checkpoint.epoch;
    loader.restore(lockstep::sampler_position(checkpoint.settings));
    step = steps_per_epoch - loader.steps_left();  // counted in batches of this run
  }
  DistributedDataParallel ddp(net, group);  // after the parameters have been loaded

  const auto save = [&] {
    if (group.rank() != 0) return;  // replicas are equal
    lockstep::save_checkpoint(file, *net, optimizer.state(),
                              {.recipe = "training_loop",
                               .epoch = epoch,
                               .step = step,
                               .settings = lockstep::to_settings(loader.position())});
  };

  std::int64_t done = 0;
  while (epoch <= kEpochs && done < most_steps) {
    lockstep::Batch batch;
    while (done < most_steps && loader.next(batch)) {
      const std::int64_t total = (epoch - 1) * steps_per_epoch + step;
      optimizer.scale_lr(lockstep::learning_rate_factor(schedule, total, steps_per_epoch,
                                                        kEpochs * steps_per_epoch));
      lockstep::seed_generators(lockstep::step_seed(kSeed, epoch, step, group.rank()), device);
      optimizer.zero_grad();
      torch::Tensor loss;
      {
        const lockstep::AutocastScope autocast(precision, device.type());
        loss = cross_entropy(ddp.forward(batch.images), batch.labels);
      }
      loss.backward();
      lockstep::clip_grad_norm_(optimizer.parameters(), /*max_norm=*/1.0);
      optimizer.step();
      ++step;
      ++done;
      if (done % kSaveEvery == 0) save();
    }
    if (loader.steps_left() == 0) {  // otherwise the run stops within the epoch
      require(step == steps_per_epoch, "an epoch ends where its data ends");
      loader.set_epoch(epoch);  // the next epoch: samplers count from 0
      ++epoch;
      step = 0;
    }
    save();
  }
  group.barrier();  // wait until the file exists

  if (epoch > kEpochs) {
    ddp.core().broadcast_buffers();  // all ranks evaluate with rank 0's running statistics
    const lockstep::Evaluation evaluation = evaluate(group, net, device);
    require(evaluation.samples == 240 && evaluation.loss < 1, "the net has learnt the shades");
  }
  return flat_parameters(*net);
}

// Like train(), with a sharded optimizer and a file that only rank 0 can see.
torch::Tensor train_sharded(ProcessGroup& group, const std::filesystem::path& file,
                            std::int64_t most_steps) {
  torch::manual_seed(kSeed);
  Net net;
  const lockstep::AdamWOptions options{.lr = 0.01};
  lockstep::Loader loader = load(group);

  std::int64_t epoch = 1;
  lockstep::SamplerPosition position;
  lockstep::NamedTensors state;  // state of all parameters, on rank 0
  if (group.rank() == 0 && std::filesystem::exists(file)) {
    state = lockstep::Optimizer(*net, options).state();  // provides names and shapes
    const auto checkpoint = lockstep::load_checkpoint(file, *net, state, "sharded");
    epoch = checkpoint.epoch;
    position = lockstep::sampler_position(checkpoint.settings);
  }
  position.sampler = group.broadcast_object(position.sampler);
  auto numbers = torch::tensor({epoch, position.epoch, position.taken}, torch::kInt64);
  group.broadcast(numbers, /*root=*/0);
  epoch = numbers[0].item<std::int64_t>();
  position.epoch = numbers[1].item<std::int64_t>();
  position.taken = numbers[2].item<std::int64_t>();
  const bool resumes = !position.sampler.empty();
  if (resumes) loader.restore(position);
  std::int64_t step = loader.steps_per_epoch() - loader.steps_left();

  DistributedDataParallel ddp(net, group, {.parameter_memory = lockstep::ParameterMemory::kFlat});
  lockstep::ZeroRedundancyOptimizer optimizer(ddp.core(), *net, options);
  if (resumes) optimizer.load_state_dict(state);  // sends each rank its shard

  std::int64_t done = 0;
  while (epoch <= kShardedEpochs && done < most_steps) {
    lockstep::Batch batch;
    while (done < most_steps && loader.next(batch)) {
      lockstep::seed_generators(lockstep::step_seed(kSeed, epoch, step, group.rank()), torch::kCPU);
      optimizer.zero_grad();
      cross_entropy(ddp.forward(batch.images), batch.labels).backward();
      optimizer.clip_grad_norm(1.0);
      optimizer.step();
      ++step;
      ++done;
    }
    if (loader.steps_left() == 0) {
      loader.set_epoch(epoch);
      ++epoch;
      step = 0;
    }
  }

  const lockstep::NamedTensors whole = optimizer.state_dict();  // collective; rank 0 gets it
  if (group.rank() == 0) {
    lockstep::save_checkpoint(file, *net, whole,
                              {.recipe = "sharded",
                               .epoch = epoch,
                               .step = step,
                               .settings = lockstep::to_settings(loader.position())});
  }
  group.barrier();
  return flat_parameters(*net);
}

// The two nets of a GAN; the checkpoint has names such as "critic.hidden.weight".
struct NetsImpl : torch::nn::Module {
  Net generator = register_module("generator", Net());
  Net critic = register_module("critic", Net());
};
TORCH_MODULE(Nets);

// The parameters of one net under the names that they have in the whole module.
lockstep::NamedTensors parameters_of(const torch::nn::Module& module, const std::string& net) {
  lockstep::NamedTensors parameters = lockstep::trainable_parameters(module);
  std::erase_if(parameters, [&](const auto& entry) { return !entry.first.starts_with(net + "."); });
  return parameters;
}

// Trains two nets with two optimizers, starting from `file` if it exists, and writes `file`.
// Returns everything that was saved as one tensor.
torch::Tensor train_two_nets(ProcessGroup& group, const std::filesystem::path& file, int steps) {
  torch::manual_seed(kSeed);
  Nets nets;
  lockstep::Optimizer generator_optimizer(parameters_of(*nets, "generator"),
                                          lockstep::AdamOptions{.lr = 1e-3});
  lockstep::Optimizer critic_optimizer(parameters_of(*nets, "critic"),
                                       lockstep::AdamOptions{.lr = 4e-3});
  const auto training_state = [&] {
    lockstep::NamedTensors state = generator_optimizer.state();
    for (const auto& entry : critic_optimizer.state()) state.push_back(entry);
    return state;
  };
  std::int64_t step = 0;
  if (std::filesystem::exists(file)) {
    step = lockstep::load_checkpoint(file, *nets, training_state(), "two_nets").step;
  }
  DistributedDataParallel generator(nets->generator, group);
  DistributedDataParallel critic(nets->critic, group);
  for (int i = 0; i < steps; ++i, ++step) {
    lockstep::seed_generators(lockstep::step_seed(kSeed, 1, step, group.rank()), torch::kCPU);
    critic_optimizer.zero_grad();
    critic.forward(torch::randn({8, 64})).square().mean().backward();
    critic_optimizer.step();
    generator_optimizer.zero_grad();
    generator.forward(torch::randn({8, 64})).square().mean().backward();
    generator_optimizer.step();
  }
  if (group.rank() == 0) {
    lockstep::save_checkpoint(file, *nets, training_state(), {.recipe = "two_nets", .step = step});
  }
  group.barrier();
  std::vector<torch::Tensor> all = {flat_parameters(*nets)};
  for (const auto& entry : training_state()) {
    all.push_back(entry.second.flatten().to(torch::kFloat32));
  }
  return torch::cat(all);
}

}  // namespace

int main(int argc, char** argv) try {
  lockstep::ProcessGroupOptions options;
  if (argc > 1) options.backend = argv[1];
  auto group = lockstep::init_process_group(options);
  torch::set_num_threads(1);
  const std::string id = group.broadcast_object(std::to_string(getpid()), 0);
  const auto folder = std::filesystem::temp_directory_path() / ("lockstep-training-loop-" + id);
  std::filesystem::create_directories(folder);

  const torch::Tensor expected = train(group, folder / "whole.safetensors", /*most_steps=*/1000);
  torch::Tensor got;
  for (int run = 0; run < 15; ++run) {  // stops every 17 steps, within an epoch
    got = train(group, folder / "parts.safetensors", /*most_steps=*/17);
  }
  require(torch::equal(got, expected), "the run in parts is the whole one, to the last bit");

  // Fewer ranks may resume within an epoch: they share the rest of its samples.
  train(group, folder / "fewer.safetensors", /*most_steps=*/1);
  if (auto first = group.new_group({0})) {
    train(*first, folder / "fewer.safetensors", /*most_steps=*/1000);
  }

  const auto sharded_file = folder / "sharded.safetensors";
  const torch::Tensor sharded = train_sharded(group, sharded_file, /*most_steps=*/60);
  for (int run = 0; run < 8; ++run) {
    got = train_sharded(group, folder / "sharded-parts.safetensors", /*most_steps=*/7);
  }
  require(torch::allclose(got, sharded, /*rtol=*/1e-3, /*atol=*/1e-4), "so is a sharded one");

  const torch::Tensor both = train_two_nets(group, folder / "nets.safetensors", /*steps=*/4);
  for (int run = 0; run < 2; ++run) {
    got = train_two_nets(group, folder / "nets-parts.safetensors", /*steps=*/2);
  }
  require(torch::equal(got, both), "two nets and their optimizers go on");

  group.barrier();
  if (group.rank() == 0) {
    std::filesystem::remove_all(folder);
    std::printf("group of %d over %s: all results are right\n", group.size(),
                group.backend().c_str());
  }
} catch (const std::exception& error) {
  std::fprintf(stderr, "error: %s\n", error.what());
  return lockstep::exit_code(error);
}
