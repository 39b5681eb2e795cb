#include <lockstep/report/html/comparison.h>

#include <algorithm>
#include <iomanip>
#include <set>
#include <sstream>

#include <lockstep/core/strings.h>
#include <lockstep/report/html/chart_width.h>
#include <lockstep/report/html/line_chart.h>
#include <lockstep/report/html/phase_colors.h>
#include <lockstep/report/html/stacked_bars.h>
#include <lockstep/report/svg.h>
#include <lockstep/report/text.h>

namespace lockstep::html {
namespace {

constexpr const char* kLoss = "loss";
constexpr const char* kBestValue = "best value";
constexpr const char* kBestWeights = "weights of the best value";

// A metric or a loss with four significant digits.
std::string value_text(double value) {
  std::ostringstream text;
  text << std::setprecision(4) << value;
  return text.str();
}

// "10 of 32 steps"
std::string part_text(double steps, const EpochData& epoch) {
  return str(steps, " of ", epoch.steps_per_epoch, " steps");
}

// What a value covers if that is only a part of its epoch; empty if it is the whole epoch.
using PartOfEpoch = std::string (*)(const EpochData& epoch);

// For times and training losses, which are those of one command's steps.
std::string trained_part(const EpochData& epoch) {
  return epoch.is_partial() ? part_text(epoch.steps, epoch) : "";
}

// For evaluations, which are of the weights at the end.
std::string evaluated_part(const EpochData& epoch) {
  if (!epoch.ends_within()) return "";
  return "after " + part_text(epoch.steps_before + epoch.steps, epoch);
}

// One value per epoch, as a ring if it covers a part only.
template <class Value>
Curve epoch_curve(const std::string& name, const RunData& run, PartOfEpoch part_of,
                  const Value& value) {
  Curve curve{.name = name};
  for (const EpochData& epoch : run.epochs) {
    const std::optional<double> y = value(epoch);
    if (!y) continue;
    curve.points.emplace_back(epoch.epoch, *y);
    const std::string part = part_of(epoch);
    if (!part.empty()) curve.rings.emplace(epoch.epoch, part);
  }
  return curve;
}

Figure epochs_figure(LineChart chart, const Runs& runs) {
  chart.ring_meaning = "part of an epoch";
  Table table{.titles = {"curve", "epoch", chart.y_label}};
  for (const Curve& curve : chart.curves) {
    for (const auto& [epoch, value] : curve.points) {
      const auto ring = curve.rings.find(epoch);
      const std::string part = ring == curve.rings.end() ? "" : str(" (", ring->second, ")");
      table.rows.push_back({curve.name, str(epoch, part), str(value)});
    }
  }
  return {.title = chart.title,
          .picture = in_both_widths(chart),
          .table = std::move(table),
          .commands = commands_of(runs)};
}

// A chart with a curve for each run.
template <class Value>
Figure epochs_figure(const std::string& title, const std::string& label, const Runs& runs,
                     bool from_zero, PartOfEpoch part_of, const Value& value) {
  LineChart chart{.title = title, .x_label = "epoch", .y_label = label, .from_zero = from_zero};
  for (const RunData& run : runs) {
    chart.curves.push_back(epoch_curve(run.name, run, part_of, value));
  }
  return epochs_figure(std::move(chart), runs);
}

std::optional<double> metric_of(const EpochData& epoch, const std::string& name) {
  const auto found = epoch.metrics.find(name);
  return found == epoch.metrics.end() ? std::nullopt : std::optional(found->second);
}

// The run's last value of a metric.
std::optional<double> last_metric(const RunData& run, const std::string& name) {
  for (auto epoch = run.epochs.rbegin(); epoch != run.epochs.rend(); ++epoch) {
    if (const auto value = metric_of(*epoch, name)) return value;
  }
  return std::nullopt;
}

std::set<std::string> metric_names(const Runs& runs) {
  std::set<std::string> names;
  for (const RunData& run : runs) {
    for (const EpochData& epoch : run.epochs) {
      for (const auto& [name, value] : epoch.metrics) names.insert(name);
    }
  }
  return names;
}

// "validation loss 0.0512 in epoch 3"
std::string best_value_text(const BestEvaluation& best) {
  return str(report::watched_text(best.name), ' ', value_text(best.value), " in epoch ",
             best.epoch);
}

// A run's final figures, by name; texts are empty for missing figures.
std::vector<std::pair<std::string, std::string>> final_figures(
    const RunData& run, const std::set<std::string>& metrics) {
  std::vector<std::pair<std::string, std::string>> figures;
  figures.emplace_back("ranks", str(run.ranks));
  figures.emplace_back("epochs", str(run.epochs.size()));
  const bool has_loss = !run.epochs.empty() && run.epochs.back().train_loss;
  figures.emplace_back("training loss", has_loss ? value_text(*run.epochs.back().train_loss) : "");
  for (const std::string& metric : metrics) {
    const auto value = last_metric(run, metric);
    figures.emplace_back(report::watched_text(metric), value ? value_text(*value) : "");
  }
  figures.emplace_back(kBestValue, run.best ? best_value_text(*run.best) : "");
  figures.emplace_back(kBestWeights, run.best ? run.best->weights : "");
  figures.emplace_back("best images/s",
                       run.epochs.empty() ? "" : report::count_text(best_rate(run)));
  figures.emplace_back(
      "step", run.facts ? report::fixed_text(1e3 * run.facts->step_seconds, 2) + " ms" : "");
  figures.emplace_back("run time", run.seconds > 0 ? report::seconds_text(run.seconds) : "");
  figures.emplace_back("memory", run.peak_bytes > 0 ? report::bytes_text(run.peak_bytes) : "");
  return figures;
}

std::string state_text(const RunData& run) {
  return run.error.empty() ? run.state : str(run.state, ": ", run.error);
}

// "epochs 2 to 5, after step 24 of epoch 2"
std::string epochs_of(const RunCommand& command) {
  const std::string after = command.first_step > 0 ? str(", after step ", command.first_step,
                                                         " of epoch ", command.first_epoch)
                                                   : "";
  if (!command.last_epoch) return "no whole epoch" + after;
  if (*command.last_epoch == command.first_epoch) return str("epoch ", command.first_epoch, after);
  return str("epochs ", command.first_epoch, " to ", *command.last_epoch, after);
}

// "epoch 2", or "epoch 2 (8 of 32 steps)" of one of which the command made only a part.
std::string name_of(const EpochData& epoch) {
  const std::string part = trained_part(epoch);
  return str("epoch ", epoch.epoch, part.empty() ? "" : str(" (", part, ")"));
}

// When and how the run was started, and each time it was resumed, as HTML.
std::string origin_of(const RunData& run) {
  if (run.started.empty()) return "a record without the command and the time of its run";
  if (run.commands.size() < 2) {
    return str("started ", svg::escaped(run.started), "<br/><code>", svg::escaped(run.command),
               "</code>");
  }
  std::string text;
  for (const RunCommand& each : run.commands) {
    text += str(text.empty() ? "started " : "<br/>resumed ", svg::escaped(each.started), " (",
                epochs_of(each), ")<br/><code>", svg::escaped(each.command), "</code>");
  }
  return text;
}

// A CSS class, whatever the file contains.
std::string state_class(const RunData& run) {
  for (const char* known : {"complete", "failed", "interrupted", "running"}) {
    if (run.state == known) return known;
  }
  return "soft";
}

// The chart of phases has at most this many bars. With more epochs it shows every second, every
// third, and so on.
constexpr std::size_t kMostBars = 30;

std::size_t distance_of_bars(const Runs& runs) {
  std::size_t epochs = 0;
  for (const RunData& run : runs) epochs += run.epochs.size();
  return std::max<std::size_t>((epochs + kMostBars - 1) / kMostBars, 1);
}

// The indices in phase_names() of phases that any run has.
std::vector<std::size_t> phases_of(const Runs& runs) {
  std::vector<std::size_t> those;
  for (std::size_t phase = 0; phase < phase_names().size(); ++phase) {
    const auto has_it = [&](const EpochData& epoch) { return epoch.phases[phase] > 0; };
    const bool in_some = std::ranges::any_of(
        runs, [&](const RunData& run) { return std::ranges::any_of(run.epochs, has_it); });
    if (in_some) those.push_back(phase);
  }
  return those;
}

Figure phases_figure(const Runs& runs) {
  StackedBars bars{.title = "Phases of a step", .unit = "ms"};
  const std::vector<std::size_t> phases = phases_of(runs);
  for (const std::size_t phase : phases) bars.parts.push_back(phase_names()[phase]);
  bars.colors = phase_colors(bars.parts);
  Table table{.titles = {"epoch"}};
  table.titles.insert(table.titles.end(), bars.parts.begin(), bars.parts.end());
  const std::size_t distance = distance_of_bars(runs);
  for (const RunData& run : runs) {
    for (std::size_t i = 0; i < run.epochs.size(); ++i) {
      const EpochData& epoch = run.epochs[i];
      if (epoch.steps <= 0) continue;
      StackedBar bar{.name = str(runs.size() > 1 ? run.name + ", " : "", name_of(epoch))};
      Cells cells = {bar.name};
      for (const std::size_t phase : phases) {
        bar.parts.push_back(1e3 * epoch.phases[phase] / epoch.steps);
        cells.push_back(report::significant_text(bar.parts.back()));
      }
      if (i % distance == 0) bars.bars.push_back(std::move(bar));
      table.rows.push_back(std::move(cells));
    }
  }
  const std::string some =
      distance > 1 ? str(" The chart has one epoch of ", distance, ", the rows all.") : "";
  return {.title = bars.title,
          .note =
              "Milliseconds of rank 0's training thread, the mean of each epoch. Communication "
              "is what computing does not hide." +
              some,
          .picture = in_both_widths(bars),
          .table = std::move(table),
          .commands = commands_of(runs)};
}

// Without the long texts about the best values, so that all columns fit a window of 800 pixels.
Table figures_table(const Runs& runs, const std::set<std::string>& metrics) {
  Table table{.titles = {"run"}};
  for (const RunData& run : runs) {
    Cells cells = {run.name};
    for (const auto& [name, value] : final_figures(run, metrics)) {
      if (name == kBestValue || name == kBestWeights) continue;
      if (table.rows.empty()) table.titles.push_back(name);
      cells.push_back(value);
    }
    table.rows.push_back(std::move(cells));
  }
  return table;
}

// A table of the runs that have a best value; empty if none has.
std::string best_values(const Runs& runs) {
  Table table{.titles = {"run", kBestValue, kBestWeights}};
  for (const RunData& run : runs) {
    if (run.best) table.rows.push_back({run.name, best_value_text(*run.best), run.best->weights});
  }
  return table.rows.empty() ? "" : text_of(table, "best values");
}

}  // namespace

Commands commands_of(const Runs& runs) {
  Commands commands;
  for (const RunData& run : runs) commands.emplace_back(run.name, run.command);
  return commands;
}

std::vector<RankRate> rates_of(const Runs& runs) {
  std::vector<RankRate> rates;
  for (const RunData& run : runs) {
    if (!run.facts) continue;
    rates.push_back({.strategy = run.facts->strategy,
                     .work = run.work,
                     .source = run.name,
                     .ranks = run.ranks,
                     .global_batch = run.global_batch,
                     .images_per_second = best_rate(run)});
  }
  return rates;
}

std::string overview(const Runs& runs) {
  const std::set<std::string> metrics = metric_names(runs);
  std::string text;
  for (const RunData& run : runs) {
    text += str("<p><b>", svg::escaped(run.name), "</b>: <span class=\"", state_class(run), "\">",
                svg::escaped(state_text(run)), "</span>, ", origin_of(run), "</p>\n");
  }
  if (runs.size() == 1) {
    text += "<div class=\"cards\">\n";
    for (const auto& [name, value] : final_figures(runs.front(), metrics)) {
      if (value.empty()) continue;
      text += str("<div class=\"card\"><span>", svg::escaped(name), "</span><b>",
                  svg::escaped(value), "</b></div>\n");
    }
    text += "</div>\n";
    if (runs.front().epochs.empty()) {
      text += paragraph(
          str("The run has no whole epoch", runs.front().state == "running" ? " yet." : "."));
    }
    return text;
  }
  return text + text_of(figures_table(runs, metrics), "final figures") + best_values(runs);
}

std::string learning(const Runs& runs) {
  LineChart losses{.title = "Loss", .x_label = "epoch", .y_label = kLoss};
  for (std::size_t i = 0; i < runs.size(); ++i) {
    const std::string of = runs.size() > 1 ? runs[i].name + ", " : "";
    Curve training = epoch_curve(of + "training", runs[i], trained_part,
                                 [](const EpochData& epoch) { return epoch.train_loss; });
    Curve validation = epoch_curve(of + "validation", runs[i], evaluated_part,
                                   [](const EpochData& epoch) { return metric_of(epoch, kLoss); });
    training.color = validation.color = static_cast<int>(i);
    validation.is_dashed = true;
    losses.curves.push_back(std::move(training));
    losses.curves.push_back(std::move(validation));
  }
  std::string text = text_of(epochs_figure(std::move(losses), runs));
  for (const std::string& metric : metric_names(runs)) {
    if (metric == kLoss) continue;
    text +=
        text_of(epochs_figure("Validation: " + metric, metric, runs, false, evaluated_part,
                              [&](const EpochData& epoch) { return metric_of(epoch, metric); }));
  }
  return text;
}

std::string speed(const Runs& runs) {
  return text_of(epochs_figure(
             "Throughput", "images/s", runs, true, trained_part,
             [](const EpochData& epoch) { return std::optional(epoch.images_per_second); })) +
         text_of(phases_figure(runs));
}

std::string utilisation(const Runs& runs) {
  std::string text = text_of(epochs_figure(
      "Processors that a rank keeps busy, the mean over the ranks", "processors", runs, true,
      trained_part, [](const EpochData& epoch) { return std::optional(epoch.processors); }));
  struct GpuValue {
    const char* title;
    const char* label;
    double (*value)(const GpuUsage& gpu);
  };
  constexpr GpuValue kValues[] = {
      {"GPUs that compute", "%", [](const GpuUsage& gpu) { return 100 * gpu.utilisation; }},
      {"GPU memory that is read or written", "% of the time",
       [](const GpuUsage& gpu) { return 100 * gpu.memory_utilisation; }},
      {"GPU memory in use", "GB",
       [](const GpuUsage& gpu) { return 1e-9 * static_cast<double>(gpu.memory_bytes); }},
      {"Power of a GPU", "W", [](const GpuUsage& gpu) { return gpu.power_watts; }}};
  for (const GpuValue& each : kValues) {
    text += text_of(epochs_figure(
        each.title, each.label, runs, true, trained_part, [&](const EpochData& epoch) {
          return epoch.gpu ? std::optional(each.value(*epoch.gpu)) : std::nullopt;
        }));
  }
  return text;
}

std::string configuration(const Runs& runs) {
  Table table{.titles = {"setting"}};
  std::vector<std::string> names;
  for (const RunData& run : runs) {
    table.titles.push_back(run.name);
    for (const auto& [name, value] : run.configuration) {
      if (std::ranges::find(names, name) == names.end()) names.push_back(name);
    }
  }
  for (const std::string& name : names) {
    Cells row = {name};
    for (const RunData& run : runs) {
      const auto found =
          std::ranges::find(run.configuration, name, &std::pair<std::string, std::string>::first);
      row.push_back(found == run.configuration.end() ? "" : found->second);
    }
    table.rows.push_back(std::move(row));
  }
  std::stable_partition(table.rows.begin(), table.rows.end(), [](const Cells& row) {
    return std::ranges::any_of(row.begin() + 1, row.end(),
                               [&](const std::string& cell) { return cell != row[1]; });
  });
  return text_of(table, "configuration");
}

}  // namespace lockstep::html
