#include <lockstep/bench/strategies/rank.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <optional>
#include <utility>
#include <vector>

#include <ATen/Parallel.h>
#include <c10/util/Logging.h>

#include <lockstep/bench/group.h>
#include <lockstep/bench/step/trainer.h>
#include <lockstep/bench/strategies/work.h>
#include <lockstep/bench/trace_folder.h>
#include <lockstep/core/clock.h>
#include <lockstep/core/cpu.h>
#include <lockstep/core/log.h>
#include <lockstep/core/measuring/quantile.h>
#include <lockstep/launch/launcher.h>
#include <lockstep/launch/rank_setup.h>
#include <lockstep/parallel/base/thread_share.h>
#include <lockstep/train/measuring/phase_scope.h>
#include <lockstep/train/optimization/step_seed.h>
#include <lockstep/train/strategies/strategy.h>

namespace lockstep::bench {
namespace {

constexpr double kTimedSeconds = 1;
constexpr std::int64_t kFewestTimedSteps = 3;
constexpr std::int64_t kMostTimedSteps = 1000;
// Steps before timing begins: the reducer rebuilds its buckets after the first one, and memory is
// allocated until the second one.
constexpr int kFirstSteps = 2;
// A new process is slower for a while, so a fifth of the number of timed steps is run before them.
constexpr std::int64_t kPartBefore = 5;

StrategyOptions options_of_way(const StrategyWay& way, std::chrono::milliseconds timeout,
                               bool measure_memory) {
  StrategyOptions options;
  options.timeout = timeout;
  options.measure_memory = measure_memory;
  if (way.replicas > 1) {
    options.devices.assign(static_cast<std::size_t>(way.replicas), torch::Device(torch::kCPU));
  }
  if (!way.dp_loss.empty()) options.dp_loss = parse_dp_loss(way.dp_loss);
  if (way.has_pipeline()) {
    options.stages = way.stages;
    options.micro_batches = way.micro_batches;
    options.schedule = schedule_named(way.schedule);
    options.recompute = way.recompute;
  }
  options.shard_optimizer = way.shard_optimizer;
  return options;
}

// Divides `batch` into `count` parts; if it is not divisible, the first ones have one more image.
std::vector<Batch> parts_of(const Batch& batch, int count) {
  const std::vector<torch::Tensor> images = batch.images.tensor_split(count);
  const std::vector<torch::Tensor> labels = batch.labels.tensor_split(count);
  std::vector<Batch> parts;
  for (std::size_t i = 0; i < images.size(); ++i) {
    parts.push_back({.images = images[i], .labels = labels[i], .size = images[i].size(0)});
  }
  return parts;
}

// A model trained with one strategy on this rank's share of the batch.
class StrategyTrainer {
 public:
  StrategyTrainer(const BenchStrategiesSettings& settings, const StrategyWay& way,
                  ProcessGroup group, bool measure_memory = false) {
    torch::manual_seed(0);  // all ranks begin with equal weights
    task_ = make_strategy_task(settings.model, settings.cuts);
    strategy_ = make_strategy(way.strategy, std::move(group),
                              options_of_way(way, settings.timeout, measure_memory));
    const DataShare share = strategy_->data_share();
    share_rank_ = share.rank;
    strategy_->place(task_->module(), torch::kCPU);
    strategy_->attach(*task_,
                      {.device = torch::kCPU, .precision = parse_precision(settings.precision)});
    if (strategy_->has_all_processors()) alone_.emplace();  // as the training loop does
    optimizer_ = strategy_->make_optimizer(optimizer_options(settings.optimizer));
    torch::manual_seed(static_cast<std::uint64_t>(1 + share.rank));
    batch_ =
        make_strategy_batch(settings.model, settings.image_size, settings.work.batch / share.size);
    // A pipeline divides the batch itself.
    parts_ = parts_of(batch_, way.has_pipeline() ? 1 : std::max(1, way.micro_batches));
    task_->module().train();
    strategy_->follow_modes();
  }

  // Runs a step as the training loop does. Returns its milliseconds.
  double step() {
    const auto start = Clock::now();
    {
      const train::PhaseScope scope(phases_.optimizer, "zero gradients");
      optimizer_->zero_grad();
    }
    strategy_->seed(step_seed(0, 1, steps_++, share_rank_), torch::kCPU);
    {
      const SecondsScope scope(strategy_seconds_);
      for (const Batch& part : parts_) {
        const double share = static_cast<double>(part.size) / static_cast<double>(batch_.size);
        strategy_->step(part, {.weight = share, .is_last = &part == &parts_.back()}, phases_);
      }
    }
    {
      const train::PhaseScope scope(phases_.optimizer, "optimizer");
      optimizer_->step();
    }
    return seconds_since(start) * 1e3;
  }

  void forget_times() {
    phases_ = {};
    strategy_seconds_ = 0;
  }
  const PhaseSeconds& phases() const { return phases_; }
  std::vector<Span> spans() { return strategy_->spans(); }
  double strategy_seconds() const { return strategy_seconds_; }

  // See RankFigures.
  std::uint32_t whole_backward() const {
    RunInfo info;
    strategy_->describe(info);
    std::uint32_t bits = 0;
    for (const int stage : info.whole_backward) bits |= std::uint32_t{1} << stage;
    return bits;
  }
  // Bytes of the last step; 0 if the strategy does not know them.
  std::int64_t bytes_of_fullest_device() const {
    const std::vector<std::int64_t> bytes = strategy_->device_bytes(optimizer_->state());
    return bytes.empty() ? 0 : *std::max_element(bytes.begin(), bytes.end());
  }

 private:
  // Each member depends on those before it.
  std::unique_ptr<OutputTask> task_;
  std::unique_ptr<Strategy> strategy_;
  std::optional<SingleThreadScope> alone_;
  std::unique_ptr<RunOptimizer> optimizer_;
  Batch batch_;
  std::vector<Batch> parts_;  // views of it
  int share_rank_ = 0;
  std::int64_t steps_ = 0;
  PhaseSeconds phases_;
  double strategy_seconds_ = 0;
};

// Returns the number of steps for all ranks: as many as rank 0 has time for.
std::int64_t warm_up(StrategyTrainer& trainer, std::int64_t wanted, ProcessGroup& group) {
  double last_ms = 0;
  for (int i = 0; i < kFirstSteps; ++i) last_ms = trainer.step();
  const double fitting = std::ceil(kTimedSeconds * 1e3 / last_ms);
  const auto own = static_cast<std::int64_t>(std::clamp(
      fitting, static_cast<double>(kFewestTimedSteps), static_cast<double>(kMostTimedSteps)));
  const std::int64_t steps = wanted > 0 ? wanted : agree(group, own);
  for (std::int64_t i = 0; i < steps / kPartBefore; ++i) trainer.step();
  return steps;
}

// Counts bytes in a separate step, with another copy of the model, because counting takes time.
// Only pipelines of threads know the memory of each device.
std::int64_t count_device_bytes(const BenchStrategiesSettings& settings, const StrategyWay& way,
                                const ProcessGroup& group) {
  if (!way.has_pipeline() || way.ranks > 1) return 0;
  StrategyTrainer counted(settings, way, group, /*measure_memory=*/true);
  counted.step();
  return counted.bytes_of_fullest_device();
}

void time_rank(StrategyTrainer& trainer, std::int64_t steps, RankFigures& figures) {
  trainer.forget_times();
  std::vector<double> milliseconds;
  const double processor = processor_seconds();
  double sum_ms = 0;
  for (std::int64_t i = 0; i < steps; ++i) {
    milliseconds.push_back(trainer.step());
    sum_ms += milliseconds.back();
  }
  const double to_ms = 1e3 / static_cast<double>(steps);
  figures.processor_ms = (processor_seconds() - processor) * to_ms;
  figures.mean_step_ms = sum_ms / static_cast<double>(steps);
  figures.step_ms = median(std::move(milliseconds));
  figures.strategy_ms = trainer.strategy_seconds() * to_ms;
  figures.forward_ms = trainer.phases().forward * to_ms;
  figures.backward_ms = trainer.phases().backward * to_ms;
  figures.communication_ms = trainer.phases().communication * to_ms;
  figures.optimizer_ms = trainer.phases().optimizer * to_ms;
}

}  // namespace

void bench_strategy_rank(const BenchStrategiesSettings& settings, const StrategyWay& way,
                         SharedFigures& figures) {
  constexpr int kErrors = 2;
  if (!log_enabled(LogLevel::kDebug)) FLAGS_caffe2_log_level = kErrors;
  const WorkerEnvironment worker = worker_environment().value();
  launch::prepare_rank(worker, way.threads);
  at::set_num_threads(way.threads);
  const ProcessGroup group =
      init_process_group({.backend = settings.backend, .timeout = settings.timeout});
  joined_group();
  ProcessGroup start_line = group.size() == 1 ? group : make_start_line(group, settings.timeout);

  RankFigures mine;
  mine.set_backend(group.size() == 1 ? "none" : group.backend());
  mine.start_bytes = rss_bytes();
  std::optional<StrategyTrainer> trainer(std::in_place, settings, way, group);
  const std::int64_t steps = warm_up(*trainer, settings.steps, start_line);
  start_line.barrier();
  time_rank(*trainer, steps, mine);
  mine.peak_bytes = peak_rss_bytes();
  // Memory is read while all ranks exist, so that shared pages are divided by the number of ranks.
  start_line.barrier();
  mine.proportional_bytes = proportional_bytes();
  if (!settings.trace.empty()) {
    trace_steps(
        trace_file_of(settings.trace, way.name), [&] { trainer->step(); },
        [&] { return trainer->spans(); }, start_line);
  }
  mine.whole_backward = trainer->whole_backward();
  if (way.ranks == 1) trainer.reset();  // avoids holding two models in memory
  mine.device_bytes = count_device_bytes(settings, way, group);
  mine.steps = steps;
  figures.at(group.rank()) = mine;
  start_line.barrier();
}

}  // namespace lockstep::bench
