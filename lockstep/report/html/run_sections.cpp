#include <lockstep/report/html/run_sections.h>

#include <algorithm>
#include <charconv>
#include <optional>
#include <vector>

#include <lockstep/core/strings.h>
#include <lockstep/report/advice/advice.h>
#include <lockstep/report/html/base64.h>
#include <lockstep/report/html/chart_width.h>
#include <lockstep/report/html/critical_path.h>
#include <lockstep/report/html/line_chart.h>
#include <lockstep/report/html/page_parts.h>
#include <lockstep/report/html/phase_colors.h>
#include <lockstep/report/html/stacked_bars.h>
#include <lockstep/report/html/step_timeline.h>
#include <lockstep/report/html/wait_matrix.h>
#include <lockstep/report/svg.h>
#include <lockstep/report/text.h>

namespace lockstep::html {
namespace {

using Amounts = std::vector<std::pair<std::string, double>>;

constexpr int kMostRanksShown = 16;
constexpr std::size_t kMostSteps = 10;

std::string milliseconds(double microseconds) { return report::fixed_text(microseconds / 1e3, 3); }

// Combines bars with different parts: one part for every name, in order of first use.
void add_bar(StackedBars& bars, const std::string& name, const Amounts& amounts) {
  StackedBar bar{.name = name, .parts = std::vector<double>(bars.parts.size(), 0.0)};
  for (const auto& [part, microseconds] : amounts) {
    const auto known = std::ranges::find(bars.parts, part);
    const auto place = static_cast<std::size_t>(known - bars.parts.begin());
    if (known == bars.parts.end()) {
      bars.parts.push_back(part);
      bar.parts.push_back(0);
      for (StackedBar& other : bars.bars) other.parts.push_back(0);
    }
    bar.parts[place] += microseconds / 1e3;
  }
  bars.bars.push_back(std::move(bar));
  bars.colors = phase_colors(bars.parts);
}

Table table_of(const StackedBars& bars, const std::string& first) {
  Table table{.titles = {first}};
  for (const std::string& part : bars.parts) table.titles.push_back(str(part, ", ", bars.unit));
  for (const StackedBar& bar : bars.bars) {
    Cells cells = {bar.name};
    for (const double part : bar.parts) cells.push_back(report::fixed_text(part, 3));
    table.rows.push_back(std::move(cells));
  }
  return table;
}

Commands commands_of_run(const RunData& run) { return {{run.name, run.command}}; }

std::string clock_note(const TracedRun& trace) {
  if (trace.ranks < 2) return "";
  double most = 0;
  for (const auto& [rank, uncertainty] : trace.uncertainty) most = std::max(most, uncertainty);
  return str(" All times are on rank 0's clock, which the other ranks know to ",
             report::fixed_text(most, 1), " \u00b5s.");
}

// The note of a figure that shows only the first `most` ranks.
std::string first_ranks_note(const TracedRun& trace, int most) {
  return trace.ranks > most ? str(" The first ", most, " of ", trace.ranks, " ranks.") : "";
}

std::string timeline_figure(const RunData& run, const TracedStep& step) {
  const TracedRun& trace = *run.trace;
  const StepWindow window = whole_window(step);
  Table table{.titles = {"rank", "row", "what", "begins, ms", "takes, ms"}};
  for (const TracedSpan& span : trace.spans) {
    if (span.rank >= kMostRanksShown || span.end <= window.begin || span.begin >= window.end)
      continue;
    table.rows.push_back({str(span.rank), span.track, span.name,
                          milliseconds(span.begin - window.begin),
                          milliseconds(span.end - span.begin)});
  }
  return text_of(Figure{
      .title = str("Timeline of ", step.name),
      .note = str("What each thread of each rank did, from the wait for the batch on.",
                  clock_note(trace), first_ranks_note(trace, kMostRanksShown)),
      .picture = in_both_widths(StepTimeline{.run = trace, .step = step, .ranks = kMostRanksShown}),
      .table = std::move(table),
      .commands = commands_of_run(run)});
}

// The critical path of the last step as a sentence, and a bar for each of the last steps.
std::string path_figure(const RunData& run) {
  const TracedRun& trace = *run.trace;
  StackedBars bars{.title = "Critical path", .unit = "ms"};
  const std::size_t first = trace.steps.size() - std::min(trace.steps.size(), kMostSteps);
  for (std::size_t i = first; i < trace.steps.size(); ++i) {
    add_bar(bars, trace.steps[i].name, path_shares(critical_path(trace, trace.steps[i])));
  }
  const TracedStep& step = trace.steps.back();
  const std::vector<PathPart> path = critical_path(trace, step);
  if (path.empty()) return "";
  const double whole = path.back().end - path.front().begin;
  Table table{.titles = {"rank", "what", "ms", "share"}};
  for (const PathPart& part : path) {
    table.rows.push_back({str("rank ", part.rank), part.what, milliseconds(part.end - part.begin),
                          report::percent_text((part.end - part.begin) / whole)});
  }
  std::string note = str(
      "What decided how long a step took: the way back from the rank that ended it last. Where a "
      "rank waited for a collective or a message, the way goes on at the rank that came last. Time "
      "between phases is not accounted for: the trace does not say what it went into. The path of ",
      step.name, " accounts for ", report::percent_text(accounted_share(path, step)), " of its ",
      milliseconds(whole), " ms");
  const char* before = ": ";
  for (const auto& [what, time] : path_shares(path)) {
    if (time / whole < 0.01) continue;
    note += str(before, what, " ", report::percent_text(time / whole));
    before = ", ";
  }
  return text_of(
      Figure{.title = bars.title,
             .note = note + ".",
             .picture = in_both_widths(bars) + text_of(table, "critical path of " + step.name),
             .table = table_of(bars, "step"),
             .commands = commands_of_run(run)});
}

std::string phases_figure_of(const RunData& run) {
  const TracedRun& trace = *run.trace;
  StackedBars bars{.title = "Phases of the traced steps, by rank", .unit = "ms"};
  for (int rank = 0; rank < std::min(trace.ranks, kMostRanksShown); ++rank) {
    add_bar(bars, str("rank ", rank), mean_phases(trace, rank));
  }
  return text_of(
      Figure{.title = bars.title,
             .note = str("Each rank's training thread, the mean of ",
                         amount_of(static_cast<std::int64_t>(trace.steps.size()), "step"), ".",
                         first_ranks_note(trace, kMostRanksShown)),
             .picture = in_both_widths(bars),
             .table = table_of(bars, "rank"),
             .commands = commands_of_run(run)});
}

// Returns 12 for "step 12".
std::optional<double> number_of(const TracedStep& step) {
  const auto at = step.name.find_last_of(' ') + 1;
  double number = 0;
  const char* const end = step.name.data() + step.name.size();
  const auto [stop, error] = std::from_chars(step.name.data() + at, end, number);
  if (error != std::errc() || stop != end) return std::nullopt;
  return number;
}

// How long a rank waited for the batch of each step.
std::vector<double> waits_for_data(const TracedRun& trace, int rank) {
  std::vector<double> waits(trace.steps.size());
  const report::TimeWindows steps = step_windows(trace, rank);
  for (const TracedSpan& span : trace.spans) {
    if (span.rank != rank || span.name != "wait for data") continue;
    steps.visit(span.begin, span.end, [&](std::size_t step, const StepWindow& window) {
      const bool is_within = span.begin >= window.begin && span.end <= window.end;
      if (is_within) waits[step] += span.end - span.begin;
    });
  }
  return waits;
}

// The number of batches that were ready when a rank asked for that of each step: the first value
// in the step.
std::vector<std::optional<double>> ready_batches(const TracedRun& trace, int rank) {
  std::vector<std::optional<double>> ready(trace.steps.size());
  const report::TimeWindows steps = step_windows(trace, rank);
  for (const TracedValue& value : trace.values) {
    if (value.rank != rank || value.name != "ready batches") continue;
    steps.visit(value.time, value.time, [&](std::size_t step, const StepWindow&) {
      if (!ready[step]) ready[step] = value.value;
    });
  }
  return ready;
}

}  // namespace

std::string limits_of(const RunData& run) {
  if (!run.facts) return "";
  std::string text = paragraph(report::basis_of_shares(*run.facts)) + "<ul class=\"advice\">\n";
  for (const report::Advice& each : report::advise(*run.facts)) {
    text +=
        str("<li><b>", svg::escaped(each.limit), ", ", report::fixed_text(100 * each.share, 0),
            "%</b>: ", svg::escaped(each.figures), "<br/>", svg::escaped(each.option), "</li>\n");
  }
  return text + "</ul>\n";
}

std::string traced_step_of(const RunData& run) {
  if (!run.trace) {
    return paragraph(
        "There is no trace.json. Train with --trace for the timeline of a step, its "
        "critical path, who waits for whom, and the loader's queue.");
  }
  if (run.trace->steps.empty()) {
    return paragraph("The trace has no whole step that all ranks share.");
  }
  return timeline_figure(run, run.trace->steps.back()) + path_figure(run) + phases_figure_of(run) +
         wait_matrix(*run.trace, commands_of_run(run));
}

std::string queue_of(const RunData& run) {
  if (!run.trace || run.trace->steps.empty()) return "";
  const TracedRun& trace = *run.trace;
  LineChart chart{.title = "The loader's queue",
                  .x_label = "step",
                  .y_label = "batches ready",
                  .whole_numbers = true};
  Table table{.titles = {"rank", "step", "batches ready", "wait for data, ms"}};
  constexpr int kMostCurves = static_cast<int>(svg::kColors);
  for (int rank = 0; rank < std::min(trace.ranks, kMostCurves); ++rank) {
    Curve curve{.name = str("rank ", rank)};
    const std::vector<std::optional<double>> ready = ready_batches(trace, rank);
    const std::vector<double> waits = waits_for_data(trace, rank);
    for (std::size_t i = 0; i < trace.steps.size(); ++i) {
      const std::optional<double> number = number_of(trace.steps[i]);
      if (!ready[i] || !number) continue;
      curve.points.emplace_back(*number, *ready[i]);
      table.rows.push_back({curve.name, str(*number), str(*ready[i]), milliseconds(waits[i])});
    }
    chart.curves.push_back(std::move(curve));
  }
  return text_of(
      Figure{.title = chart.title,
             .note = str("How many batches lay ready when a step asked for one. At 0 the step "
                         "waits for the loader.",
                         first_ranks_note(trace, kMostCurves)),
             .picture = in_both_widths(chart),
             .table = std::move(table),
             .commands = commands_of_run(run)});
}

std::string pictures_of(const RunData& run) {
  std::string text;
  for (const RunPictureFile& picture : run.pictures) {
    const std::string size = str(picture.width, " x ", picture.height, " pixels",
                                 picture.divisor > 1 ? str(", shown at 1/", picture.divisor) : "");
    text += str("<figure aria-label=\"", svg::escaped(picture.name), "\">\n<figcaption><b>",
                svg::escaped(picture.name), "</b><p>", size, "</p></figcaption>\n<img alt=\"",
                svg::escaped(picture.name), " of ", svg::escaped(run.name),
                "\" src=\"data:image/png;base64,", base64(picture.png), "\"/>\n<p><code>",
                svg::escaped(run.command), "</code></p>\n</figure>\n");
  }
  return text;
}

}  // namespace lockstep::html
