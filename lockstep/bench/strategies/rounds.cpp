#include <lockstep/bench/strategies/rounds.h>

#include <set>

#include <lockstep/bench/strategies/cuts.h>
#include <lockstep/bench/strategies/figures.h>
#include <lockstep/bench/strategies/rank.h>
#include <lockstep/core/error.h>

namespace lockstep::bench {
namespace {

LaunchResult measure_round(const BenchStrategiesSettings& settings, StrategyRounds& rounds) {
  SharedFigures figures(rounds.way.ranks);
  LaunchResult result = launch_ranks({.nproc_per_node = rounds.way.ranks,
                                      .rank_output = RankOutput::kInherited,
                                      .join_timeout = settings.timeout},
                                     [&] { bench_strategy_rank(settings, rounds.way, figures); });
  if (result.exit_code == exit_code(ConfigError("")) && result.failed_rank >= 0) {
    rounds.why_not = result.message;
    return {};
  }
  if (result.ok()) rounds.figures.push_back(figures.all());
  return result;
}

}  // namespace

LaunchResult add_balanced_cuts(BenchStrategiesSettings& settings) {
  std::set<int> stages;
  for (const StrategyWay& way : settings.ways) {
    if (way.has_pipeline()) stages.insert(way.stages);
  }
  if (settings.cut != "balance" || stages.empty()) return {};
  const std::vector<int> counts(stages.begin(), stages.end());
  SharedPlaces<SharedNote> notes(static_cast<int>(counts.size()));
  LaunchResult result = launch_ranks({.nproc_per_node = 1, .rank_output = RankOutput::kInherited},
                                     [&] { balance_strategy_stages(settings, counts, notes); });
  for (std::size_t i = 0; i < counts.size() && result.ok(); ++i) {
    settings.cuts.push_back(parse_stage_cuts(counts[i], notes.at(static_cast<int>(i)).text()));
  }
  return result;
}

MeasuredStrategies measure_strategies(
    const BenchStrategiesSettings& settings,
    const std::function<void(int round, const std::string& way)>& begins) {
  MeasuredStrategies measured;
  std::vector<StrategyRounds>& ways = measured.ways;
  for (const StrategyWay& way : settings.ways) {
    ways.push_back({.way = way, .figures = {}, .why_not = {}});
  }
  for (int round = 0; round < settings.rounds; ++round) {
    for (std::size_t i = 0; i < ways.size(); ++i) {
      StrategyRounds& way = ways[(static_cast<std::size_t>(round) + i) % ways.size()];
      if (!way.why_not.empty()) continue;
      if (begins) begins(round, way.way.name);
      measured.failure = measure_round(settings, way);
      if (!measured.failure.ok()) return measured;
    }
  }
  return measured;
}

}  // namespace lockstep::bench
