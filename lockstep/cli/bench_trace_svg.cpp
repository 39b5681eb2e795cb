#include <lockstep/cli/bench_trace_svg.h>

#include <algorithm>
#include <cmath>
#include <sstream>

#include <lockstep/cli/bench_sizes.h>
#include <lockstep/core/strings.h>
#include <lockstep/report/text.h>

namespace lockstep {
namespace {

// Pixels.
constexpr double kLeft = 76;
constexpr double kTop = 84;
constexpr double kLane = 62;
constexpr double kRight = 20;
constexpr double kTimelineLane = 44;
constexpr double kLeastTimeline = 420;
constexpr double kTotals = 270;  // beside the lines of time
constexpr std::size_t kColors = 8;

// Rules are written out for both schemes: not every reader of SVG knows CSS variables.
struct Palette {
  const char *back, *ink, *soft, *line, *sum;
  const char* pieces[kColors];
};
constexpr Palette kLight = {
    "#ffffff",
    "#1f2328",
    "#656d76",
    "#d0d7de",
    "#57606a",
    {"#0969da", "#bc4c00", "#1a7f37", "#8250df", "#bf3989", "#9a6700", "#0e7490", "#cf222e"}};
constexpr Palette kDark = {
    "#0d1117",
    "#e6edf3",
    "#9198a1",
    "#3d444d",
    "#b1bac4",
    {"#58a6ff", "#f0883e", "#3fb950", "#bc8cff", "#f778ba", "#d29922", "#39c5cf", "#ff7b72"}};

std::string rules_of(const Palette& palette) {
  std::string rules = str(".back{fill:", palette.back, "}text{fill:", palette.ink,
                          "}.s{fill:", palette.soft, "}.l{stroke:", palette.line,
                          "}.sum{fill:", palette.sum, "}.n{stroke:", palette.back, "}\n");
  for (std::size_t color = 0; color < kColors; ++color) {
    rules += str(".k", color, "{stroke:", palette.pieces[color], "}.f", color,
                 "{fill:", palette.pieces[color], "}");
  }
  return rules + "\n";
}

std::string style() {
  return str(
      "<style>\ntext{font:12px system-ui,sans-serif}.t{font-size:16px;font-weight:600}"
      ".m{text-anchor:middle}.e{text-anchor:end}.l,.a{fill:none}.a{stroke-width:1.8}"
      ".o{stroke-dasharray:5 3}.n{font-weight:600;paint-order:stroke;stroke-width:4px}\n",
      rules_of(kLight), "@media (prefers-color-scheme:dark){\n", rules_of(kDark), "}\n</style>\n");
}

std::string number(double value) {
  std::string text = fixed_text(value, 1);
  if (text.ends_with(".0")) text.resize(text.size() - 2);
  return text;
}

std::string text_at(double x, double y, const char* classes, const std::string& text) {
  return str("<text x=\"", number(x), "\" y=\"", number(y), "\" class=\"", classes, "\">", text,
             "</text>\n");
}

std::string line_between(double x1, double y1, double x2, double y2) {
  return str("<path class=\"l\" d=\"M", number(x1), " ", number(y1), "L", number(x2), " ",
             number(y2), "\"/>\n");
}

class Picture {
 public:
  explicit Picture(const TracedRun& run)
      : run_(run),
        names_(run),
        ranks_(static_cast<int>(run.traces.size())),
        steps_(step_count(run)) {
    // Many messages in a step need room for their names.
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
    out_ << "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 " << number(width_) << ' '
         << number(height_) << "\" width=\"" << number(width_) << "\" height=\"" << number(height_)
         << "\" role=\"img\" aria-label=\"" << title_of(run_) << "\">\n"
         << style();
    draw_heads();
    out_ << "<rect width=\"100%\" height=\"100%\" class=\"back\"/>\n"
         << text_at(16, 28, "t", title_of(run_))
         << text_at(16, 48, "s",
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
  std::size_t color(ScheduledRange range) const { return names_.first_piece(range) % kColors; }

  void draw_heads() {
    out_ << "<defs>\n";
    for (std::size_t color = 0; color < kColors; ++color) {
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
      out_ << line_between(kLeft, lane(rank), kLeft + steps_width_, lane(rank))
           << text_at(16, lane(rank) + 4, "", str("rank ", rank));
    }
    for (int step = 0; step < steps_; ++step) {
      const double x = kLeft + step * column_;
      out_ << line_between(x, kTop - 4, x, bottom)
           << text_at(x + column_ / 2, kTop - 8, "s m", str(steps_ > 12 ? "" : "step ", step + 1));
    }
    out_ << line_between(kLeft + steps_width_, kTop - 4, kLeft + steps_width_, bottom);
  }

  void draw_arrow(const Arrow& arrow) {
    const double x1 = kLeft + arrow.step * column_ + 14, x2 = x1 + column_ - 28;
    const double y1 = lane(arrow.from), y2 = lane(arrow.to);
    const std::size_t c = color(arrow.range);
    out_ << "<path class=\"a k" << c << (arrow.added ? "" : " o") << "\" marker-end=\"url(#h" << c
         << ")\" d=\"M" << number(x1) << ' ' << number(y1) << 'L' << number(x2) << ' ' << number(y2)
         << "\"/>\n";
    // Near its start, where the arrows of a step are still apart; those that go far leave steeply.
    const int distance = std::abs(arrow.from - arrow.to);
    const double at = distance == 1 ? 0.3 : 0.36 / distance;
    out_ << text_at(x1 + at * (x2 - x1), y1 + at * (y2 - y1) + 4, str("n m f", c).c_str(),
                    names_.name(arrow.range));
  }

  double time_x(std::int64_t ns) const {
    const auto begin = begin_ns(run_);
    const double total = std::max<double>(static_cast<double>(end_ns(run_) - begin), 1);
    return kLeft + timeline_width_ * static_cast<double>(ns - begin) / total;
  }

  void draw_bar(const TraceEvent& event, double top) {
    const double x = time_x(event.start_ns);
    const double width = std::max(time_x(event.end_ns) - x, 0.7);
    const bool adds = event.kind == TraceEvent::Kind::kReduce;
    const double y = event.kind == TraceEvent::Kind::kSend ? top + 5 : adds ? top + 15 : top + 24;
    out_ << "<rect x=\"" << number(x) << "\" y=\"" << number(y) << "\" width=\"" << number(width)
         << "\" height=\"" << (adds ? 8 : 9) << "\" class=\""
         << (adds ? std::string("sum") : str("f", color(event.range))) << "\"><title>step "
         << event.step + 1
         << (adds                                    ? ", adds "
             : event.kind == TraceEvent::Kind::kSend ? ", sends "
                                                     : ", receives ")
         << names_.name(event.range);
    if (!adds) out_ << (event.kind == TraceEvent::Kind::kSend ? " to " : " from ") << event.peer;
    out_ << ", " << short_number(static_cast<double>(event.end_ns - event.start_ns) / 1e3)
         << " us</title></rect>\n";
  }

  void draw_timeline() {
    const double right = kLeft + timeline_width_;
    const double bottom = timeline_top_ + ranks_ * kTimelineLane;
    out_ << text_at(16, timeline_top_ - 26, "t", "What really happened")
         << text_at(16, timeline_top_ - 8, "s",
                    str("Above: sends. Middle: adds. Below: receives. The median of ",
                        run_.repetitions, " runs."))
         << text_at(right + 76, timeline_top_ - 8, "s e", "sent")
         << text_at(right + 150, timeline_top_ - 8, "s e", "time")
         << text_at(right + kTotals - 14, timeline_top_ - 8, "s e", "predicted");
    const std::vector<RankTotals> totals = totals_of(run_);
    for (int rank = 0; rank < ranks_; ++rank) {
      const double top = timeline_top_ + rank * kTimelineLane;
      const RankTotals& total = totals[static_cast<std::size_t>(rank)];
      out_ << line_between(kLeft, top + kTimelineLane - 4, right, top + kTimelineLane - 4)
           << text_at(16, top + 22, "", str("rank ", rank))
           << text_at(right + 76, top + 22, "e",
                      binary_bytes_text(static_cast<double>(total.bytes_sent)))
           << text_at(right + 150, top + 22, "e", short_number(total.seconds * 1e6) + " us")
           << text_at(right + kTotals - 14, top + 22, "e",
                      short_number(total.predicted_seconds * 1e6) + " us");
      for (const TraceEvent& event : run_.traces[static_cast<std::size_t>(rank)].events)
        draw_bar(event, top);
    }
    draw_axis(bottom);
    out_ << text_at(16, bottom + 44, "s", model_text(run_.model));
    if (run_.processors > 0 && run_.processors < ranks_) {
      out_ << text_at(16, bottom + 60, "s",
                      str("The prediction gives every rank a processor; here ", ranks_,
                          " ranks shared ", run_.processors, "."));
    }
  }

  // Three to seven marks at 1, 2 or 5 times a power of ten.
  void draw_axis(double y) {
    const std::int64_t begin = begin_ns(run_);
    const double total = std::max<double>(static_cast<double>(end_ns(run_) - begin), 1);
    double mark = std::pow(10, std::floor(std::log10(total)));
    if (total / mark < 2)
      mark /= 5;
    else if (total / mark < 5)
      mark /= 2;
    for (double at = 0; at <= total; at += mark) {
      const double x = kLeft + timeline_width_ * at / total;
      out_ << line_between(x, timeline_top_, x, y + 4)
           << text_at(x, y + 18, "s m",
                      short_axis_number(at / 1e3, mark / 1e3) + (at == 0 ? " us" : ""));
    }
  }

  static std::string short_axis_number(double value, double mark) {
    return fixed_text(value, mark >= 1 ? 0 : mark >= 0.1 ? 1 : 2);
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

}  // namespace lockstep
