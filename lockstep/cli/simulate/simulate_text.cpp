#include <lockstep/cli/simulate/simulate_text.h>

#include <algorithm>

#include <nlohmann/json.hpp>

#include <lockstep/bench/json_text.h>
#include <lockstep/core/strings.h>
#include <lockstep/report/text.h>
#include <lockstep/simulate/extrapolation.h>

namespace lockstep::cli {
namespace {

using SimulateCells = std::vector<std::string>;

constexpr double kMilli = 1e3;

std::string ms_text(double seconds) { return report::significant_text(kMilli * seconds); }

SimulateCells step_cells(const std::string& first, const simulate::PredictedStep& step) {
  return {first,
          ms_text(step.step_seconds),
          str(ms_text(step.interval.low), " to ", ms_text(step.interval.high)),
          report::significant_text(100 * step.efficiency) + "%",
          ms_text(step.exposed_seconds),
          ms_text(step.taken_seconds),
          ms_text(step.straggler_seconds),
          std::to_string(step.buckets),
          step.extrapolations.empty() ? step.algorithm : step.algorithm + ", extrapolated"};
}

SimulateCells heading_cells(const std::string& first) {
  return {first,      "step ms",       "interval ms", "efficiency", "exposed ms",
          "taken ms", "stragglers ms", "buckets",     "algorithm"};
}

std::string markdown_line(const SimulateCells& cells) { return "| " + join(cells, " | ") + " |\n"; }

std::string markdown_cells(const std::vector<SimulateCells>& rows) {
  std::string text = markdown_line(rows.front()) + "|---|";
  for (std::size_t i = 1; i < rows.front().size(); ++i) {
    text += i + 1 < rows.front().size() ? "---:|" : "---|";
  }
  text += '\n';
  for (std::size_t i = 1; i < rows.size(); ++i) text += markdown_line(rows[i]);
  return text;
}

std::string aligned_cells(const std::vector<SimulateCells>& rows) {
  std::vector<int> widths(rows.front().size());
  for (const SimulateCells& row : rows) {
    for (std::size_t i = 0; i < row.size(); ++i) {
      widths[i] = std::max(widths[i], static_cast<int>(row[i].size()));
    }
  }
  widths.front() = -widths.front();  // left-aligned
  widths.back() = -widths.back();
  std::string text;
  for (const SimulateCells& row : rows) {
    std::string line = report::padded_cells(row, widths);
    line.erase(line.find_last_not_of(' ') + 1);
    text += line + '\n';
  }
  return text;
}

std::string heading(const SimulateSettings& settings) {
  const simulate::StepProfile& run = settings.profile;
  std::string text = str(run.name, ": ");
  if (run.steps > 0) {
    text += str("a run of ", run.strategy, " on ", amount_of(run.ranks, "rank"));
    if (!run.backend.empty()) text += " over " + run.backend;
    if (run.step_seconds > 0) text += str(", ", ms_text(run.step_seconds), " ms a step");
    text += str(" (", amount_of(run.steps, "traced step"), ")\n");
  } else {
    text += str("a profile, ", ms_text(run.compute_seconds()), " ms a step of one rank\n");
  }
  text += str("data ", ms_text(run.data_seconds), ", forward ", ms_text(run.forward_seconds),
              ", backward ", ms_text(run.backward_seconds), ", optimizer ",
              ms_text(run.optimizer_seconds), ", other ", ms_text(run.other_seconds), " ms; ",
              report::bytes_text(run.bytes()), " of gradients in ",
              amount_of(static_cast<std::int64_t>(run.buckets.size()), "bucket"), "\n");
  text += str("predicted: ", settings.options.strategy, " over ", settings.network.name);
  if (settings.options.ranks_per_host > 1) {
    text += str(", ", settings.options.ranks_per_host, " ranks a host");
  }
  return text + "\n";
}

// What is said before the tables of a run that other programs slowed down.
std::string disturbance_text(const SimulateSettings& settings) {
  if (!settings.disturbance) return "";
  return str("The run was disturbed: other programs took ",
             report::fixed_text(100 * settings.disturbance->share, 0),
             "% of a step from it. The predictions include this time; repeat the run on a quiet "
             "machine.\n");
}

// One line each for the columns, the meaning of the intervals and each extrapolation.
std::string notes_text(const SimulateSettings& settings, const SimulateResult& result) {
  const char* const bullet = settings.format == "markdown" ? "- " : "";
  std::string text = str(
      bullet,
      "Columns: efficiency is the step time of one rank divided by this one; exposed is "
      "communication that backward does not hide; taken is the computing time lost to moving data; "
      "stragglers is the wait for the slowest rank; algorithm is the all-reduce of the largest "
      "bucket.\n",
      bullet,
      "Interval: in checks on 2 ranks over a connection of this kind, 95% of the measured steps "
      "were within their predicted intervals",
      settings.network.shares_processor
          ? "; its upper end is 4 ms later, because Gloo's threads may wait that long for the "
            "rank's only processor"
          : "",
      " (see docs/simulate.md in the sources).\n");
  const auto is_extrapolated = [](const simulate::WhatIf& answer) {
    return !answer.step.extrapolations.empty();
  };
  if (std::ranges::any_of(result.answers, is_extrapolated)) {
    text +=
        str(bullet,
            "Extrapolated: the rows whose last column says so; --json gives the reasons of each "
            "row.\n");
  }
  for (const std::string& note : result.extrapolations) {
    text += str(bullet, "Extrapolated: ", note, ".\n");
  }
  return text;
}

nlohmann::ordered_json step_json(const simulate::PredictedStep& step) {
  return {{"ranks", step.ranks},
          {"step_ms", kMilli * step.step_seconds},
          {"interval_ms", {kMilli * step.interval.low, kMilli * step.interval.high}},
          {"efficiency", step.efficiency},
          {"exposed_ms", kMilli * step.exposed_seconds},
          {"taken_ms", kMilli * step.taken_seconds},
          {"straggler_ms", kMilli * step.straggler_seconds},
          {"algorithm", step.algorithm},
          {"buckets", step.buckets},
          {"extrapolations", step.extrapolations}};
}

}  // namespace

SimulateResult simulate(const SimulateSettings& settings) {
  SimulateResult result;
  for (const int ranks : settings.ranks) {
    result.rows.push_back(
        simulate::predict_step(settings.profile, settings.network, ranks, settings.options));
  }
  result.extrapolations = simulate::extrapolations(settings.profile, settings.network,
                                                   settings.ranks, settings.options);
  result.answers = simulate::what_if(settings.profile, settings.network, settings.ranks.back(),
                                     settings.options);
  return result;
}

std::string simulate_text(const SimulateSettings& settings, const SimulateResult& result) {
  std::vector<SimulateCells> rows{heading_cells("ranks")};
  for (const simulate::PredictedStep& step : result.rows) {
    rows.push_back(step_cells(std::to_string(step.ranks), step));
  }
  std::vector<SimulateCells> answers{
      heading_cells("what if, " + amount_of(settings.ranks.back(), "rank"))};
  for (const simulate::WhatIf& answer : result.answers)
    answers.push_back(step_cells(answer.name, answer.step));
  const auto table = settings.format == "markdown" ? markdown_cells : aligned_cells;
  return heading(settings) + disturbance_text(settings) + "\n" + table(rows) + "\n" +
         table(answers) + "\n" + notes_text(settings, result);
}

std::string to_json(const SimulateSettings& settings, const SimulateResult& result) {
  using SimulateJson = nlohmann::ordered_json;
  SimulateJson rows = SimulateJson::array();
  for (const simulate::PredictedStep& step : result.rows) rows.push_back(step_json(step));
  SimulateJson answers = SimulateJson::array();
  for (const simulate::WhatIf& answer : result.answers) {
    SimulateJson row{{"name", answer.name}};
    row.update(step_json(answer.step));
    answers.push_back(std::move(row));
  }
  return bench::json_text(
      {{"run", SimulateJson::parse(simulate::to_json(settings.profile))},
       {"other_programs",
        settings.disturbance ? SimulateJson(settings.disturbance->share) : SimulateJson()},
       {"strategy", settings.options.strategy},
       {"network", settings.network.name},
       {"algorithm", settings.options.algorithm},
       {"ranks_per_host", settings.options.ranks_per_host},
       {"rows", std::move(rows)},
       {"what_if", std::move(answers)},
       {"extrapolations", result.extrapolations}});
}

}  // namespace lockstep::cli
