#include <lockstep/cli/bench/strategies.h>

#include <unistd.h>

#include <iostream>
#include <set>
#include <vector>

#include <lockstep/bench/other_programs_note.h>
#include <lockstep/bench/strategies/cuts.h>
#include <lockstep/bench/strategies/rank.h>
#include <lockstep/bench/strategies/rows.h>
#include <lockstep/cli/bench/bench_options.h>
#include <lockstep/cli/bench/step_settings.h>
#include <lockstep/cli/command_failure.h>
#include <lockstep/cli/flag_names.h>
#include <lockstep/core/measuring/other_programs.h>
#include <lockstep/launch/launcher.h>
#include <lockstep/report/json_report.h>
#include <lockstep/report/output.h>
#include <lockstep/report/terminal.h>
#include <lockstep/report/terminal_bar.h>
#include <lockstep/report/text.h>

namespace lockstep::cli {
namespace {

// Shows on a terminal what is being measured, because a comparison takes minutes.
class RoundNotes {
 public:
  explicit RoundNotes(int rounds)
      : rounds_(rounds), shows_(detect_terminal(STDERR_FILENO).interactive) {}
  ~RoundNotes() {
    if (shows_) std::cerr << report::kClearLine << std::flush;
  }
  RoundNotes(const RoundNotes&) = delete;
  RoundNotes& operator=(const RoundNotes&) = delete;

  void show(int round, const std::string& way) const {
    if (!shows_) return;
    std::cerr << report::kClearLine << "round " << round + 1 << " of " << rounds_ << ": " << way
              << std::flush;
  }

 private:
  const int rounds_;
  const bool shows_;
};

// Measures the cuts in another process, so that this one has no LibTorch threads when it forks.
bench::BenchStrategiesSettings with_cuts(bench::BenchStrategiesSettings settings) {
  std::set<int> stages;
  for (const bench::StrategyWay& way : settings.ways) {
    if (way.has_pipeline()) stages.insert(way.stages);
  }
  if (settings.cut != "balance" || stages.empty()) return settings;
  const std::vector<int> counts(stages.begin(), stages.end());
  bench::SharedPlaces<bench::SharedNote> notes(static_cast<int>(counts.size()));
  require_success(launch_ranks({.nproc_per_node = 1, .rank_output = RankOutput::kInherited},
                               [&] { bench::balance_strategy_stages(settings, counts, notes); }));
  for (std::size_t i = 0; i < counts.size(); ++i) {
    settings.cuts.push_back(
        bench::parse_stage_cuts(counts[i], notes.at(static_cast<int>(i)).text()));
  }
  return settings;
}

void measure_round(const bench::BenchStrategiesSettings& settings, bench::StrategyRounds& rounds) {
  bench::SharedFigures figures(rounds.way.ranks);
  const LaunchResult result =
      launch_ranks({.nproc_per_node = rounds.way.ranks,
                    .rank_output = RankOutput::kInherited,
                    .join_timeout = settings.timeout},
                   [&] { bench::bench_strategy_rank(settings, rounds.way, figures); });
  if (result.exit_code == exit_code(ConfigError("")) && result.failed_rank >= 0) {
    rounds.why_not = with_flags(result.message);
    return;
  }
  require_success(result);
  rounds.figures.push_back(figures.all());
}

std::vector<bench::StrategyRounds> measure_ways(const bench::BenchStrategiesSettings& settings) {
  std::vector<bench::StrategyRounds> ways;
  for (const bench::StrategyWay& way : settings.ways) {
    ways.push_back({.way = way, .figures = {}, .why_not = {}});
  }
  const RoundNotes notes(settings.rounds);
  for (int round = 0; round < settings.rounds; ++round) {
    for (std::size_t i = 0; i < ways.size(); ++i) {
      bench::StrategyRounds& way = ways[(static_cast<std::size_t>(round) + i) % ways.size()];
      if (!way.why_not.empty()) continue;
      notes.show(round, way.way.name);
      measure_round(settings, way);
    }
  }
  return ways;
}

// The rounds of the way "single"; null if not measured.
const bench::StrategyRounds* single_among(const std::vector<bench::StrategyRounds>& ways) {
  for (const bench::StrategyRounds& way : ways) {
    if (way.way.name == "single" && way.why_not.empty()) return &way;
  }
  return nullptr;
}

}  // namespace

void bench_strategies(const bench::BenchStrategiesSettings& asked) {
  check_trace_folder(kBenchStep, asked.trace);
  const bench::BenchStrategiesSettings settings = with_cuts(asked);
  const OtherPrograms others;
  const std::vector<bench::StrategyRounds> ways = measure_ways(settings);
  std::vector<bench::StrategyRow> rows;
  bool measured = false;
  for (const bench::StrategyRounds& way : ways) {
    rows.push_back(bench::summarize(settings, way, single_among(ways)));
    measured = measured || way.why_not.empty();
  }
  if (!measured) throw CommandFailure(exit_code(ConfigError("")), rows.front().why_not);
  std::cout << bench::strategies_text(settings, rows);
  report::flush_output(std::cout);
  bench::warn_of_other_programs(others);
  if (!settings.json.empty())
    report::write_json_file(settings.json, bench::to_json(settings, rows));
}

}  // namespace lockstep::cli
