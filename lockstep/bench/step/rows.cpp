#include <lockstep/bench/step/rows.h>

#include <algorithm>
#include <array>

#include <nlohmann/json.hpp>

#include <lockstep/core/measuring/quantile.h>
#include <lockstep/report/text.h>

namespace lockstep::bench {
namespace {

constexpr std::size_t kStepColumns = 8;
constexpr std::array<int, kStepColumns> kStepWidths = {-26, 8,  9, 9,
                                                       9,   16, 9, 9};  // negative: to the left

std::string step_line(const std::array<std::string, kStepColumns>& cells) {
  return report::padded_cells(cells, kStepWidths);
}

// For each round, the value on the rank where it is largest.
std::vector<double> of_slowest(const StepRounds& times, double StepRound::* value) {
  std::vector<double> slowest;
  for (std::size_t round = 0; round < times[0].size(); ++round) {
    double most = times[0][round].*value;
    for (const auto& rank : times) most = std::max(most, rank[round].*value);
    slowest.push_back(most);
  }
  return slowest;
}

// For each round, the mean of what `choose` selects from the waits of a step's ranks.
template <class Choose>
std::optional<Spread> mean_wait(const StepRounds& times, const Choose& choose) {
  if (times[0][0].waited_ms.empty()) return std::nullopt;
  std::vector<double> means;
  for (std::size_t round = 0; round < times[0].size(); ++round) {
    double sum = 0;
    const std::size_t steps = times[0][round].waited_ms.size();
    for (std::size_t step = 0; step < steps; ++step) {
      double chosen = times[0][round].waited_ms[step];
      for (const auto& rank : times) chosen = choose(chosen, rank[round].waited_ms[step]);
      sum += chosen;
    }
    means.push_back(sum / static_cast<double>(steps));
  }
  return spread_of(means);
}

std::vector<double> minus(std::vector<double> values, const std::vector<double>& others) {
  for (std::size_t i = 0; i < values.size(); ++i) values[i] -= others[i];
  return values;
}

nlohmann::ordered_json median_of(const std::optional<Spread>& spread) {
  if (!spread) return nullptr;
  return spread->median;
}

nlohmann::ordered_json quartiles_of(const std::optional<Spread>& spread) {
  if (!spread) return nullptr;
  return {spread->low, spread->high};
}

std::string text_of(const std::optional<Spread>& spread) {
  return spread ? report::fixed_text(spread->median, 3) : "-";
}

std::string name_of(const StepVariant& variant) {
  return variant.strategy +
         (variant.parameter_memory == "as-is" ? "" : ", " + variant.parameter_memory) +
         (variant.find_unused_parameters ? ", find unused" : "");
}

}  // namespace

Spread spread_of(const std::vector<double>& values) {
  return {quantile(values, 0.5), quantile(values, 0.25), quantile(values, 0.75)};
}

BenchStepRow summarize(BenchStepRow row, const StepRounds& variant, const StepRounds* single,
                       const StepRounds* in_step) {
  const std::vector<double> steps = of_slowest(variant, &StepRound::step_ms);
  row.step_ms = spread_of(steps);
  row.rounds_ms = steps;
  row.exposed_ms = mean_wait(variant, [](double a, double b) { return std::min(a, b); });
  row.waited_ms = mean_wait(variant, [](double a, double b) { return std::max(a, b); });
  row.cpu_ms = spread_of(of_slowest(variant, &StepRound::cpu_ms));
  if (single == nullptr || in_step == nullptr) return row;
  const std::vector<double> singles = of_slowest(*single, &StepRound::step_ms);
  const std::vector<double> in_steps = of_slowest(*in_step, &StepRound::step_ms);
  row.single_rounds_ms = singles;
  row.in_step_rounds_ms = in_steps;
  row.step_ms_single = spread_of(singles);
  row.cpu_ms_single = spread_of(of_slowest(*single, &StepRound::cpu_ms));
  row.overhead_ms = spread_of(minus(steps, singles));
  row.in_step_overhead_ms = spread_of(minus(in_steps, singles));
  row.over_in_step_ms = spread_of(minus(steps, in_steps));
  return row;
}

std::string to_json(const std::vector<BenchStepRow>& rows) {
  auto json = nlohmann::ordered_json::array();
  for (const BenchStepRow& row : rows) {
    nlohmann::ordered_json cap = nullptr;
    if (row.variant.bucket_cap_mb) cap = *row.variant.bucket_cap_mb;
    json.push_back({{"model", row.model},
                    {"strategy", row.variant.strategy},
                    {"backend", row.backend},
                    {"ranks", row.ranks},
                    {"threads_per_rank", row.threads_per_rank},
                    {"batch_per_rank", row.batch_per_rank},
                    {"precision", row.precision},
                    {"step_ms", row.step_ms.median},
                    {"step_ms_single", median_of(row.step_ms_single)},
                    {"overhead_ms", median_of(row.overhead_ms)},
                    {"overhead_ms_quartiles", quartiles_of(row.overhead_ms)},
                    {"in_step_overhead_ms", median_of(row.in_step_overhead_ms)},
                    {"over_in_step_ms", median_of(row.over_in_step_ms)},
                    {"over_in_step_ms_quartiles", quartiles_of(row.over_in_step_ms)},
                    {"exposed_ms", median_of(row.exposed_ms)},
                    {"waited_ms", median_of(row.waited_ms)},
                    {"cpu_ms", row.cpu_ms.median},
                    {"cpu_ms_single", median_of(row.cpu_ms_single)},
                    {"optimizer", row.optimizer},
                    {"set_to_none", row.set_to_none},
                    {"bucket_cap_mb", cap},
                    {"parameter_memory", row.variant.parameter_memory},
                    {"find_unused_parameters", row.variant.find_unused_parameters},
                    {"rounds", row.rounds},
                    {"steps", row.steps},
                    {"peak_rss_bytes", row.peak_rss_bytes},
                    {"proportional_bytes", row.proportional_bytes},
                    {"rounds_ms", row.rounds_ms},
                    {"single_rounds_ms", row.single_rounds_ms},
                    {"in_step_rounds_ms", row.in_step_rounds_ms}});
  }
  return json.dump(2) + "\n";
}

std::string bench_step_heading() {
  return step_line(
      {"strategy", "bucket", "step ms", "single", "overhead", "quartiles", "in step", "exposed"});
}

std::string table_line(const BenchStepRow& row) {
  const std::string quartiles = row.overhead_ms
                                    ? report::fixed_text(row.overhead_ms->low, 3) + " to " +
                                          report::fixed_text(row.overhead_ms->high, 3)
                                    : "-";
  const auto& cap = row.variant.bucket_cap_mb;
  return step_line({name_of(row.variant),
                    cap ? report::fixed_text(*cap, *cap < 1 ? 2 : 0) + " MiB" : "whole",
                    report::fixed_text(row.step_ms.median, 3), text_of(row.step_ms_single),
                    text_of(row.overhead_ms), quartiles, text_of(row.in_step_overhead_ms),
                    text_of(row.exposed_ms)});
}

}  // namespace lockstep::bench
