// Compares a step of DistributedDataParallel over an exported ResNet-18 with one over ours, for
// program_ddp.py.
//
// Usage: program_ddp_step NET.pt2 ROUNDS STEPS BATCH
//
// Two ranks with one thread each have both nets, with the same weights, and random 32x32 images. A
// step is zero_grad, forward, the mean square of the output, backward, and SGD with momentum. In
// each round, STEPS steps of one net follow STEPS of the other. Prints a line for each round: the
// median milliseconds of a step on rank 0, of the module and of the program.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <utility>
#include <vector>

#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <torch/types.h>

#include <lockstep/comm/group/process_group.h>
#include <lockstep/comm/rendezvous/worker_environment.h>
#include <lockstep/core/clock.h>
#include <lockstep/core/error.h>
#include <lockstep/launch/launcher.h>
#include <lockstep/launch/rank_setup.h>
#include <lockstep/models/resnet.h>
#include <lockstep/optim/optimizer.h>
#include <lockstep/parallel/distributed_data_parallel.h>
#include <lockstep/program/program.h>
#include <lockstep/train/checkpoints/state_dict.h>

namespace {

constexpr int kRanks = 2, kWarmUp = 3;

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

template <class Net>
class Training {
 public:
  Training(Net net, lockstep::ProcessGroup group)
      : ddp_(net, std::move(group)),
        optimizer_(*net, lockstep::SgdOptions{.lr = 1e-4, .momentum = 0.9}) {}

  // Median milliseconds of a step.
  double measure(const torch::Tensor& images, int steps) {
    std::vector<double> times;
    for (int i = 0; i < steps; ++i) {
      const auto begin = lockstep::Clock::now();
      optimizer_.zero_grad();
      const torch::Tensor logits = ddp_.forward(images);
      logits.square().mean().backward();
      optimizer_.step();
      times.push_back(1e3 * lockstep::seconds_since(begin));
    }
    return median(std::move(times));
  }

 private:
  lockstep::DistributedDataParallel<Net> ddp_;
  lockstep::Optimizer optimizer_;
};

void run_rank(char** argv) {
  lockstep::launch::prepare_rank(lockstep::worker_environment().value());
  at::set_num_threads(1);
  auto group = lockstep::init_process_group();
  lockstep::Program exported(argv[1]);
  lockstep::ResNet written = lockstep::resnet18(lockstep::ResNetStem::kCifar, /*num_classes=*/10);
  lockstep::load_state_dict(*written, lockstep::state_dict(*exported));
  Training<lockstep::ResNet> module(written, group);
  Training<lockstep::Program> program(exported, group);
  torch::manual_seed(group.rank());
  const torch::Tensor images = torch::randn({std::atoi(argv[4]), 3, 32, 32});
  const int rounds = std::atoi(argv[2]), steps = std::max(1, std::atoi(argv[3]));
  for (int round = -1; round < rounds; ++round) {  // the first is a warm-up
    const int count = round < 0 ? kWarmUp : steps;
    const double module_time = module.measure(images, count);
    const double program_time = program.measure(images, count);
    if (round >= 0 && group.rank() == 0) std::printf("%.4f %.4f\n", module_time, program_time);
  }
  std::fflush(stdout);
  group.barrier();
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 5) {
    std::fprintf(stderr, "usage: program_ddp_step NET.pt2 ROUNDS STEPS BATCH\n");
    return 2;
  }
  try {
    const auto result = lockstep::launch_ranks({.nproc_per_node = kRanks}, [&] { run_rank(argv); });
    if (!result.ok()) std::fprintf(stderr, "error: %s\n", result.message.c_str());
    return result.exit_code;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "error: %s\n", lockstep::first_line(error).c_str());
    return lockstep::exit_code(error);
  }
}
