#include <lockstep/cli/bench/strategies.h>

#include <unistd.h>

#include <algorithm>
#include <iostream>
#include <utility>
#include <vector>

#include <lockstep/bench/other_programs_note.h>
#include <lockstep/bench/strategies/rounds.h>
#include <lockstep/bench/strategies/rows.h>
#include <lockstep/cli/bench/bench_options.h>
#include <lockstep/cli/bench/step_settings.h>
#include <lockstep/cli/command_failure.h>
#include <lockstep/cli/flag_names.h>
#include <lockstep/core/measuring/other_programs.h>
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

std::vector<bench::StrategyRounds> measure(const bench::BenchStrategiesSettings& settings) {
  const RoundNotes notes(settings.rounds);
  bench::MeasuredStrategies measured = bench::measure_strategies(
      settings, [&](int round, const std::string& way) { notes.show(round, way); });
  require_success(measured.failure);
  for (bench::StrategyRounds& way : measured.ways) way.why_not = with_flags(way.why_not);
  return std::move(measured.ways);
}

}  // namespace

void bench_strategies(const bench::BenchStrategiesSettings& asked) {
  check_trace_folder(kBenchStep, asked.trace);
  bench::BenchStrategiesSettings settings = asked;
  require_success(bench::add_balanced_cuts(settings));
  const OtherPrograms others;
  const std::vector<bench::StrategyRow> rows = bench::summarize(settings, measure(settings));
  const bool measured =
      std::ranges::any_of(rows, [](const bench::StrategyRow& row) { return row.why_not.empty(); });
  if (!measured) throw CommandFailure(exit_code(ConfigError("")), rows.front().why_not);
  std::cout << bench::strategies_text(settings, rows);
  report::flush_output(std::cout);
  bench::warn_of_other_programs(others);
  if (!settings.json.empty())
    report::write_text_file(settings.json, bench::to_json(settings, rows));
}

}  // namespace lockstep::cli
