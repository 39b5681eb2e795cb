#include <lockstep/report/html/run_pages.h>

#include <algorithm>
#include <set>

#include <lockstep/core/error.h>
#include <lockstep/report/advice/advice.h>
#include <lockstep/report/html/base64.h>
#include <lockstep/report/html/line_chart.h>
#include <lockstep/report/html/run_data.h>
#include <lockstep/report/html/stacked_bars.h>
#include <lockstep/report/html/step_timeline.h>
#include <lockstep/report/svg.h>
#include <lockstep/report/text.h>

namespace lockstep::html {
namespace {

using Runs = std::vector<RunData>;
using Cells = std::vector<std::string>;

std::string rules_of(const svg::Palette& palette) {
  std::string rules = str("body,dialog{background:", palette.back, ";color:", palette.ink, "}text{fill:",
                          palette.ink, "}.s{fill:", palette.soft, ";color:", palette.soft, "}.l{stroke:",
                          palette.line, "}td,th{border-color:", palette.line, "}a{color:", palette.colors[0],
                          "}\n");
  for (std::size_t color = 0; color < svg::kColors; ++color) {
    rules += str(".k", color, "{stroke:", palette.colors[color], "}.f", color, "{fill:", palette.colors[color],
                 "}");
  }
  return rules + "\n";
}

std::string style() {
  return str(
      "<style>\n:root{color-scheme:light dark}body{font:15px/1.5 system-ui,sans-serif;margin:0 auto;"
      "max-width:960px;padding:0 16px 48px}h2{margin-top:40px}svg{max-width:100%;height:auto}"
      "text{font:12px system-ui,sans-serif}.m{text-anchor:middle}.e{text-anchor:end}.l,.a{fill:none}"
      ".a{stroke-width:1.8}.o{stroke-dasharray:5 3}table{border-collapse:collapse;font-size:13px}"
      "td,th{border:1px solid;padding:2px 8px;text-align:right}td:first-child,th:first-child{text-align:left}"
      ".scroll{overflow-x:auto}summary{cursor:pointer}code,pre{font-size:13px;overflow-wrap:anywhere;"
      "white-space:pre-wrap}img{max-width:100%}nav a{margin-right:12px}\n",
      rules_of(svg::kLight), "@media (prefers-color-scheme:dark){\n", rules_of(svg::kDark), "}\n</style>\n");
}

std::string table(const Cells& titles, const std::vector<Cells>& rows) {
  std::string text = "<div class=\"scroll\"><table><thead><tr>";
  for (const std::string& title : titles) text += "<th>" + svg::escaped(title) + "</th>";
  text += "</tr></thead><tbody>\n";
  for (const Cells& row : rows) {
    text += "<tr>";
    for (const std::string& cell : row) text += "<td>" + svg::escaped(cell) + "</td>";
    text += "</tr>\n";
  }
  return text + "</tbody></table></div>\n";
}

// A picture with its rows and the commands that made them. Nothing without a picture.
std::string figure(const std::string& title, const std::string& picture, const Cells& titles,
                   const std::vector<Cells>& rows, const Runs& runs) {
  if (picture.empty()) return "";
  std::string text = str("<figure aria-label=\"", svg::escaped(title), "\">\n<figcaption><b>",
                         svg::escaped(title), "</b></figcaption>\n<div class=\"scroll\">", picture,
                         "</div>\n<details><summary>Rows, and the command</summary>\n",
                         table(titles, rows));
  for (const RunData& run : runs) {
    text += str("<p>", svg::escaped(run.name), ": <code>", svg::escaped(run.command), "</code></p>\n");
  }
  return text + "</details>\n</figure>\n";
}

std::string section(const std::string& id, const std::string& title, const std::string& content) {
  if (content.empty()) return "";
  return str("<section id=\"", id, "\">\n<h2>", svg::escaped(title), "</h2>\n", content, "</section>\n");
}

// One value of each epoch, a curve for each run.
template <class Value>
std::string epochs_figure(const std::string& title, const std::string& label, const Runs& runs,
                          const Value& value, bool from_zero) {
  LineChart chart{.title = title, .x_label = "epoch", .y_label = label, .from_zero = from_zero};
  std::vector<Cells> rows;
  for (const RunData& run : runs) {
    Curve curve{.name = run.name};
    for (const EpochData& epoch : run.epochs) {
      const std::optional<double> y = value(epoch);
      if (!y) continue;
      curve.points.emplace_back(epoch.epoch, *y);
      rows.push_back({run.name, fixed_text(epoch.epoch, 0), str(*y)});
    }
    if (!curve.points.empty()) chart.curves.push_back(std::move(curve));
  }
  return figure(title, svg_of(chart), {"run", "epoch", label}, rows, runs);
}

std::string learning(const Runs& runs) {
  std::string text = epochs_figure(
      "Training loss", "loss", runs,
      [](const EpochData& epoch) { return std::optional<double>(epoch.train_loss); }, true);
  std::set<std::string> metrics;
  for (const RunData& run : runs) {
    for (const EpochData& epoch : run.epochs) {
      for (const auto& [name, value] : epoch.metrics) metrics.insert(name);
    }
  }
  for (const std::string& metric : metrics) {
    text += epochs_figure("Validation: " + metric, metric, runs, [&metric](const EpochData& epoch) {
      const auto found = epoch.metrics.find(metric);
      return found == epoch.metrics.end() ? std::nullopt : std::optional<double>(found->second);
    }, false);
  }
  return text;
}

std::string speed(const Runs& runs) {
  std::string text = epochs_figure(
      "Throughput", "images/s", runs,
      [](const EpochData& epoch) { return std::optional<double>(epoch.images_per_second); }, true);
  StackedBars bars{.title = "Phases of the epochs, on rank 0", .unit = "s", .parts = phase_names()};
  std::vector<Cells> rows;
  for (const RunData& run : runs) {
    for (const EpochData& epoch : run.epochs) {
      const std::string name = str(runs.size() > 1 ? run.name + ", " : "", "epoch ", epoch.epoch);
      bars.bars.push_back({.name = name, .parts = epoch.phases});
      Cells cells = {name};
      for (const double phase : epoch.phases) cells.push_back(fixed_text(phase, 3));
      rows.push_back(std::move(cells));
    }
  }
  Cells titles = {"epoch"};
  titles.insert(titles.end(), phase_names().begin(), phase_names().end());
  text += figure(bars.title, svg_of(bars), titles, rows, runs);
  text += epochs_figure("Processors that a rank keeps busy", "processors", runs, [](const EpochData& epoch) {
    return std::optional<double>(epoch.processors);
  }, true);
  text += epochs_figure("GPU utilisation", "share of time", runs,
                        [](const EpochData& epoch) { return epoch.gpu_utilisation; }, true);
  return text;
}

// Images per second against the number of ranks, and the line of runs that lose nothing.
std::string scaling(const Runs& runs) {
  std::set<int> counts;
  for (const RunData& run : runs) counts.insert(run.ranks);
  if (counts.size() < 2) return "";
  Curve measured{.name = "measured"};
  std::vector<Cells> rows;
  std::map<int, double> best;
  for (const RunData& run : runs) {
    double rate = 0;
    for (const EpochData& epoch : run.epochs) rate = std::max(rate, epoch.images_per_second);
    best[run.ranks] = std::max(best[run.ranks], rate);
    rows.push_back({run.name, str(run.ranks), count_text(rate)});
  }
  Curve ideal{.name = "ideal", .is_dashed = true};
  const auto [fewest, rate] = *best.begin();
  for (const auto& [ranks, value] : best) {
    measured.points.emplace_back(ranks, value);
    ideal.points.emplace_back(ranks, rate * ranks / fewest);
  }
  const LineChart chart{.title = "Scaling", .x_label = "ranks", .y_label = "images/s", .curves = {measured, ideal}};
  return figure("Scaling: the best epoch of each run", svg_of(chart), {"run", "ranks", "images/s"}, rows, runs);
}

std::string path_text(const RunData& run, const std::string& step) {
  const std::vector<PathPart> path = critical_path(*run.trace, step);
  double sum = 0, named = 0;
  for (const PathPart& part : path) {
    sum += part.end - part.begin;
    if (part.what != "other") named += part.end - part.begin;
  }
  if (sum <= 0) return "";
  std::vector<Cells> rows;
  for (const PathPart& part : path) {
    rows.push_back({str("rank ", part.rank), part.what, fixed_text((part.end - part.begin) / 1e3, 3),
                    fixed_text(100 * (part.end - part.begin) / sum, 1) + "%"});
  }
  return str("<h3>Critical path of ", svg::escaped(step), "</h3>\n<p>What decided that the step took ",
             fixed_text(sum / 1e3, 3), " ms; ", fixed_text(100 * named / sum, 1), "% of it has a name.</p>\n",
             table({"rank", "what", "ms", "share"}, rows));
}

std::string waits_text(const TracedRun& trace) {
  if (trace.ranks < 2 || trace.steps.empty()) return "";
  const auto waits = waits_of(trace);
  Cells titles = {"waits \\ for"};
  for (int rank = 0; rank < trace.ranks; ++rank) titles.push_back(str("rank ", rank));
  std::vector<Cells> rows;
  const auto steps = static_cast<double>(trace.steps.size());
  for (std::size_t rank = 0; rank < waits.size(); ++rank) {
    Cells row = {str("rank ", rank)};
    for (const double wait : waits[rank]) row.push_back(fixed_text(wait / 1e3 / steps, 3));
    rows.push_back(std::move(row));
  }
  return str("<h3>Who waits for whom</h3>\n<p>Milliseconds a step in reductions, until the last rank began; backward "
             "may hide them.</p>\n", table(titles, rows));
}

std::string traced(const RunData& run) {
  if (!run.trace || run.trace->steps.empty()) return "";
  const TracedRun& trace = *run.trace;
  const std::string& step = trace.steps.back();
  std::vector<Cells> rows;
  for (const TracedSpan& span : trace.spans) {
    if (span.category != "step") continue;
    rows.push_back({str("rank ", span.rank), span.name, fixed_text((span.end - span.begin) / 1e3, 3)});
  }
  return figure(str("Timeline of ", step, " over all ranks"), timeline_svg(trace, step), {"rank", "step", "ms"},
                rows, {run}) +
         path_text(run, step) + waits_text(trace);
}

std::string advice_section(const RunData& run) {
  if (!run.facts) return "";
  std::string text = "<ul>\n";
  for (const Advice& each : advise(*run.facts)) {
    text += str("<li><b>", svg::escaped(each.limit), ", ", fixed_text(100 * each.share, 0), "%</b>: ",
                svg::escaped(each.figures), " ", svg::escaped(each.option), "</li>\n");
  }
  return text + "</ul>\n";
}

std::string picture_of(const RunData& run) {
  if (run.picture.empty()) return "";
  return str("<img alt=\"images and what the model makes of them\" src=\"data:image/png;base64,",
             base64(run.picture), "\">\n");
}

std::string configuration(const Runs& runs) {
  std::vector<std::string> names;
  for (const RunData& run : runs) {
    for (const auto& [name, value] : run.configuration) {
      if (std::ranges::find(names, name) == names.end()) names.push_back(name);
    }
  }
  Cells titles = {""};
  for (const RunData& run : runs) titles.push_back(run.name);
  std::vector<Cells> rows;
  for (const std::string& name : names) {
    Cells row = {name};
    for (const RunData& run : runs) {
      const auto found = std::ranges::find_if(run.configuration, [&](const auto& each) { return each.first == name; });
      row.push_back(found == run.configuration.end() ? "" : found->second);
    }
    rows.push_back(std::move(row));
  }
  return str("<details><summary>", names.size(), " settings and results</summary>\n", table(titles, rows),
             "</details>\n");
}

std::string heading(const Runs& runs) {
  std::vector<Cells> rows;
  for (const RunData& run : runs) {
    const std::string state = run.error.empty() ? run.state : str(run.state, ": ", run.error);
    rows.push_back({run.name, state, run.started, str(run.ranks), str(run.epochs.size())});
  }
  std::string text = table({"run", "state", "started", "ranks", "epochs"}, rows);
  for (const RunData& run : runs) text += str("<p><code>", svg::escaped(run.command), "</code></p>\n");
  return text;
}

// Folders may have one name; numbers tell them apart.
void tell_apart(Runs& runs) {
  std::map<std::string, int> seen;
  for (RunData& run : runs) {
    const int count = ++seen[run.name];
    if (count > 1) run.name += str(" (", count, ")");
  }
}

}  // namespace

std::string page_of(const std::vector<std::filesystem::path>& folders, const std::string& command) {
  if (folders.empty()) throw ConfigError("report: give the folder of a run");
  Runs runs;
  for (const std::filesystem::path& folder : folders) runs.push_back(read_run_data(folder));
  tell_apart(runs);
  std::string names;
  for (const RunData& run : runs) names += (names.empty() ? "" : ", ") + run.name;
  std::string body = section("configuration", "Configuration", configuration(runs)) +
                     section("learning", "Learning", learning(runs)) +
                     section("speed", "Speed", speed(runs)) +
                     section("scaling", "Scaling", scaling(runs));
  for (std::size_t i = 0; i < runs.size(); ++i) {
    const std::string of = runs.size() > 1 ? ": " + runs[i].name : "";
    const std::string number = std::to_string(i + 1);
    body += section("limits-" + number, "What limited it" + of, advice_section(runs[i])) +
            section("step-" + number, "A step" + of, traced(runs[i])) +
            section("picture-" + number, "Picture" + of, picture_of(runs[i]));
  }
  return str("<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n<meta name=\"viewport\" "
             "content=\"width=device-width,initial-scale=1\">\n<title>Lockstep: ", svg::escaped(names),
             "</title>\n", style(), "</head>\n<body>\n<h1>", svg::escaped(names), "</h1>\n", heading(runs), body,
             "<p class=\"s\">Made by <code>", svg::escaped(command), "</code></p>\n</body>\n</html>\n");
}

}  // namespace lockstep::html
