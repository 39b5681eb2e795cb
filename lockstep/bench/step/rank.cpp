#include <lockstep/bench/step/rank.h>

#include <algorithm>
#include <iostream>
#include <optional>
#include <sstream>

#include <ATen/Parallel.h>
#include <c10/util/Logging.h>

#include <lockstep/bench/group.h>
#include <lockstep/bench/step/rows.h>
#include <lockstep/bench/trace_folder.h>
#include <lockstep/core/clock.h>
#include <lockstep/core/cpu.h>
#include <lockstep/core/error.h>
#include <lockstep/core/log.h>
#include <lockstep/core/measuring/quantile.h>
#include <lockstep/launch/launcher.h>
#include <lockstep/launch/rank_setup.h>
#include <lockstep/report/json_report.h>
#include <lockstep/report/output.h>

namespace lockstep::bench {
namespace {

constexpr double kRoundSeconds = 0.2;
constexpr std::int64_t kMostSteps = 50;
constexpr std::int64_t kFurtherWarmUpSteps = 20;
constexpr int kWarmUpSteps = 2;  // the reducer rebuilds its buckets after the first step

std::string trace_name(const StepVariant& variant) {
  std::ostringstream name;
  name << variant.strategy << ' ' << variant.parameter_memory << ", buckets ";
  if (variant.bucket_cap_mb) {
    name << *variant.bucket_cap_mb << " MiB";
  } else {
    name << "whole";
  }
  if (variant.find_unused_parameters) name << ", unused parameters";
  return name.str();
}

class StepMeasurement {
 public:
  StepMeasurement(const BenchStepSettings& settings, ProcessGroup group, const MakeTrainer& make)
      : settings_(settings), group_(group), start_line_(make_start_line(group, settings.timeout)) {
    const StepWork work{.model = settings.model,
                        .batch_per_rank = settings.batch_per_rank,
                        .precision = parse_precision(settings.precision),
                        .optimizer = settings.optimizer,
                        .set_to_none = settings.set_to_none};
    torch::manual_seed(0);
    if (!settings.alone) {
      ways_.push_back(make_uncoupled(work));
      ways_.push_back(make_in_step(work, start_line_));
    }
    for (StepVariant variant : settings.variants) {
      if (variant.parameter_memory == "auto") {
        variant.parameter_memory = variant.strategy != "zero1" ? "as-is"
                                   : group.shares_memory()     ? "shared"
                                                               : "flat";
      }
      ways_.push_back(make(work, variant, group));
      variants_.push_back(std::move(variant));
    }
  }

  void run() {
    const std::int64_t steps = warm_up();
    std::vector<std::vector<StepRound>> mine(ways_.size());
    for (int round = 0; round < settings_.rounds; ++round) {
      for (std::size_t i = 0; i < ways_.size(); ++i) {
        const std::size_t way = (static_cast<std::size_t>(round) + i) % ways_.size();
        mine[way].push_back(time_steps(*ways_[way], steps));
      }
    }
    report(mine, steps);
    trace();
    // No rank may leave while rank 0 may still ask.
    start_line_.barrier();
  }

 private:
  // Returns the number of steps in a round.
  std::int64_t warm_up() {
    double slowest = 0;
    for (const auto& way : ways_) {
      for (int i = 0; i < kWarmUpSteps; ++i) slowest = time_steps(*way, 1).step_ms / 1e3;
    }
    const auto fitting =
        static_cast<std::int64_t>(std::min<double>(kRoundSeconds / slowest, kMostSteps));
    const std::int64_t steps = settings_.steps > 0
                                   ? settings_.steps
                                   : agree(start_line_, std::max<std::int64_t>(fitting, 1));
    if (steps > 1) {
      for (const auto& way : ways_) time_steps(*way, std::min(steps, kFurtherWarmUpSteps));
    }
    return steps;
  }

  StepRound time_steps(StepTrainer& trainer, std::int64_t steps) {
    start_line_.barrier();
    const double cpu = processor_seconds();
    std::optional<double> waited = trainer.exposed_seconds();
    StepRound round;
    std::vector<double> milliseconds;
    for (std::int64_t i = 0; i < steps; ++i) {
      const auto start = Clock::now();
      trainer.step();
      milliseconds.push_back(seconds_since(start) * 1e3);
      if (!waited) continue;
      const double now = *trainer.exposed_seconds();
      round.waited_ms.push_back((now - *waited) * 1e3);
      waited = now;
    }
    round.cpu_ms = (processor_seconds() - cpu) * 1e3 / static_cast<double>(steps);
    round.step_ms = median(std::move(milliseconds));
    return round;
  }

  // Gathers the rounds of one way from all ranks.
  StepRounds gather(const std::vector<StepRound>& mine) {
    std::vector<double> flat;
    for (const StepRound& each : mine) {
      flat.insert(flat.end(), {each.step_ms, each.cpu_ms});
      flat.insert(flat.end(), each.waited_ms.begin(), each.waited_ms.end());
    }
    const auto length = static_cast<std::ptrdiff_t>(flat.size() / mine.size());
    StepRounds times;
    for (const auto& rank : gather_all(start_line_, flat)) {
      auto& rounds = times.emplace_back();
      for (auto at = rank.begin(); at != rank.end(); at += length)
        rounds.push_back({at[0], at[1], {at + 2, at + length}});
    }
    return times;
  }

  std::int64_t most(double mine) {
    double largest = 0;
    for (const auto& rank : gather_all(start_line_, {mine})) largest = std::max(largest, rank[0]);
    return static_cast<std::int64_t>(largest);
  }

  void report(const std::vector<std::vector<StepRound>>& mine, std::int64_t steps) {
    std::vector<StepRounds> times;
    for (const auto& way : mine) times.push_back(gather(way));
    BenchStepRow about;
    about.model = settings_.model;
    about.backend = group_.backend();
    about.ranks = group_.size();
    about.threads_per_rank = settings_.threads;
    about.batch_per_rank = settings_.batch_per_rank;
    about.precision = settings_.precision;
    about.optimizer = settings_.optimizer;
    about.set_to_none = settings_.set_to_none;
    about.rounds = settings_.rounds;
    about.steps = steps;
    about.peak_rss_bytes = most(static_cast<double>(peak_rss_bytes()));
    about.proportional_bytes = most(static_cast<double>(proportional_bytes()));
    if (group_.rank() != 0) return;
    std::cout << heading() << '\n' << bench_step_heading() << '\n';
    const std::size_t first = settings_.alone ? 0 : 2;
    std::vector<BenchStepRow> rows;
    for (std::size_t i = 0; i < variants_.size(); ++i) {
      BenchStepRow row = about;
      row.variant = variants_[i];
      rows.push_back(summarize(row, times[first + i], first == 0 ? nullptr : &times[0],
                               first == 0 ? nullptr : &times[1]));
      std::cout << table_line(rows.back()) << '\n';
    }
    report::flush_output(std::cout);
    if (!settings_.json.empty()) report::write_text_file(settings_.json, to_json(rows));
  }

  // The first two ways are baselines without rows.
  void trace() {
    if (settings_.trace.empty()) return;
    const std::size_t first = settings_.alone ? 0 : 2;
    for (std::size_t i = 0; i < variants_.size(); ++i) {
      StepTrainer& trainer = *ways_[first + i];
      trace_steps(
          trace_file_of(settings_.trace, trace_name(variants_[i])), [&] { trainer.step(); },
          [&] { return trainer.spans(); }, group_);
    }
  }

  std::string heading() const {
    return lockstep::str(settings_.model, " over ", group_.backend(), ", ", group_.size(),
                         " ranks x ", amount_of(settings_.threads, "thread"), ", batch ",
                         settings_.batch_per_rank, " each, precision ", settings_.precision, ", ",
                         settings_.optimizer);
  }

  const BenchStepSettings& settings_;
  ProcessGroup group_;
  ProcessGroup start_line_;
  std::vector<StepVariant> variants_;
  std::vector<std::unique_ptr<StepTrainer>> ways_;
};

}  // namespace

void bench_step_rank(const BenchStepSettings& settings, const MakeTrainer& make) {
  constexpr int kErrors = 2;
  if (!log_enabled(LogLevel::kDebug)) FLAGS_caffe2_log_level = kErrors;
  launch::prepare_rank(settings.worker ? *settings.worker : worker_environment().value(),
                       settings.threads);
  at::set_num_threads(settings.threads);
  const ProcessGroup group =
      init_process_group({.backend = settings.backend, .timeout = settings.timeout});
  joined_group();
  StepMeasurement(settings, group, make).run();
}

}  // namespace lockstep::bench
