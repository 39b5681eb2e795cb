// For how long a checkpoint of ResNet-50 with AdamW's state stops the training thread:
//
//   checkpoint_stall FOLDER [--threads 2] [--turns 15]
//
// prints medians, smallest and largest times in milliseconds: of the copy that a checkpoint in the
// background costs, with float32 in rows and in channels_last; of the write that follows it on the
// disk of FOLDER, in another thread; and, as the floor, of a memcpy of as many bytes in one piece.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include <ATen/Parallel.h>
#include <torch/torch.h>

#include <lockstep/core/clock.h>
#include <lockstep/models/resnet.h>
#include <lockstep/optim/optimizer.h>
#include <lockstep/train/background_job.h>
#include <lockstep/train/checkpoint_content.h>
#include <lockstep/train/checkpoint_store.h>
#include <lockstep/train/memory_format.h>
#include <lockstep/train/state_dict.h>
#include <lockstep/train/tensor_snapshot.h>

namespace {

using lockstep::StateDict;

void print_times(const char* what, std::vector<double> seconds) {
  std::sort(seconds.begin(), seconds.end());
  std::printf("%-28s %8.1f %8.1f %8.1f\n", what, seconds[seconds.size() / 2] * 1e3,
              seconds.front() * 1e3, seconds.back() * 1e3);
}

// Every element is written, as by the optimizer's step that comes before a checkpoint.
void touch(const StateDict& state) {
  for (const auto& [name, tensor] : state) {
    if (tensor.is_floating_point()) tensor.add_(1e-3);
  }
}

double copy_in_one_piece(const torch::Tensor& from, const torch::Tensor& to) {
  const auto start = lockstep::Clock::now();
  to.copy_(from);
  return lockstep::seconds_since(start);
}

void measure(const std::string& folder, bool channels_last, int turns) {
  lockstep::ResNet net = lockstep::resnet50();
  if (channels_last) lockstep::to_channels_last(*net);
  const lockstep::Optimizer optimizer(*net, lockstep::AdamWOptions{});
  const StateDict model = lockstep::state_dict(*net);
  const StateDict training = optimizer.state();
  StateDict all = model;
  all.insert(all.end(), training.begin(), training.end());
  const std::int64_t bytes = lockstep::TensorSnapshot::bytes_of(all);
  std::printf("%s, %.1f MB in %zu tensors      median smallest  largest\n",
              channels_last ? "channels_last" : "rows", static_cast<double>(bytes) / 1e6,
              all.size());

  lockstep::CheckpointStore store({.directory = folder, .keep_last = 1});
  store.prepare();
  lockstep::TensorSnapshot snapshot;
  snapshot.reserve(bytes, /*pinned=*/false);
  const torch::Tensor from = torch::ones({bytes / 4});
  const torch::Tensor to = torch::ones({bytes / 4});
  lockstep::BackgroundJob job;
  std::vector<double> copies, writes, floors;
  const torch::NoGradGuard no_grad;
  for (int turn = 1; turn <= turns; ++turn) {
    touch(all);
    floors.push_back(copy_in_one_piece(from, to));
    touch(all);
    auto start = lockstep::Clock::now();
    const StateDict taken = snapshot.take(all);
    copies.push_back(lockstep::seconds_since(start));
    start = lockstep::Clock::now();
    job.start([&] {
      const auto middle = taken.begin() + static_cast<std::ptrdiff_t>(model.size());
      const lockstep::CheckpointContent content(StateDict(taken.begin(), middle),
                                                StateDict(middle, taken.end()),
                                                {.recipe = "benchmark"});
      store.save(content.files(), {.epoch = 1, .step = turn});
    });
    job.wait();
    writes.push_back(lockstep::seconds_since(start));
  }
  print_times("copy", copies);
  print_times("write, in the background", writes);
  print_times("copy of one tensor", floors);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2 || argc % 2 != 0) {
    std::fprintf(stderr, "usage: checkpoint_stall FOLDER [--threads 2] [--turns 15]\n");
    return 2;
  }
  int threads = 2;
  int turns = 15;
  for (int i = 2; i + 1 < argc; i += 2) {
    if (std::strcmp(argv[i], "--threads") == 0) threads = std::atoi(argv[i + 1]);
    if (std::strcmp(argv[i], "--turns") == 0) turns = std::max(1, std::atoi(argv[i + 1]));
  }
  at::set_num_threads(threads);
  for (const bool channels_last : {false, true}) measure(argv[1], channels_last, turns);
  return 0;
}
