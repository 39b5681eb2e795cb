// The rows of bench/strategies/rows.h as a table.
#include <lockstep/bench/strategies/rows.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include <lockstep/bench/sizes.h>
#include <lockstep/core/strings.h>
#include <lockstep/report/text.h>

namespace lockstep::bench {
namespace {

constexpr std::size_t kStrategyColumns = 10;
// A negative width aligns to the left.
constexpr std::array<int, kStrategyColumns> kStrategyWidths = {-20, 5, 7, 14, 6, 5, 5, 5, 4, -11};
constexpr std::size_t kTableColumns = 100;
constexpr double kBytesOfMiB = 1 << 20;

using Cells = std::array<std::string, kStrategyColumns>;

std::string table_row(const Cells& cells) { return report::padded_cells(cells, kStrategyWidths); }

std::string shape_text(int ranks, int threads) { return str(ranks, " x ", threads); }

std::string mebibytes_text(std::int64_t bytes) {
  return report::fixed_text(static_cast<double>(bytes) / kBytesOfMiB, 0);
}

std::string whole_percent(double share) { return report::fixed_text(100 * share, 0) + "%"; }

std::string limit_text(const StepLimit& limit) {
  if (limit.what == "processors") return limit.what;
  return (limit.what == "communication" ? "exposed" : limit.what) + " " +
         whole_percent(limit.share);
}

std::string measured_line(const StrategyRow& row) {
  return table_row({row.way.name, shape_text(row.way.ranks, row.way.threads),
                    short_number(row.step_ms.median),
                    short_number(row.step_ms.low) + " to " + short_number(row.step_ms.high),
                    short_number(row.samples_per_second),
                    row.ratio ? report::fixed_text(row.ratio->median, 2) : "-",
                    mebibytes_text(row.peak_growth_bytes), mebibytes_text(row.proportional_bytes),
                    whole_percent(row.utilisation), limit_text(limit_of(row))});
}

// The line of an unsupported way. A long reason is shortened with dots; the JSON has all of it.
std::string refused_line(const StrategyRow& row) {
  const std::array<std::string, 2> cells = {row.way.name, "not possible: " + row.why_not};
  const std::array<int, 2> widths = {kStrategyWidths[0], 0};
  std::string line = report::padded_cells(cells, widths);
  if (line.size() > kTableColumns) line = line.substr(0, kTableColumns - 3) + "...";
  return line;
}

// The cuts of the model and how they were chosen, one line per part.
std::string cuts_text(const StageCuts& cuts) {
  constexpr std::string_view kBreak = "; ";
  std::string text = str(cuts.stages, " stages, cut after ", join(cuts.names), '\n');
  for (std::size_t at = 0; at < cuts.about.size();) {
    const std::size_t end = std::min(cuts.about.find(kBreak, at), cuts.about.size());
    text += "  " + cuts.about.substr(at, end - at) + '\n';
    at = end + kBreak.size();
  }
  return text;
}

// A line for each way with known device memory, because there is no room for another column.
std::vector<std::string> device_lines(const std::vector<StrategyRow>& rows) {
  std::vector<std::string> lines;
  for (const StrategyRow& row : rows) {
    if (!row.device_bytes) continue;
    lines.push_back(str(row.way.name, ": the fullest device holds ",
                        report::fixed_text(static_cast<double>(*row.device_bytes) / kBytesOfMiB, 1),
                        " MiB of model, optimizer state and activations"));
  }
  return lines;
}

// A line for each way whose ranks share processors.
std::vector<std::string> crowded_lines(const std::vector<StrategyRow>& rows) {
  std::vector<std::string> lines;
  for (const StrategyRow& row : rows) {
    if (row.way.ranks * row.way.threads <= row.processors) continue;
    lines.push_back(str(row.way.name, ": ", row.way.ranks, " ranks share ",
                        amount_of(row.processors, "processor")));
  }
  return lines;
}

}  // namespace

std::string strategies_text(const BenchStrategiesSettings& settings,
                            const std::vector<StrategyRow>& rows) {
  std::string text = str(settings.model, ", ", settings.image_size, "x", settings.image_size,
                         " images, batch ", settings.work.batch, ", ", settings.work.threads,
                         " threads, precision ", settings.precision, ", ", settings.optimizer, ", ",
                         amount_of(settings.work.micro_batches, "micro-batch"),
                         settings.work.recompute ? ", recompute" : "", '\n');
  text += table_row({"way", "ranks", "step ms", "quartiles", "img/s", "ratio", "peak", "sum",
                     "busy", "limited by"}) +
          '\n';
  for (const StrategyRow& row : rows) {
    text += (row.why_not.empty() ? measured_line(row) : refused_line(row)) + '\n';
  }
  text +=
      "\nranks: processes x threads; single-half: half of the threads; split: two stages in turn\n"
      "ratio: throughput to that of single; busy: processor time to that of all threads\n"
      "peak: MiB of the largest process over what it held before the model; sum: MiB of all\n";
  for (const StageCuts& cuts : settings.cuts) text += cuts_text(cuts);
  for (const std::string& line : device_lines(rows)) text += line + '\n';
  for (const std::string& line : crowded_lines(rows)) text += line + '\n';
  return text;
}

}  // namespace lockstep::bench
