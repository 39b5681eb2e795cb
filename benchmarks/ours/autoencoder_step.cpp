// Measures the training speed that computation alone allows in `lockstep train autoencoder`:
// several ranks train at the same time on images in memory, without loading data or communicating.
//
//   autoencoder_step [--nproc-per-node 2] [--batch 32] [--image-size 160] [--seconds 5]
//
// Each rank has one thread and prints the median duration of its steps. The last line is the sum
// over the ranks in images per second.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include <sys/mman.h>

#include <ATen/Parallel.h>
#include <torch/types.h>
#include <torch/utils.h>

#include <lockstep/comm/rendezvous/worker_environment.h>
#include <lockstep/core/clock.h>
#include <lockstep/core/measuring/quantile.h>
#include <lockstep/launch/launcher.h>
#include <lockstep/launch/rank_setup.h>
#include <lockstep/models/autoencoder.h>
#include <lockstep/optim/optimizer.h>
#include <lockstep/train/optimization/memory_format.h>

namespace {

using lockstep::Clock;

struct StepOptions {
  int ranks = 2;
  std::int64_t batch = 32;
  std::int64_t side = 160;
  double seconds = 5;
};

// Returns the median duration of a rank's steps in seconds. The first fifth of the time is a
// warm-up.
double measure(const StepOptions& options) {
  torch::manual_seed(0);
  lockstep::Autoencoder net;
  lockstep::train::to_channels_last(*net);
  const torch::Tensor images = torch::rand({options.batch, 3, options.side, options.side})
                                   .contiguous(at::MemoryFormat::ChannelsLast);
  lockstep::Optimizer optimizer(*net, lockstep::AdamOptions{.lr = 1e-3});
  std::vector<double> steps;
  const Clock::time_point begin = Clock::now();
  while (lockstep::seconds_since(begin) < options.seconds) {
    const Clock::time_point start = Clock::now();
    optimizer.zero_grad();
    at::mse_loss(net->forward(images), images).backward();
    optimizer.step();
    if (lockstep::seconds_since(begin) > options.seconds / 5) {
      steps.push_back(lockstep::seconds_since(start));
    }
  }
  return lockstep::median(steps);
}

}  // namespace

int main(int argc, char** argv) {
  StepOptions options;
  for (int i = 1; i < argc; ++i) {
    const bool has_value = i + 1 < argc;
    if (!std::strcmp(argv[i], "--nproc-per-node") && has_value)
      options.ranks = std::atoi(argv[++i]);
    else if (!std::strcmp(argv[i], "--batch") && has_value)
      options.batch = std::atoi(argv[++i]);
    else if (!std::strcmp(argv[i], "--image-size") && has_value)
      options.side = std::atoi(argv[++i]);
    else if (!std::strcmp(argv[i], "--seconds") && has_value)
      options.seconds = std::atof(argv[++i]);
    else
      return std::fprintf(stderr, "error: unknown argument %s\n", argv[i]), 2;
  }
  // One number per rank, written by the rank and read by this process.
  const std::size_t bytes = sizeof(double) * static_cast<std::size_t>(options.ranks);
  void* const pages =
      mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (pages == MAP_FAILED) return std::fprintf(stderr, "error: no memory\n"), 1;
  auto* const medians = static_cast<double*>(pages);
  const lockstep::LaunchResult result =
      lockstep::launch_ranks({.nproc_per_node = options.ranks}, [&] {
        const auto worker = lockstep::worker_environment().value();
        at::set_num_threads(lockstep::launch::prepare_rank(worker, 1));
        medians[worker.rank] = measure(options);
      });
  if (!result.ok()) {
    return std::fprintf(stderr, "error: %s\n", result.message.c_str()), result.exit_code;
  }
  double rate = 0;
  for (int rank = 0; rank < options.ranks; ++rank) {
    std::printf("rank %d: step %.2f ms\n", rank, 1e3 * medians[rank]);
    rate += static_cast<double>(options.batch) / medians[rank];
  }
  std::printf("images per second %.1f\n", rate);
  return 0;
}
