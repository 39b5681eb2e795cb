// Measures the overhead of Trainer::fit() over a hand-written loop of loader, forward, backward,
// optimizer and the loss of each step.
//
//   trainer_overhead [--rounds 9] [--net mnist|resnet18|all] [--threads 1] [--listener]
//                    [--loggers csv,tensorboard] [--trace] [--cpu]
//
// Each round trains one epoch of the same net by hand and one with the Trainer, in alternating
// order, and compares the medians of their steps. Prints the median over the rounds with its range.
// Both loops keep freed memory, as ranks of `lockstep train` do (prepare_rank()).
//
// --listener adds a listener that receives each step. --loggers adds a LoggingListener with these
// loggers, which write two values per step into a temporary folder. --trace compares the Trainer
// that records a trace (TrainerOptions::trace) with one that does not, instead of with the
// hand-written loop. --cpu measures the processor time of the training thread instead of elapsed
// time, which other programs disturb more.
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <memory>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include <torch/nn/module.h>
#include <torch/types.h>
#include <torch/utils.h>

#include <lockstep/data/datasets/tensor_dataset.h>
#include <lockstep/data/samplers/random_sampler.h>
#include <lockstep/launch/rank_setup.h>
#include <lockstep/models/mnist_net.h>
#include <lockstep/models/resnet.h>
#include <lockstep/optim/optimizer.h>
#include <lockstep/report/loggers/logger_table.h>
#include <lockstep/report/loggers/logging_listener.h>
#include <lockstep/train/optimization/memory_format.h>
#include <lockstep/train/trainer.h>

namespace {

using lockstep::Batch;
using Times = std::vector<double>;  // durations of steps, in seconds

clockid_t clock_of_steps = CLOCK_MONOTONIC;

double now_seconds() {
  timespec time{};
  clock_gettime(clock_of_steps, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

double median(Times values) {
  std::nth_element(values.begin(), values.begin() + values.size() / 2, values.end());
  return values[values.size() / 2];
}

std::vector<std::string> names_in(const std::string& text) {
  std::vector<std::string> names;
  std::istringstream words(text);
  for (std::string name; std::getline(words, name, ',');) names.push_back(name);
  return names;
}

// The model and data of a benchmark.
struct Work {
  std::string name{};
  std::unique_ptr<lockstep::ClassificationTask> task{};
  lockstep::ImageDataset images;
  lockstep::Augmentation augmentation{};
  std::int64_t batch = 0;
  lockstep::SgdOptions optimizer{};
};

lockstep::Loader loader_of(const Work& work) {
  return lockstep::Loader(work.images, lockstep::RandomSampler(work.images.size(), {.seed = 1}),
                          work.augmentation, {.batch_size = work.batch, .threads = 1});
}

// Random images, whose content does not affect the duration of a step.
lockstep::ImageDataset images_of(std::int64_t count, std::int64_t channels, std::int64_t side) {
  torch::manual_seed(0);
  return lockstep::image_dataset(torch::randint(256, {count, channels, side, side}, torch::kUInt8),
                                 torch::randint(10, {count}, torch::kInt64), /*num_classes=*/10);
}

Work mnist_work() {
  return {.name = "mnist",
          .task = std::make_unique<lockstep::ClassificationTask>(
              lockstep::MnistNet(), lockstep::ClassificationLoss::kNegativeLogLikelihood),
          .images = images_of(64 * 150, 1, 28),
          .augmentation = {lockstep::Normalize{{0.13}, {0.31}}},
          .batch = 64,
          .optimizer = {.lr = 0.01, .momentum = 0.9}};
}

Work resnet_work() {
  lockstep::ResNet net = lockstep::resnet18(lockstep::ResNetStem::kCifar, 10);
  lockstep::train::to_channels_last(*net);
  return {
      .name = "resnet18",
      .task = std::make_unique<lockstep::ClassificationTask>(
          net, lockstep::ClassificationLoss::kCrossEntropy),
      .images = images_of(8 * 12, 3, 32),
      .augmentation = {lockstep::Pad{4}, lockstep::RandomCrop{32}, lockstep::RandomHorizontalFlip{},
                       lockstep::Normalize{{0.5, 0.5, 0.5}, {0.25, 0.25, 0.25}}},
      .batch = 8,
      .optimizer = {.lr = 0.01, .momentum = 0.9}};
}

// An epoch as a user writes it. Both loops measure from the end of one step to the end of the next.
Times train_by_hand(Work& work, lockstep::Loader& loader) {
  torch::nn::Module& net = work.task->module();
  lockstep::Optimizer optimizer(net, work.optimizer);
  net.train();
  Times times;
  double sum = 0;
  double last = now_seconds();
  for (const Batch& batch : loader) {
    optimizer.zero_grad();
    const torch::Tensor loss = work.task->training_step(batch);
    loss.backward();
    optimizer.step();
    sum += loss.item<double>() * static_cast<double>(batch.size);
    const double now = now_seconds();
    times.push_back(now - last);
    last = now;
  }
  if (!(sum > 0)) std::fprintf(stderr, "error: the loss is %f\n", sum);
  return times;
}

// Measures each step without the Trainer's own clock, from within the task: one whole step lies
// between the starts of two forwards.
class TimedTask final : public lockstep::Task {
 public:
  explicit TimedTask(lockstep::Task& task) : task_(task) {}
  torch::nn::Module& module() override { return task_.module(); }
  torch::Tensor training_step(const Batch& batch) override {
    const double now = now_seconds();
    if (steps_++ > 0) times.push_back(now - last_);
    last_ = now;
    return task_.training_step(batch);
  }
  void evaluation_step(const Batch& batch, lockstep::Metrics& metrics) override {
    task_.evaluation_step(batch, metrics);
  }
  Times times;

 private:
  lockstep::Task& task_;
  double last_ = 0;
  int steps_ = 0;
};

struct StepListener final : lockstep::Listener {
  void on_step(const lockstep::StepReport& report) override { sum += report.loss; }
  double sum = 0;
};

// Everything that receives the Trainer's steps.
struct Told {
  bool listener = false;
  bool trace = false;
  std::vector<std::string> loggers{};
};

Times train_by_trainer(Work& work, lockstep::Loader& loader, const Told& told) {
  lockstep::TrainerOptions options{.optimizer = work.optimizer};
  if (told.listener) options.listeners.push_back(std::make_unique<StepListener>());
  const std::filesystem::path folder =
      std::filesystem::temp_directory_path() / ("trainer-overhead-" + std::to_string(getpid()));
  if (told.trace) options.trace.file = folder / "trace.json";
  if (!told.loggers.empty()) {
    options.listeners.push_back(std::make_unique<lockstep::LoggingListener>(
        lockstep::make_loggers(told.loggers, {.directory = folder, .run_name = "run"})));
  }
  lockstep::Trainer trainer(
      options,
      lockstep::make_strategy(
          "single", lockstep::init_process_group({.environment = lockstep::WorkerEnvironment{}})));
  TimedTask task(*work.task);
  trainer.fit(task, loader);
  std::filesystem::remove_all(folder);
  return task.times;
}

void compare(Work work, int rounds, const Told& told) {
  lockstep::Loader loader = loader_of(work);
  Times by_hand, by_trainer, ratios;
  Told without_trace = told;
  without_trace.trace = false;
  for (int round = -1; round < rounds; ++round) {  // the first round allocates memory
    Times hand, trainer;
    const auto run_hand = [&] {
      if (told.trace) return void(hand = train_by_trainer(work, loader, without_trace));
      loader.set_epoch(0);
      hand = train_by_hand(work, loader);
    };
    const auto run_trainer = [&] { trainer = train_by_trainer(work, loader, told); };
    if (round % 2 == 0) run_hand();
    run_trainer();
    if (round % 2 != 0) run_hand();
    if (round < 0) continue;
    by_hand.push_back(median(hand));
    by_trainer.push_back(median(trainer));
    ratios.push_back(by_trainer.back() / by_hand.back());
  }
  const auto [least, most] = std::minmax_element(ratios.begin(), ratios.end());
  std::printf("%-9s batch %lld: %s %8.3f ms, %s %8.3f ms a step; ratio %.4f (%.4f to %.4f)\n",
              work.name.c_str(), static_cast<long long>(work.batch),
              told.trace ? "without a trace" : "by hand", 1e3 * median(by_hand),
              told.trace ? "with a trace" : "Trainer", 1e3 * median(by_trainer), median(ratios),
              *least, *most);
}

}  // namespace

int main(int argc, char** argv) {
  int rounds = 9;
  int threads = 1;
  std::string net = "all";
  Told told;
  for (int i = 1; i < argc; ++i) {
    const bool has_value = i + 1 < argc;
    if (!std::strcmp(argv[i], "--listener"))
      told.listener = true;
    else if (!std::strcmp(argv[i], "--trace"))
      told.trace = true;
    else if (!std::strcmp(argv[i], "--cpu"))
      clock_of_steps = CLOCK_THREAD_CPUTIME_ID;
    else if (!std::strcmp(argv[i], "--rounds") && has_value)
      rounds = std::atoi(argv[++i]);
    else if (!std::strcmp(argv[i], "--threads") && has_value)
      threads = std::atoi(argv[++i]);
    else if (!std::strcmp(argv[i], "--loggers") && has_value)
      told.loggers = names_in(argv[++i]);
    else if (!std::strcmp(argv[i], "--net") && has_value)
      net = argv[++i];
    else
      return std::fprintf(stderr, "error: unknown argument %s\n", argv[i]), 2;
  }
  at::set_num_threads(lockstep::launch::prepare_rank(lockstep::WorkerEnvironment{}, threads));
  if (net != "resnet18") compare(mnist_work(), rounds, told);
  if (net != "mnist") compare(resnet_work(), rounds, told);
}
