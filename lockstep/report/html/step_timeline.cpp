#include <lockstep/report/html/step_timeline.h>

#include <algorithm>
#include <map>
#include <utility>

#include <lockstep/core/strings.h>
#include <lockstep/report/svg.h>
#include <lockstep/report/text.h>

namespace lockstep::html {
namespace {

constexpr double kWidth = 900;
constexpr double kLeft = 170;
constexpr double kRight = 12;
constexpr double kTop = 30;
constexpr double kRow = 20;

// Colours by what a span is.
std::size_t color_of(const TracedSpan& span) {
  if (span.category == "arrival") return 7;
  if (span.category == "communication" || span.category == "reduction" || span.category == "message") return 1;
  if (span.category == "data" || span.name == "wait for data") return 5;
  if (span.name == "forward" || span.category == "forward") return 0;
  if (span.name == "backward" || span.category == "backward") return 2;
  if (span.name == "optimizer") return 3;
  return 6;
}

bool is_shown(const TracedSpan& span) { return span.category != "step" && span.category != "ddp"; }

}  // namespace

std::string timeline_svg(const TracedRun& run, const std::string& step) {
  double begin = 0, end = 0;
  bool is_found = false;
  for (const TracedSpan& span : run.spans) {
    if (span.category != "step" || span.name != step) continue;
    begin = is_found ? std::min(begin, span.begin) : span.begin;
    end = is_found ? std::max(end, span.end) : span.end;
    is_found = true;
  }
  if (!is_found || end <= begin) return "";
  std::map<std::pair<int, std::string>, std::vector<const TracedSpan*>> rows;
  for (const TracedSpan& span : run.spans) {
    if (is_shown(span) && span.end > begin && span.begin < end) rows[{span.rank, span.track}].push_back(&span);
  }
  const double scale = (kWidth - kLeft - kRight) / (end - begin);
  const double height = kTop + kRow * static_cast<double>(rows.size()) + 8;
  std::string text = svg::opened(kWidth, height, str("timeline of ", step));
  const double distance = svg::distance_of_marks(end - begin);
  for (double mark = 0; mark <= end - begin; mark += distance) {
    const double x = kLeft + mark * scale;
    text += svg::line_between(x, kTop - 6, x, height - 8);
    text += svg::text_at(x, kTop - 12, "s m", str(fixed_text(mark / 1e3, 2), " ms"));
  }
  double y = kTop;
  for (const auto& [row, spans] : rows) {
    text += svg::text_at(kLeft - 8, y + 14, "e", str("rank ", row.first, ", ", row.second));
    for (const TracedSpan* span : spans) {
      const double left = kLeft + (std::max(span->begin, begin) - begin) * scale;
      const double right = kLeft + (std::min(span->end, end) - begin) * scale;
      text += str("<rect class=\"f", color_of(*span), "\" x=\"", svg::number(left), "\" y=\"",
                  svg::number(y + 2), "\" width=\"", svg::number(std::max(right - left, 0.5)),
                  "\" height=\"", svg::number(kRow - 4), "\"><title>",
                  svg::escaped(str(span->name, ": ", fixed_text((span->end - span->begin) / 1e3, 3), " ms")),
                  "</title></rect>");
    }
    text += "\n";
    y += kRow;
  }
  return text + "</svg>\n";
}

}  // namespace lockstep::html
