// Measures for how long a checkpoint of ResNet-50 with AdamW's state stops the training thread.
//
//   checkpoint_stall FOLDER [--threads 2] [--turns 15] [--trainer]
//
// Prints the median, smallest and largest times in milliseconds of three operations: the copy that
// a background checkpoint costs, for float32 in contiguous and in channels_last layout; the write
// to the disk of FOLDER that follows in another thread; and, as the lower bound, a memcpy of the
// same number of bytes in one piece.
//
// --trainer measures within Trainer::fit() on random images. It prints the time from one step to
// the next without checkpoints, with a checkpoint between the two, while one is being written, and
// otherwise, and then the "checkpoint" action of Profiler::kSimple.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include <ATen/Parallel.h>
#include <torch/types.h>
#include <torch/utils.h>

#include <lockstep/core/clock.h>
#include <lockstep/data/datasets/tensor_dataset.h>
#include <lockstep/data/samplers/random_sampler.h>
#include <lockstep/models/resnet.h>
#include <lockstep/optim/optimizer.h>
#include <lockstep/train/checkpoints/checkpoint_content.h>
#include <lockstep/train/checkpoints/checkpoint_store.h>
#include <lockstep/train/checkpoints/state_dict.h>
#include <lockstep/train/checkpoints/tensor_snapshot.h>
#include <lockstep/train/measuring/background_job.h>
#include <lockstep/train/optimization/memory_format.h>
#include <lockstep/train/trainer.h>

namespace {

using lockstep::StateDict;

void print_times(const char* what, std::vector<double> seconds) {
  if (seconds.empty()) return;
  std::sort(seconds.begin(), seconds.end());
  std::printf("%-28s %8.1f %8.1f %8.1f\n", what, seconds[seconds.size() / 2] * 1e3,
              seconds.front() * 1e3, seconds.back() * 1e3);
}

// Writes every element, as the optimizer's step before a checkpoint does.
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
  if (channels_last) lockstep::train::to_channels_last(*net);
  const lockstep::Optimizer optimizer(*net, lockstep::AdamWOptions{});
  const StateDict model = lockstep::state_dict(*net);
  const StateDict training = optimizer.state();
  StateDict all = model;
  all.insert(all.end(), training.begin(), training.end());
  const std::int64_t bytes = lockstep::train::TensorSnapshot::bytes_of(all);
  std::printf("%s, %.1f MB in %zu tensors      median smallest  largest\n",
              channels_last ? "channels_last" : "rows", static_cast<double>(bytes) / 1e6,
              all.size());

  lockstep::train::CheckpointStore store({.directory = folder, .keep_last = 1});
  store.prepare();
  lockstep::train::TensorSnapshot snapshot;
  snapshot.reserve(bytes, /*pinned=*/false);
  const torch::Tensor from = torch::ones({bytes / 4});
  const torch::Tensor to = torch::ones({bytes / 4});
  lockstep::train::BackgroundJob job;
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
      const lockstep::train::CheckpointContent content(StateDict(taken.begin(), middle),
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

constexpr std::int64_t kBatch = 8;
constexpr std::int64_t kStepsBetween = 20;  // enough to finish writing a checkpoint
constexpr std::int64_t kStepsOfWrite = 10;  // the checkpoint may still be written during these

// Records when each step completes.
struct StepClock final : lockstep::Listener {
  void on_step(const lockstep::StepReport&) override { times.push_back(lockstep::Clock::now()); }
  std::vector<lockstep::Clock::time_point> times{};
};

// Random images, whose content does not affect the duration of a step.
lockstep::ImageDataset random_images(std::int64_t count) {
  torch::manual_seed(0);
  return lockstep::image_dataset(torch::randint(256, {count, 3, 128, 128}, torch::kUInt8),
                                 torch::randint(1000, {count}, torch::kInt64),
                                 /*num_classes=*/1000);
}

// The seconds from each step to the next in an epoch of ResNet-50. Unless `folder` is empty, writes
// a checkpoint there after every kStepsBetween steps.
std::vector<double> time_steps(const std::string& folder, std::int64_t steps,
                               lockstep::RunReport& report) {
  lockstep::ResNet net = lockstep::resnet50();
  lockstep::train::to_channels_last(*net);
  lockstep::ClassificationTask task(net, lockstep::ClassificationLoss::kCrossEntropy);
  const lockstep::ImageDataset images = random_images(kBatch * steps);
  lockstep::Loader loader(images, lockstep::RandomSampler(images.size(), {.seed = 1}),
                          {lockstep::Normalize{{0.5, 0.5, 0.5}, {0.25, 0.25, 0.25}}},
                          {.batch_size = kBatch, .threads = 1});
  StepClock clock;
  lockstep::TrainerOptions options{.optimizer = lockstep::AdamWOptions{.lr = 1e-4},
                                   .profiler = {.kind = lockstep::Profiler::kSimple}};
  options.listeners.push_back(&clock);
  if (!folder.empty()) {
    options.checkpoints = {.directory = folder,
                           .every_n_train_steps = kStepsBetween,
                           .keep_last = 1,
                           .background = true};
    options.overwrite = true;
  }
  lockstep::Trainer trainer(
      options,
      lockstep::make_strategy(
          "single", lockstep::init_process_group({.environment = lockstep::WorkerEnvironment{}})));
  report = trainer.fit(task, loader);
  std::vector<double> seconds;
  for (std::size_t i = 1; i < clock.times.size(); ++i) {
    seconds.push_back(std::chrono::duration<double>(clock.times[i] - clock.times[i - 1]).count());
  }
  return seconds;
}

void measure_trainer(const std::string& folder, int turns) {
  const std::int64_t steps = kStepsBetween * (turns + 1);
  lockstep::RunReport report;
  std::vector<double> without = time_steps({}, steps, report);
  without.erase(without.begin());  // allocates memory
  const std::vector<double> with = time_steps(folder, steps, report);
  std::vector<double> stalled, beside, others;
  for (std::size_t i = 1; i < with.size(); ++i) {
    const auto done = static_cast<std::int64_t>(i) + 1;  // number of steps before this interval
    const std::int64_t since = done < kStepsBetween ? kStepsBetween : done % kStepsBetween;
    std::vector<double>& kind = since == 0 ? stalled : since <= kStepsOfWrite ? beside : others;
    kind.push_back(with[i]);
  }
  std::printf("ResNet-50, batches of %lld of 128x128   median smallest  largest\n",
              static_cast<long long>(kBatch));
  print_times("step, without checkpoints", without);
  print_times("step with one after it", stalled);
  print_times("step beside its writing", beside);
  print_times("other steps", others);
  for (const lockstep::ProfiledAction& action : report.profile) {
    if (action.name != "checkpoint") continue;
    std::printf("action checkpoint: %lld calls, %.1f ms each\n",
                static_cast<long long>(action.calls),
                action.seconds / static_cast<double>(action.calls) * 1e3);
  }
}

}  // namespace

int main(int argc, char** argv) {
  int threads = 2;
  int turns = 15;
  bool in_trainer = false;
  bool is_understood = argc >= 2 && argv[1][0] != '-';
  for (int i = 2; i < argc; ++i) {
    const bool has_value = i + 1 < argc;
    if (std::strcmp(argv[i], "--trainer") == 0)
      in_trainer = true;
    else if (std::strcmp(argv[i], "--threads") == 0 && has_value)
      threads = std::atoi(argv[++i]);
    else if (std::strcmp(argv[i], "--turns") == 0 && has_value)
      turns = std::max(1, std::atoi(argv[++i]));
    else
      is_understood = false;
  }
  if (!is_understood) {
    std::fprintf(stderr, "usage: checkpoint_stall FOLDER [--threads 2] [--turns 15] [--trainer]\n");
    return 2;
  }
  at::set_num_threads(threads);
  if (in_trainer) {
    measure_trainer(argv[1], turns);
    return 0;
  }
  for (const bool channels_last : {false, true}) measure(argv[1], channels_last, turns);
  return 0;
}
