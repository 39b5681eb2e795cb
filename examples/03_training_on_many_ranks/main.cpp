// What DistributedDataParallel can do beyond the plain loop, with results checked.
// docs/distributed_data_parallel.md explains it. Runs on any number of ranks, including one. The
// argument is the backend (default "auto").
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <string>
#include <vector>

#include <lockstep/lockstep.h>
#include <torch/torch.h>

using lockstep::DistributedDataParallel;
using lockstep::GradBucket;
using lockstep::ProcessGroup;
using torch::nn::functional::cross_entropy;

namespace {

void require(bool holds, const char* what) {
  if (!holds) throw lockstep::Error(std::string("wrong result: ") + what);
}

struct NetImpl : torch::nn::Module {
  torch::Tensor forward(torch::Tensor x, bool with_extra = true) {
    x = torch::relu(norm(hidden(x)));
    if (with_extra) x = x + torch::relu(extra(x));
    return output(x);
  }
  torch::nn::Linear hidden = register_module("hidden", torch::nn::Linear(20, 32));
  torch::nn::BatchNorm1d norm = register_module("norm", torch::nn::BatchNorm1d(32));
  torch::nn::Linear extra = register_module("extra", torch::nn::Linear(32, 32));
  torch::nn::Linear output = register_module("output", torch::nn::Linear(32, 3));
};
TORCH_MODULE(Net);

// This rank's batch in a step.
struct Batch {
  Batch(const ProcessGroup& group, int step) {
    auto generator =
        at::detail::createCPUGenerator(static_cast<std::uint64_t>(step * 100 + group.rank()));
    x = torch::randn({16, 20}, generator);
    y = x.narrow(1, 0, 3).argmax(1);
  }
  torch::Tensor x, y;
};

// Requires that all ranks have the same parameters.
void require_equal_replicas(ProcessGroup& group, const torch::nn::Module& net) {
  for (const auto& parameter : net.parameters()) {
    auto first = parameter.detach().clone();
    group.broadcast(first, 0);
    require(torch::equal(first, parameter), "replicas are equal");
  }
}

void accumulate(ProcessGroup& group) {
  Net net;
  DistributedDataParallel ddp(net, group);
  lockstep::Optimizer optimizer(*net, lockstep::SgdOptions{.lr = 0.1, .momentum = 0.9});
  for (int step = 0; step < 4; ++step) {
    const Batch first(group, 2 * step), second(group, 2 * step + 1);
    optimizer.zero_grad();
    {
      auto guard = ddp.no_sync();  // gradients stay on this rank
      cross_entropy(ddp.forward(first.x), first.y).backward();
    }
    // The second backward averages the sum of both gradients over the ranks.
    cross_entropy(ddp.forward(second.x), second.y).backward();
    lockstep::clip_grad_norm_(optimizer.parameters(), /*max_norm=*/1.0);
    optimizer.step();
  }
  require_equal_replicas(group, *net);
}

void step_in_groups(ProcessGroup& group) {
  Net net;
  DistributedDataParallel ddp(net, group);
  const auto groups =
      lockstep::group_parameters(*net, [](const std::string& name, const torch::Tensor& parameter) {
        lockstep::AdamWOptions options{.lr = name.starts_with("output.") ? 1e-2 : 1e-3};
        // biases and the weights of normalisations
        if (parameter.dim() < 2) options.weight_decay = 0;
        return options;
      });
  lockstep::Optimizer optimizer(groups);
  for (int step = 0; step < 4; ++step) {
    const Batch batch(group, step);
    optimizer.zero_grad();
    cross_entropy(ddp.forward(batch.x), batch.y).backward();
    optimizer.scale_lr(1 - step / 4.0);  // each group's rate falls to zero
    optimizer.step();
  }
  require(optimizer.groups() == 4, "two rates, each with weight decay and without");
  require_equal_replicas(group, *net);
}

void leave_parts_out(ProcessGroup& group) {
  Net net;
  DistributedDataParallel ddp(net, group, {.find_unused_parameters = true});
  const Batch batch(group, 0);
  const bool with_extra = group.rank() == 0;
  cross_entropy(ddp.forward(batch.x, with_extra), batch.y).backward();
  require(net->extra->weight.grad().defined(), "a gradient on all ranks, if one of them has it");

  DistributedDataParallel steady(net, group, {.static_graph = true});
  for (int step = 0; step < 3; ++step) {
    net->zero_grad();
    cross_entropy(steady.forward(batch.x, /*with_extra=*/false), batch.y).backward();
    require(!net->extra->weight.grad().defined(), "none where nobody has one");
  }
}

void set_requires_grad(torch::nn::Module& module, bool trains) {
  for (auto& parameter : module.parameters()) parameter.set_requires_grad(trains);
}

// Two nets that are trained alternately, each with its own wrapper and optimizer: WGAN-GP.
void train_in_turn(ProcessGroup& group) {
  torch::nn::Sequential generator(torch::nn::Linear(4, 32), torch::nn::ReLU(),
                                  torch::nn::Linear(32, 20));
  torch::nn::Sequential critic(torch::nn::Linear(20, 32), torch::nn::Tanh(),
                               torch::nn::Linear(32, 1));
  DistributedDataParallel ddp_generator(generator, group);
  DistributedDataParallel ddp_critic(critic, group);
  lockstep::Optimizer generator_optimizer(*generator, lockstep::AdamOptions{.lr = 1e-3});
  lockstep::Optimizer critic_optimizer(*critic, lockstep::AdamOptions{.lr = 1e-3});
  for (int step = 0; step < 3; ++step) {
    const torch::Tensor real = Batch(group, step).x;
    const torch::Tensor fake = generator->forward(torch::randn({16, 4})).detach();
    const torch::Tensor between = torch::lerp(real, fake, torch::rand({16, 1})).requires_grad_();
    critic_optimizer.zero_grad();
    const torch::Tensor sum = ddp_critic.forward(between).sum();
    const torch::Tensor slope =
        torch::autograd::grad({sum}, {between}, /*grad_outputs=*/{},
                              /*retain_graph=*/true, /*create_graph=*/true)[0];
    const torch::Tensor penalty = (slope.norm(2, 1) - 1).square().mean();
    const torch::Tensor loss = ddp_critic.forward(fake).mean() - ddp_critic.forward(real).mean();
    (loss + 10 * penalty).backward();  // one backward for both
    critic_optimizer.step();

    set_requires_grad(*critic, false);  // gradients pass through it, but it gets none
    generator_optimizer.zero_grad();
    const torch::Tensor made = ddp_generator.forward(torch::randn({16, 4}));
    (-ddp_critic.forward(made).mean()).backward();  // averages the generator's gradients
    generator_optimizer.step();
    set_requires_grad(*critic, true);
  }
  require_equal_replicas(group, *generator);
  require_equal_replicas(group, *critic);
}

// A layer whose gradient has only a few nonzero rows.
struct WordsImpl : torch::nn::Module {
  torch::Tensor forward(const torch::Tensor& words) { return output(table(words).mean(1)); }
  torch::nn::Embedding table = register_module(
      "table", torch::nn::Embedding(torch::nn::EmbeddingOptions(1000, 16).sparse(true)));
  torch::nn::Linear output = register_module("output", torch::nn::Linear(16, 3));
};
TORCH_MODULE(Words);

void train_sparsely(ProcessGroup& group) {
  Words net;
  DistributedDataParallel ddp(net, group);
  // no momentum, no weight decay
  lockstep::Optimizer optimizer(*net, lockstep::SgdOptions{.lr = 0.1});
  for (int step = 0; step < 2; ++step) {
    optimizer.zero_grad();
    const torch::Tensor words = torch::randint(1000, {16, 5}, torch::kInt64);
    cross_entropy(ddp.forward(words), Batch(group, step).y).backward();
    optimizer.step();
  }
  require(net->table->weight.grad().is_sparse(), "a sparse mean");
  require_equal_replicas(group, *net);
}

void normalise_together(ProcessGroup& group) {
  Net net;
  DistributedDataParallel ddp(net, group, {.sync_batch_norm = true});
  ddp.forward(Batch(group, 0).x);
  auto mean = net->norm->running_mean.clone();
  group.broadcast(mean, 0);
  require(torch::allclose(mean, net->norm->running_mean), "one mean for all ranks");
}

void compress(ProcessGroup& group) {
  Net net;
  DistributedDataParallel ddp(net, group);
  ddp.register_comm_hook(lockstep::bf16_compress_hook(group));
  const Batch batch(group, 0);
  cross_entropy(ddp.forward(batch.x), batch.y).backward();
  require(net->output->weight.grad().isfinite().all().item<bool>(), "a compressed gradient");

  DistributedDataParallel low_rank(net, group);
  lockstep::PowerSgd power_sgd(group, {.matrix_approximation_rank = 2, .start_power_sgd_iter = 10});
  low_rank.register_comm_hook(power_sgd.hook());

  DistributedDataParallel summed(net, group);
  summed.register_comm_hook([&group](GradBucket& bucket) {
    return group.async_all_reduce(bucket.buffer, lockstep::ReduceOp::kSum);
  });
  net->zero_grad();
  cross_entropy(summed.forward(batch.x), batch.y).backward();
}

void end_together(ProcessGroup& group) {
  Net net;
  DistributedDataParallel ddp(net, group);
  lockstep::Optimizer optimizer(*net, lockstep::AdamWOptions{.lr = 1e-2});
  const int batches = 2 + group.rank();  // each rank has one more than the previous one
  int step = 0;
  lockstep::Join join(ddp.core(), lockstep::JoinMode::kWeighted);
  while (join.next(step < batches ? 16 : 0)) {
    optimizer.zero_grad();
    join.backward([&] {
      const Batch batch(group, step);
      return cross_entropy(ddp.forward(batch.x), batch.y);
    });
    optimizer.step();
    ++step;
  }
  require(step == 1 + group.size(), "as many steps as the longest rank has batches");
  require_equal_replicas(group, *net);
}

// Some elements are padding, on each rank another number of them.
void average_over_valid_elements(ProcessGroup& group) {
  constexpr std::int64_t kPadding = -100;
  torch::nn::Linear net(20, 3);
  DistributedDataParallel ddp(net, group);
  Batch batch(group, 0);
  batch.y.narrow(0, 0, 3 + 7 * (group.rank() % 2)).fill_(kPadding);

  lockstep::MeanOverRanks mean(group);
  const auto ignoring_padding =
      torch::nn::functional::CrossEntropyFuncOptions().ignore_index(kPadding);
  const auto sum_of_valid =
      torch::nn::functional::CrossEntropyFuncOptions(ignoring_padding).reduction(torch::kSum);
  mean.start(batch.y.ne(kPadding).sum());  // the ranks add up their counts during the forward
  const auto sum = cross_entropy(ddp.forward(batch.x), batch.y, sum_of_valid);
  mean.of(sum).backward();

  // One process that has the batches of all ranks.
  auto x = torch::empty({group.size() * batch.x.size(0), batch.x.size(1)});
  auto y = torch::empty({x.size(0)}, torch::kInt64);
  group.all_gather_into_tensor(x, batch.x);
  group.all_gather_into_tensor(y, batch.y);
  const auto whole = cross_entropy(net(x), y, ignoring_padding);
  const auto gradient = torch::autograd::grad({whole}, {net->weight})[0];
  require(torch::allclose(net->weight.grad(), gradient, 1e-5, 1e-6), "the mean of valid elements");
}

void share_the_state(ProcessGroup& group) {
  Net net;
  DistributedDataParallel ddp(net, group, {.parameter_memory = lockstep::ParameterMemory::kFlat});
  lockstep::ZeroRedundancyOptimizer optimizer(ddp.core(), *net, lockstep::AdamWOptions{.lr = 1e-2});
  for (int step = 0; step < 4; ++step) {
    const Batch batch(group, step);
    optimizer.zero_grad();
    cross_entropy(ddp.forward(batch.x), batch.y).backward();
    optimizer.clip_grad_norm(1.0);
    optimizer.step();
  }
  const auto state = optimizer.state_dict();  // complete, on rank 0 only
  require(group.rank() != 0 || !state.empty(), "a state to save");
  require_equal_replicas(group, *net);
}

void train_in_half(ProcessGroup& group) {
  Net net;
  DistributedDataParallel ddp(net, group);
  lockstep::Optimizer optimizer(*net, lockstep::SgdOptions{.lr = 0.1});
  lockstep::GradScaler scaler({.init_scale = 1024});
  for (int step = 0; step < 2; ++step) {
    const Batch batch(group, step);
    optimizer.zero_grad();
    scaler.scale(cross_entropy(ddp.forward(batch.x), batch.y)).backward();
    scaler.step(optimizer);  // on all ranks or on none
    scaler.update();
  }
  require_equal_replicas(group, *net);
}

void look_inside(ProcessGroup& group) {
  Net net;
  DistributedDataParallel ddp(net, group);
  for (int step = 0; step < 10; ++step) {
    const Batch batch(group, step);
    cross_entropy(ddp.forward(batch.x), batch.y).backward();
  }
  const auto path = std::filesystem::temp_directory_path() / "ddp_trace.json";
  const auto statistics = ddp.statistics();
  if (group.rank() == 0) std::fputs(to_table(statistics).c_str(), stdout);
  ddp.write_trace(path);
  require(statistics.steps == 10, "steps");
  if (group.rank() == 0) std::filesystem::remove(path);
}

}  // namespace

int main(int argc, char** argv) {
  lockstep::ProcessGroupOptions options;
  if (argc > 1) options.backend = argv[1];
  auto group = lockstep::init_process_group(options);
  torch::set_num_threads(1);
  torch::manual_seed(group.rank());
  accumulate(group);
  step_in_groups(group);
  leave_parts_out(group);
  train_in_turn(group);
  train_sparsely(group);
  normalise_together(group);
  compress(group);
  end_together(group);
  average_over_valid_elements(group);
  share_the_state(group);
  train_in_half(group);
  look_inside(group);
  group.barrier();
  if (group.rank() == 0) {
    std::printf("group of %d over %s: all results are right\n", group.size(),
                group.backend().c_str());
  }
}
