// A user-defined net, data set and metric, trained by the Trainer to decide on which of two spirals
// a point lies. The run accumulates gradients and uses a one-cycle schedule with momentum, averaged
// weights, early stopping, background checkpoints, loggers, a model summary and a profile. Runs on
// any number of ranks, including one.
// Argument: the backend (default "auto").
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <iostream>
#include <memory>
#include <numbers>
#include <string>
#include <utility>
#include <vector>

#include <lockstep/lockstep.h>
#include <lockstep/report/console.h>
#include <lockstep/report/loggers/logger_table.h>
#include <lockstep/report/loggers/logging_listener.h>
#include <lockstep/train/trainer.h>
#include <torch/torch.h>

namespace {

namespace nn = torch::nn;

// The points of two interleaved spirals: 2,000 for training, and 500 between them for testing.
struct Spirals final : lockstep::BatchDataset<lockstep::Batch> {
  explicit Spirals(bool is_train_) : is_train(is_train_) {}
  std::int64_t size() const override { return is_train ? 2000 : 500; }
  void get(const lockstep::BatchRequest& request, lockstep::Batch& batch) const override {
    const std::vector<std::int64_t> indices(request.indices.begin(), request.indices.end());
    const torch::Tensor index = torch::tensor(indices, torch::kInt64);
    batch.labels = index.remainder(2);
    const torch::Tensor place = (index.to(torch::kFloat32) + (is_train ? 0 : 0.25)) / size();
    const torch::Tensor radius = 0.1 + 0.9 * place;
    const torch::Tensor angle = std::numbers::pi * (3 * place + batch.labels);
    batch.images = torch::stack({radius * angle.cos(), radius * angle.sin()}, 1);
  }
  bool is_train;
};

struct NetImpl : nn::Module {
  nn::Sequential layers{nn::Linear(2, 64), nn::Tanh(), nn::Linear(64, 64), nn::Tanh(),
                        nn::Linear(64, 2)};
  NetImpl() { register_module("layers", layers); }
  torch::Tensor forward(const torch::Tensor& points) { return layers->forward(points); }
};
TORCH_MODULE(Net);

// The F1 score of class 1 over all ranks, computed from its hits and all errors.
std::shared_ptr<lockstep::Metric> make_f1() {
  return std::make_shared<lockstep::SumMetric>(
      "f1", /*num_sums=*/2,
      [](const torch::Tensor& output, const torch::Tensor& target) {
        const torch::Tensor found = output.argmax(1);
        return torch::stack({(found * target).sum(), found.ne(target).sum()});
      },
      [](const std::vector<double>& sums) { return 2 * sums[0] / (2 * sums[0] + sums[1]); });
}

void require(bool holds, const char* what) {
  if (!holds) throw lockstep::Error(std::string("wrong result: ") + what);
}

lockstep::Loader load(bool is_train, const lockstep::ProcessGroup& group) {
  const auto points = std::make_shared<const Spirals>(is_train);
  const int rank = group.rank(), size = group.size();
  if (!is_train) {
    return {points, lockstep::EvaluationSampler(points->size(), rank, size), {.batch_size = 100}};
  }
  return {points,
          lockstep::DistributedSampler(points->size(), {.rank = rank, .world_size = size}),
          {.batch_size = 20 / size}};
}

// Trains in `folder`, or resumes the run there.
lockstep::RunReport train(lockstep::ProcessGroup& group, const std::filesystem::path& folder) {
  torch::manual_seed(0);
  lockstep::ClassificationTask task(Net(), lockstep::ClassificationLoss::kCrossEntropy);
  task.add_metric(make_f1());
  task.add_metric(std::make_shared<lockstep::ConfusionMatrix>(2));
  lockstep::Loader loader = load(/*is_train=*/true, group);
  lockstep::Loader test_loader = load(/*is_train=*/false, group);
  const auto best = lockstep::MetricGoal::kMax;
  lockstep::TrainerOptions options{
      .max_epochs = 30,
      .early_stopping =
          lockstep::EarlyStoppingOptions{.monitor = "f1", .mode = best, .patience = 20},
      .accumulate_grad_batches = 2,
      .val_check_interval = 50,
      .num_sanity_val_steps = 1,
      .optimizer = lockstep::AdamWOptions{.lr = 0.01},
      .gradient_clip_norm = 1.0,
      .schedule = {.kind = lockstep::ScheduleKind::kOneCycle, .cycle_momentum = true},
      .ema_decay = 0.98,
      .deterministic = true,
      .checkpoints = {.directory = folder / "checkpoints",
                      .save_top_k = 1,
                      .monitor = "f1",
                      .mode = best,
                      .background = true},
      .resume = lockstep::Resume::kAuto,
      .model_summary_depth = -1,  // all modules
      .log_histograms_every_n_steps = 500,
      .profiler = {.kind = lockstep::Profiler::kSimple},
      .info = {.recipe = "spirals"}};
  if (group.rank() == 0) {  // the Trainer calls listeners on rank 0 only
    options.listeners = lockstep::make_terminal_listeners(std::cout, {});
    options.listeners.push_back(std::make_unique<lockstep::LoggingListener>(lockstep::make_loggers(
        {"csv", "tensorboard"}, {.directory = folder / "logs", .run_name = "spirals"})));
  }
  auto strategy = lockstep::make_strategy(group.size() == 1 ? "single" : "ddp", group);
  return lockstep::Trainer(options, std::move(strategy)).fit(task, loader, test_loader);
}

}  // namespace

int main(int argc, char** argv) try {
  lockstep::ProcessGroupOptions options;
  if (argc > 1) options.backend = argv[1];
  auto group = lockstep::init_process_group(options);
  torch::set_num_threads(1);
  const std::string id = group.broadcast_object(std::to_string(getpid()), 0);
  const auto folder = std::filesystem::temp_directory_path() / ("lockstep-trainer-" + id);
  std::filesystem::create_directories(folder / "logs");

  const lockstep::RunReport report = train(group, folder);
  require(report.test && report.test->value_of("f1").value_or(0) > 0.95,
          "the net has learnt the spirals");
  require(!report.profile.empty(), "the run has a profile");
  const lockstep::RunReport again = train(group, folder);
  require(again.already_complete, "the checkpoint is that of a complete run");
  require(again.test->value_of("f1") == report.test->value_of("f1"), "it has the averaged weights");

  group.barrier();
  if (group.rank() != 0) return 0;
  std::filesystem::remove_all(folder);
  std::printf("group of %d over %s: all results are right\n", group.size(),
              group.backend().c_str());
  return 0;
} catch (const std::exception& error) {
  std::fprintf(stderr, "error: %s\n", error.what());
  return lockstep::exit_code(error);
}
