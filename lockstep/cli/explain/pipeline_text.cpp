#include <lockstep/cli/explain/pipeline_text.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <vector>

#include <lockstep/bench/sizes.h>
#include <lockstep/core/strings.h>
#include <lockstep/report/svg.h>
#include <lockstep/report/text.h>

namespace lockstep::cli {
namespace {

constexpr std::size_t kNameColumns = 13;  // before a timeline
constexpr std::size_t kColumnsOfAMark = 10;
constexpr char kWaits = '.';

struct LetterOfKind {
  pipeline::Kind kind;
  char letter;
  const char* meaning;
};
// A receive has no letter, because it is shown as waiting.
constexpr LetterOfKind kLetters[] = {
    {pipeline::Kind::kForward, 'F', "forward"},
    {pipeline::Kind::kBackward, 'B', "backward"},
    {pipeline::Kind::kBackwardInput, 'I', "gradients of inputs"},
    {pipeline::Kind::kBackwardWeight, 'W', "gradients of weights"},
    {pipeline::Kind::kSendForward, 's', "sends"},
    {pipeline::Kind::kSendBackward, 's', ""},
    {pipeline::Kind::kReduce, 'R', "reduces over replicas"},
};

char letter_of(pipeline::Kind kind) {
  for (const LetterOfKind& each : kLetters) {
    if (each.kind == kind) return each.letter;
  }
  return kWaits;
}

// One worker's time in columns.
struct WorkerLines {
  std::string kinds, stages, micro_batches;
};

// Writes as many of the number's last digits as fit.
void write_number(std::string& line, std::size_t first, std::size_t columns, int number) {
  std::string digits = std::to_string(number);
  if (digits.size() > columns) digits = digits.substr(digits.size() - columns);
  line.replace(first, digits.size(), digits);
}

// A column shows the worker's action at the column's middle.
WorkerLines lines_of(const std::vector<pipeline::Interval>& intervals, double column,
                     std::size_t columns) {
  WorkerLines lines{std::string(columns, kWaits), std::string(columns, ' '),
                    std::string(columns, ' ')};
  const auto first_column_from = [&](double time) {
    const double at = std::max(0.0, std::ceil(time / column - 0.5));
    return std::min(static_cast<std::size_t>(at), columns);
  };
  for (const pipeline::Interval& each : intervals) {
    const char letter = letter_of(each.action.kind);
    const std::size_t first = first_column_from(each.begin), end = first_column_from(each.end);
    if (letter == kWaits || first == end) continue;
    lines.kinds.replace(first, end - first, end - first, letter);
    write_number(lines.stages, first, end - first, each.action.stage);
    if (each.action.micro_batch >= 0)
      write_number(lines.micro_batches, first, end - first, each.action.micro_batch);
  }
  return lines;
}

std::string named_line(std::string name, const std::string& line) {
  name.resize(std::max(kNameColumns, name.size() + 1), ' ');
  name += line;
  name.resize(name.find_last_not_of(' ') + 1);
  return name + "\n";
}

std::string marks(std::size_t first, std::size_t end, double column) {
  std::string line;
  for (std::size_t at = first; at < end; at += kColumnsOfAMark) {
    const std::string mark = svg::number(static_cast<double>(at) * column);
    line.resize(std::max(line.size(), at - first), ' ');
    if (at + mark.size() <= end) line += mark;
  }
  return line;
}

bool has_whole_times(const pipeline::Timeline& timeline) {
  for (const auto& intervals : timeline.workers) {
    for (const pipeline::Interval& each : intervals) {
      if (each.begin != std::floor(each.begin) || each.end != std::floor(each.end)) return false;
    }
  }
  return timeline.end >= 1;
}

std::string chart_text(const PipelinePicture& picture, const PipelineChart& chart, int columns) {
  auto width = static_cast<std::size_t>(std::clamp(columns, 33, 213)) - kNameColumns;
  const bool whole = has_whole_times(chart.timeline);
  const std::size_t all = whole ? static_cast<std::size_t>(chart.timeline.end) : width;
  if (all > width) width -= width % kColumnsOfAMark;
  const double column = chart.timeline.end > 0 ? chart.timeline.end / static_cast<double>(all) : 1;
  std::vector<WorkerLines> workers;
  for (const auto& intervals : chart.timeline.workers)
    workers.push_back(lines_of(intervals, column, all));
  std::string text = str(chart.name, ": ", chart.explanation, "\n");
  for (std::size_t first = 0; first < all; first += width) {
    const std::size_t end = std::min(all, first + width);
    text +=
        named_line(chart.unit.empty() ? "time" : "time, " + chart.unit, marks(first, end, column));
    for (std::size_t worker = 0; worker < workers.size(); ++worker) {
      const WorkerLines& lines = workers[worker];
      const auto part = [&](const std::string& line) { return line.substr(first, end - first); };
      text += named_line(str("worker ", worker), part(lines.kinds));
      if (stages_of_worker(picture.table, worker).size() > 1)
        text += named_line("stage", part(lines.stages));
      text += named_line("micro-batch", part(lines.micro_batches));
    }
    text += "\n";
  }
  return text;
}

// The letters that occur, and their meanings.
std::string legend_text(const PipelinePicture& picture) {
  std::string letters;
  for (const PipelineChart& chart : picture.charts) {
    for (const auto& intervals : chart.timeline.workers) {
      for (const pipeline::Interval& each : intervals) letters += letter_of(each.action.kind);
    }
  }
  std::string text;
  for (const LetterOfKind& each : kLetters) {
    if (*each.meaning == '\0' || letters.find(each.letter) == std::string::npos) continue;
    text += str(each.letter, " ", each.meaning, "   ");
  }
  return text + str(kWaits, " waits\n");
}

// Each worker's peak of activations, and its waiting time.
std::string workers_text(const PipelinePicture& picture) {
  std::vector<std::vector<std::string>> rows{{"worker", "stages", "holds"}};
  bool has_stage_bytes = false;
  for (std::size_t worker = 0; worker < picture.table.workers.size(); ++worker) {
    has_stage_bytes = has_stage_bytes || !stage_bytes_text(picture, worker).empty();
  }
  if (!picture.worker_bytes.empty()) rows[0].push_back("memory");
  if (has_stage_bytes) rows[0].push_back("of each stage");
  for (const PipelineChart& chart : picture.charts) rows[0].push_back("waits, " + chart.name);
  for (std::size_t worker = 0; worker < picture.table.workers.size(); ++worker) {
    const int holds = picture.peak_activations[worker];
    std::vector<std::string>& row = rows.emplace_back();
    row = {std::to_string(worker), join(stages_of_worker(picture.table, worker)),
           std::to_string(holds)};
    if (!picture.worker_bytes.empty())
      row.push_back(bench::binary_bytes_text(static_cast<double>(picture.worker_bytes.at(worker))));
    if (has_stage_bytes) row.push_back(stage_bytes_text(picture, worker));
    for (const PipelineChart& chart : picture.charts)
      row.push_back(report::percent_text(chart.timeline.bubble_of(worker)));
  }
  std::vector<int> widths(rows[0].size());
  for (const auto& row : rows) {
    for (std::size_t i = 0; i < row.size(); ++i)
      widths[i] = std::max(widths[i], static_cast<int>(row[i].size()));
  }
  std::string text;
  for (const auto& row : rows) text += report::padded_cells(row, widths) + "\n";
  text += "holds: activations, one for each stage and micro-batch, at most at once\n";
  if (!picture.worker_bytes.empty())
    text += "memory: what forwards left, and what is kept between I and W, at most at once\n";
  if (has_stage_bytes)
    text +=
        "of each stage: the peak of that stage alone, which may come at another time than the "
        "worker's\n";
  return text;
}

std::string executor_text(const ExecutorCost& cost) {
  const auto milliseconds = [](double seconds) {
    return report::fixed_text(seconds * 1e3, 3) + " ms";
  };
  return str(
      "executor, what the machinery around the stages takes\n", "  ", milliseconds(cost.empty_step),
      "  the same table with stages that do nothing: ", report::percent_text(executor_share(cost)),
      " of a step of ", milliseconds(cost.step), "\n  ", milliseconds(cost.over_replay),
      "  what the measured step took longer than its replay: messages, and threads that "
      "wake up late\n");
}

std::string bubbles_text(const PipelinePicture& picture) {
  std::string text = "bubble, the share of all workers' time in which they do not compute\n";
  for (const NamedBubble& each : picture.bubbles) {
    const std::string percent = report::percent_text(each.bubble);
    text += std::string(8 - std::min<std::size_t>(8, percent.size()), ' ') + percent + "  " +
            each.name + "\n";
  }
  return text;
}

}  // namespace

std::string pipeline_text(const PipelinePicture& picture, int columns) {
  std::string text = picture.title + "\n\n";
  for (const PipelineChart& chart : picture.charts) text += chart_text(picture, chart, columns);
  text += legend_text(picture) + "\n" + workers_text(picture) + "\n" + bubbles_text(picture);
  if (picture.executor) text += "\n" + executor_text(*picture.executor);
  for (const std::string& note : picture.notes) text += note + "\n";
  text += "\ntable, a line for each worker\n";
  for (const std::string& line :
       wrapped_table(picture.table, static_cast<std::size_t>(std::max(columns, 33)))) {
    text += line + "\n";
  }
  return text;
}

}  // namespace lockstep::cli
