#include <lockstep/bench/strategies/rows.h>

#include <algorithm>

#include <lockstep/core/measuring/quantile.h>

namespace lockstep::bench {
namespace {

using RoundFigures = std::vector<RankFigures>;

constexpr double kNoticeable = 0.05;  // a smaller share of a step is not a limit

double largest(const RoundFigures& ranks, double RankFigures::* value) {
  double most = 0;
  for (const RankFigures& rank : ranks) most = std::max(most, rank.*value);
  return most;
}

double smallest(const RoundFigures& ranks, double RankFigures::* value) {
  double least = ranks.front().*value;
  for (const RankFigures& rank : ranks) least = std::min(least, rank.*value);
  return least;
}

double sum_of(const RoundFigures& ranks, double RankFigures::* value) {
  double sum = 0;
  for (const RankFigures& rank : ranks) sum += rank.*value;
  return sum;
}

double mean_of(const RoundFigures& ranks, double RankFigures::* value) {
  return sum_of(ranks, value) / static_cast<double>(ranks.size());
}

// The values of `of_round` for all rounds.
template <class OfRound>
std::vector<double> each_round(const StrategyRounds& rounds, const OfRound& of_round) {
  std::vector<double> values;
  for (const RoundFigures& ranks : rounds.figures) values.push_back(of_round(ranks));
  return values;
}

std::vector<double> steps_of(const StrategyRounds& rounds) {
  return each_round(rounds,
                    [](const auto& ranks) { return largest(ranks, &RankFigures::step_ms); });
}

double median_phase(const StrategyRounds& rounds, double RankFigures::* phase) {
  return median(each_round(rounds, [&](const auto& ranks) { return mean_of(ranks, phase); }));
}

// Uses strategy_ms instead of step_ms, because the optimizer's step is not part of the schedule.
double bubble_of(const RoundFigures& ranks) {
  const double computed =
      mean_of(ranks, &RankFigures::forward_ms) + mean_of(ranks, &RankFigures::backward_ms);
  const double lasted = largest(ranks, &RankFigures::strategy_ms);
  return lasted > 0 ? std::clamp(1 - computed / lasted, 0.0, 1.0) : 0;
}

std::int64_t median_bytes(const std::vector<double>& bytes) {
  return static_cast<std::int64_t>(median(bytes));
}

void add_memory(StrategyRow& row, const StrategyRounds& rounds) {
  std::vector<double> peaks, growths, sums, fullest;
  for (const RoundFigures& ranks : rounds.figures) {
    std::int64_t peak = 0, growth = 0, sum = 0, device = 0;
    for (const RankFigures& rank : ranks) {
      peak = std::max(peak, rank.peak_bytes);
      growth = std::max(growth, rank.peak_bytes - rank.start_bytes);
      sum += rank.proportional_bytes;
      device = std::max(device, rank.device_bytes);
    }
    peaks.push_back(static_cast<double>(peak));
    growths.push_back(static_cast<double>(growth));
    sums.push_back(static_cast<double>(sum));
    if (device > 0) fullest.push_back(static_cast<double>(device));
  }
  row.peak_bytes = median_bytes(peaks);
  row.peak_growth_bytes = median_bytes(growths);
  row.proportional_bytes = median_bytes(sums);
  if (!fullest.empty()) row.device_bytes = median_bytes(fullest);
}

std::vector<int> stages_in(std::uint32_t bits, int stages) {
  std::vector<int> named;
  for (int stage = 0; stage < stages; ++stage) {
    if ((bits >> stage & 1) != 0) named.push_back(stage);
  }
  return named;
}

void compare(StrategyRow& row, const std::vector<double>& singles) {
  std::vector<double> overheads, ratios;
  for (std::size_t round = 0; round < row.rounds_ms.size(); ++round) {
    overheads.push_back(row.rounds_ms[round] - singles[round]);
    ratios.push_back(singles[round] / row.rounds_ms[round]);
  }
  row.single_ms = spread_of(singles);
  row.overhead_ms = spread_of(overheads);
  row.ratio = spread_of(ratios);
}

}  // namespace

StepLimit limit_of(const StrategyRow& row) {
  StepLimit limit = {"processors", row.utilisation};
  if (row.way.ranks * row.way.threads > row.processors) return limit;
  StepLimit loss = {"idle", 1 - row.utilisation};
  if (row.exposed_ms) loss = {"communication", *row.exposed_ms / row.step_ms.median};
  if (row.bubble) loss = {"bubble", *row.bubble};
  return loss.share < kNoticeable ? limit : loss;
}

StrategyRow summarize(const BenchStrategiesSettings& settings, const StrategyRounds& rounds,
                      const StrategyRounds* single) {
  StrategyRow row;
  row.way = rounds.way;
  row.why_not = rounds.why_not;
  const int threads = row.way.ranks * row.way.threads;
  row.processors = std::min(threads, settings.work.threads);
  if (!row.why_not.empty()) return row;

  row.backend = rounds.figures.back().front().backend_name();
  row.steps = rounds.figures.back().front().steps;
  row.rounds_ms = steps_of(rounds);
  row.step_ms = spread_of(row.rounds_ms);
  row.samples_per_second = static_cast<double>(settings.work.batch) * 1e3 / row.step_ms.median;
  if (single != nullptr && single->figures.size() == rounds.figures.size()) {
    compare(row, steps_of(*single));
  }
  row.processor_ms = median(each_round(
      rounds, [](const auto& ranks) { return sum_of(ranks, &RankFigures::processor_ms); }));
  row.utilisation = median(each_round(rounds, [&](const auto& ranks) {
    return sum_of(ranks, &RankFigures::processor_ms) /
           (largest(ranks, &RankFigures::mean_step_ms) * row.processors);
  }));
  row.forward_ms = median_phase(rounds, &RankFigures::forward_ms);
  row.backward_ms = median_phase(rounds, &RankFigures::backward_ms);
  row.communication_ms = median_phase(rounds, &RankFigures::communication_ms);
  row.optimizer_ms = median_phase(rounds, &RankFigures::optimizer_ms);
  if (row.way.has_pipeline()) {
    row.whole_backward = stages_in(rounds.figures.back().front().whole_backward, row.way.stages);
    if (threads == row.processors) row.bubble = median(each_round(rounds, bubble_of));
  } else if (row.way.ranks > 1) {
    row.exposed_ms = median(each_round(
        rounds, [](const auto& ranks) { return smallest(ranks, &RankFigures::communication_ms); }));
  }
  add_memory(row, rounds);
  return row;
}

std::vector<StrategyRow> summarize(const BenchStrategiesSettings& settings,
                                   const std::vector<StrategyRounds>& ways) {
  const auto single = std::ranges::find_if(ways, [](const StrategyRounds& way) {
    return way.way.name == "single" && way.why_not.empty();
  });
  std::vector<StrategyRow> rows;
  for (const StrategyRounds& way : ways) {
    rows.push_back(summarize(settings, way, single == ways.end() ? nullptr : &*single));
  }
  return rows;
}

}  // namespace lockstep::bench
