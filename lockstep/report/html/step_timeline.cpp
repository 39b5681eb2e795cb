#include <lockstep/report/html/step_timeline.h>

#include <algorithm>
#include <array>
#include <map>
#include <tuple>
#include <utility>
#include <vector>

#include <lockstep/core/strings.h>
#include <lockstep/report/html/chart_width.h>
#include <lockstep/report/html/phase_colors.h>
#include <lockstep/report/svg.h>
#include <lockstep/report/text.h>

namespace lockstep::html {
namespace {

constexpr double kTimelineTop = 30;
constexpr double kTimelineRow = 20;
constexpr double kTimelineLegendLine = 20;

constexpr std::array kKinds = {"forward",       "backward",         "optimizer", "data",
                               "communication", "waits for a rank", "other"};

// One of kKinds.
const char* kind_of(const TracedSpan& span) {
  if (span.category == "arrival") return "waits for a rank";
  for (const char* category : {"communication", "collective", "reduction", "message"}) {
    if (span.category == category) return "communication";
  }
  if (span.name == "broadcast buffers") return "communication";
  if (span.category == "data" || span.name == "wait for data") return "data";
  for (const char* kind : {"forward", "backward"}) {
    if (span.name == kind || span.category == kind) return kind;
  }
  for (const char* name : {"optimizer", "zero gradients", "finite check"}) {
    if (span.name == name) return "optimizer";
  }
  return "other";
}

bool is_drawn(const TracedSpan& span) {
  return span.category != "step" && span.category != "ddp" && span.category != "team";
}

// Sorted by rank and name; the training thread is a rank's first row.
struct RowOrder {
  bool operator()(const std::pair<int, std::string>& a,
                  const std::pair<int, std::string>& b) const {
    return std::tuple(a.first, a.second != "training", a.second) <
           std::tuple(b.first, b.second != "training", b.second);
  }
};
using TimelineRows =
    std::map<std::pair<int, std::string>, std::vector<const TracedSpan*>, RowOrder>;

TimelineRows rows_of(const StepTimeline& timeline, const StepWindow& window) {
  TimelineRows rows;
  for (const TracedSpan& span : timeline.run.spans) {
    if (span.rank >= timeline.ranks || !is_drawn(span)) continue;
    if (span.end > window.begin && span.begin < window.end) {
      rows[{span.rank, span.track}].push_back(&span);
    }
  }
  return rows;
}

std::string timeline_legend(double width, double left, double y, std::size_t columns) {
  std::string text;
  const double column = (width - left) / static_cast<double>(columns);
  for (std::size_t i = 0; i < kKinds.size(); ++i) {
    const double x = left + column * static_cast<double>(i % columns);
    const double line = y + kTimelineLegendLine * static_cast<double>(i / columns);
    text += str("<rect class=\"f", phase_color(kKinds[i]), "\" x=\"", svg::number(x), "\" y=\"",
                svg::number(line), "\" width=\"12\" height=\"12\"/>");
    text += svg::text_at(x + 18, line + 10, "", kKinds[i]);
  }
  return text;
}

}  // namespace

std::string svg_of(const StepTimeline& timeline, double width) {
  const StepWindow window = whole_window(timeline.step);
  if (window.end <= window.begin) return "";
  const TimelineRows rows = rows_of(timeline, window);
  const bool names_above = is_narrow(width);
  const double left = names_above ? 0 : 130;
  const double line = names_above ? kTimelineRow + 16 : kTimelineRow;
  const double bottom = kTimelineTop + line * static_cast<double>(rows.size());
  const std::size_t columns = names_above ? 2 : 4;
  const auto legend_lines = static_cast<double>((kKinds.size() + columns - 1) / columns);
  const double right = names_above ? 28 : 40;  // half the width of a mark's text
  const double scale = (width - left - right) / (window.end - window.begin);
  std::string text = svg::opened(width, bottom + 12 + kTimelineLegendLine * legend_lines,
                                 str("timeline of ", timeline.step.name));
  double distance = svg::distance_of_marks(window.end - window.begin);
  while ((window.end - window.begin) / distance > (names_above ? 4 : 8)) distance *= 2;
  for (double mark = names_above ? distance : 0; mark <= window.end - window.begin;
       mark += distance) {
    const double x = left + mark * scale;
    text += svg::line_between(x, kTimelineTop - 6, x, bottom);
    text += svg::text_at(x, kTimelineTop - 12, "s m",
                         str(report::fixed_text(mark / 1e3, distance < 100 ? 3 : 2), " ms"));
  }
  double y = kTimelineTop;
  for (const auto& [row, spans] : rows) {
    const std::string name = str("rank ", row.first, ", ", row.second);
    text += names_above ? svg::text_at(0, y + 12, "", svg::fitted(name, width))
                        : svg::text_at(left - 8, y + 14, "e", svg::fitted(name, left - 8));
    const double top = names_above ? y + 16 : y + 2;
    for (const TracedSpan* span : spans) {
      const double begin = left + (std::max(span->begin, window.begin) - window.begin) * scale;
      const double end = left + (std::min(span->end, window.end) - window.begin) * scale;
      text +=
          str("<rect class=\"f", phase_color(kind_of(*span)), "\" x=\"", svg::number(begin),
              "\" y=\"", svg::number(top), "\" width=\"", svg::number(std::max(end - begin, 0.5)),
              "\" height=\"", svg::number(kTimelineRow - 4), "\"><title>",
              svg::escaped(str(name, ": ", span->name, ", ",
                               report::fixed_text((span->end - span->begin) / 1e3, 3), " ms")),
              "</title></rect>");
    }
    text += "\n";
    y += line;
  }
  return text + timeline_legend(width, left, bottom + 12, columns) + "</svg>\n";
}

}  // namespace lockstep::html
