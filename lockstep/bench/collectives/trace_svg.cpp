#include <lockstep/bench/collectives/trace_svg.h>

#include <algorithm>
#include <cmath>
#include <sstream>

#include <lockstep/bench/sizes.h>
#include <lockstep/core/strings.h>
#include <lockstep/report/svg.h>
#include <lockstep/report/text.h>

namespace lockstep::bench {
namespace {

// In pixels.
constexpr double kLeft = 76;
constexpr double kTop = 84;
constexpr double kLane = 62;
constexpr double kRight = 20;
constexpr double kTimelineLane = 44;
constexpr double kLeastTimeline = 420;
constexpr double kTotals = 270;  // next to the timelines

std::string rules_of(const svg::Palette& palette) {
  std::string rules = str(".back{fill:", palette.back, "}text{fill:", palette.ink,
                          "}.s{fill:", palette.soft, "}.l{stroke:", palette.line,
                          "}.sum{fill:", palette.gray, "}.n{stroke:", palette.back, "}\n");
  for (std::size_t color = 0; color < svg::kColors; ++color) {
    rules += str(".k", color, "{stroke:", palette.colors[color], "}.f", color,
                 "{fill:", palette.colors[color], "}");
  }
  return rules + "\n";
}

std::string style() {
  return svg::style_sheet(
      ".t{font-size:16px;font-weight:600}"
      ".m{text-anchor:middle}.e{text-anchor:end}.l,.a{fill:none}.a{stroke-width:1.8}"
      ".o{stroke-dasharray:5 3}.n{font-weight:600;paint-order:stroke;stroke-width:4px}",
      rules_of);
}

class Picture {
 public:
  explicit Picture(const TracedRun& run)
      : run_(run),
        names_(run),
        ranks_(static_cast<int>(run.traces.size())),
        steps_(step_count(run)) {
    // Steps with many messages need room for their names.
    std::size_t most = 1;
    std::vector<std::size_t> counts(static_cast<std::size_t>(steps_) + 1);
    arrows_ = arrows_of(run);
    for (const Arrow& arrow : arrows_)
      most = std::max(most, ++counts[static_cast<std::size_t>(arrow.step)]);
    const auto each = static_cast<std::size_t>(ranks_);
    column_ = most > 2 * each ? 300 : most > each ? 160 : steps_ > 12 ? 74 : 104;
    steps_width_ = std::max(1, steps_) * column_;
    timeline_width_ = std::max(kLeastTimeline, steps_width_ - kTotals);
    width_ = kLeft + std::max(steps_width_, timeline_width_ + kTotals) + kRight;
    timeline_top_ = kTop + ranks_ * kLane + 64;
    height_ = timeline_top_ + ranks_ * kTimelineLane + 66;
  }

  std::string draw() {
    out_ << svg::opened(width_, height_, title_of(run_)) << style();
    draw_heads();
    out_ << svg::background() << svg::text_at(16, 28, "t", title_of(run_))
         << svg::text_at(16, 48, "s",
                         str("An arrow is a message, its label the piece of the tensor",
                             names_.pieces() > 1 ? str(" (0 to ", names_.pieces() - 1, ")") : "",
                             ". Solid: added there. Dashed: replaces it."));
    draw_lanes();
    for (const Arrow& arrow : arrows_) draw_arrow(arrow);
    draw_timeline();
    out_ << "</svg>\n";
    return out_.str();
  }

 private:
  double lane(int rank) const { return kTop + (rank + 0.5) * kLane; }
  std::size_t color(comm::ScheduledRange range) const {
    return names_.first_piece(range) % svg::kColors;
  }

  void draw_heads() {
    out_ << "<defs>\n";
    for (std::size_t color = 0; color < svg::kColors; ++color) {
      out_ << "<marker id=\"h" << color
           << "\" viewBox=\"0 0 8 8\" refX=\"7\" refY=\"4\" markerWidth=\"6\" markerHeight=\"6\" "
              "orient=\"auto\">"
           << "<path d=\"M0 0L8 4L0 8z\" class=\"f" << color << "\"/></marker>\n";
    }
    out_ << "</defs>\n";
  }

  void draw_lanes() {
    const double bottom = kTop + ranks_ * kLane;
    for (int rank = 0; rank < ranks_; ++rank) {
      out_ << svg::line_between(kLeft, lane(rank), kLeft + steps_width_, lane(rank))
           << svg::text_at(16, lane(rank) + 4, "", str("rank ", rank));
    }
    for (int step = 0; step < steps_; ++step) {
      const double x = kLeft + step * column_;
      out_ << svg::line_between(x, kTop - 4, x, bottom)
           << svg::text_at(x + column_ / 2, kTop - 8, "s m",
                           str(steps_ > 12 ? "" : "step ", step + 1));
    }
    out_ << svg::line_between(kLeft + steps_width_, kTop - 4, kLeft + steps_width_, bottom);
  }

  void draw_arrow(const Arrow& arrow) {
    const double x1 = kLeft + arrow.step * column_ + 14, x2 = x1 + column_ - 28;
    const double y1 = lane(arrow.from), y2 = lane(arrow.to);
    const std::size_t c = color(arrow.range);
    out_ << "<path class=\"a k" << c << (arrow.added ? "" : " o") << "\" marker-end=\"url(#h" << c
         << ")\" d=\"M" << svg::number(x1) << ' ' << svg::number(y1) << 'L' << svg::number(x2)
         << ' ' << svg::number(y2) << "\"/>\n";
    // Placed near the arrow's start, where the arrows of a step are still apart; long arrows start
    // steeply.
    const int distance = std::abs(arrow.from - arrow.to);
    const double at = distance == 1 ? 0.3 : 0.36 / distance;
    out_ << svg::text_at(x1 + at * (x2 - x1), y1 + at * (y2 - y1) + 4, str("n m f", c),
                         names_.name(arrow.range));
  }

  double time_x(std::int64_t ns) const {
    const auto begin = begin_ns(run_);
    const double total = std::max<double>(static_cast<double>(end_ns(run_) - begin), 1);
    return kLeft + timeline_width_ * static_cast<double>(ns - begin) / total;
  }

  void draw_bar(const comm::TraceEvent& event, double top) {
    const double x = time_x(event.start_ns);
    const double width = std::max(time_x(event.end_ns) - x, 0.7);
    const bool adds = event.kind == comm::TraceEvent::Kind::kReduce;
    const double y = event.kind == comm::TraceEvent::Kind::kSend ? top + 5
                     : adds                                      ? top + 15
                                                                 : top + 24;
    out_ << "<rect x=\"" << svg::number(x) << "\" y=\"" << svg::number(y) << "\" width=\""
         << svg::number(width) << "\" height=\"" << (adds ? 8 : 9) << "\" class=\""
         << (adds ? std::string("sum") : str("f", color(event.range))) << "\"><title>step "
         << event.step + 1
         << (adds                                          ? ", adds "
             : event.kind == comm::TraceEvent::Kind::kSend ? ", sends "
                                                           : ", receives ")
         << names_.name(event.range);
    if (!adds)
      out_ << (event.kind == comm::TraceEvent::Kind::kSend ? " to " : " from ") << event.peer;
    out_ << ", " << short_number(static_cast<double>(event.end_ns - event.start_ns) / 1e3)
         << " us</title></rect>\n";
  }

  void draw_timeline() {
    const double right = kLeft + timeline_width_;
    const double bottom = timeline_top_ + ranks_ * kTimelineLane;
    out_ << svg::text_at(16, timeline_top_ - 26, "t", "What really happened")
         << svg::text_at(16, timeline_top_ - 8, "s",
                         str("Above: sends. Middle: adds. Below: receives. The median of ",
                             run_.repetitions, " runs."))
         << svg::text_at(right + 76, timeline_top_ - 8, "s e", "sent")
         << svg::text_at(right + 150, timeline_top_ - 8, "s e", "time")
         << svg::text_at(right + kTotals - 14, timeline_top_ - 8, "s e", "predicted");
    const std::vector<RankTotals> totals = totals_of(run_);
    for (int rank = 0; rank < ranks_; ++rank) {
      const double top = timeline_top_ + rank * kTimelineLane;
      const RankTotals& total = totals[static_cast<std::size_t>(rank)];
      out_ << svg::line_between(kLeft, top + kTimelineLane - 4, right, top + kTimelineLane - 4)
           << svg::text_at(16, top + 22, "", str("rank ", rank))
           << svg::text_at(right + 76, top + 22, "e",
                           binary_bytes_text(static_cast<double>(total.bytes_sent)))
           << svg::text_at(right + 150, top + 22, "e", short_number(total.seconds * 1e6) + " us")
           << svg::text_at(right + kTotals - 14, top + 22, "e",
                           short_number(total.predicted_seconds * 1e6) + " us");
      for (const comm::TraceEvent& event : run_.traces[static_cast<std::size_t>(rank)].events)
        draw_bar(event, top);
    }
    draw_axis(bottom);
    out_ << svg::text_at(16, bottom + 44, "s", model_text(run_.model));
    if (run_.processors > 0 && run_.processors < ranks_) {
      out_ << svg::text_at(16, bottom + 60, "s",
                           str("The prediction gives every rank a processor; here ", ranks_,
                               " ranks shared ", run_.processors, "."));
    }
  }

  void draw_axis(double y) {
    const std::int64_t begin = begin_ns(run_);
    const double total = std::max<double>(static_cast<double>(end_ns(run_) - begin), 1);
    const double mark = svg::distance_of_marks(total);
    for (double at = 0; at <= total; at += mark) {
      const double x = kLeft + timeline_width_ * at / total;
      out_ << svg::line_between(x, timeline_top_, x, y + 4)
           << svg::text_at(x, y + 18, "s m",
                           short_axis_number(at / 1e3, mark / 1e3) + (at == 0 ? " us" : ""));
    }
  }

  static std::string short_axis_number(double value, double mark) {
    return report::fixed_text(value, mark >= 1 ? 0 : mark >= 0.1 ? 1 : 2);
  }

  const TracedRun& run_;
  const PieceNames names_;
  const int ranks_;
  const int steps_;
  std::vector<Arrow> arrows_;
  double column_ = 0, steps_width_ = 0, timeline_width_ = 0, width_ = 0, timeline_top_ = 0,
         height_ = 0;
  std::ostringstream out_;
};

}  // namespace

std::string trace_svg(const TracedRun& run) { return Picture(run).draw(); }

}  // namespace lockstep::bench
