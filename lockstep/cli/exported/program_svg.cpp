#include <algorithm>
#include <sstream>

#include <lockstep/cli/exported/program_drawings.h>
#include <lockstep/core/strings.h>
#include <lockstep/report/svg.h>
#include <lockstep/report/text.h>

namespace lockstep::cli {
namespace {

std::string program_rules(const svg::Palette& palette) {
  std::string rules =
      str(".back,.b{fill:", palette.back, "}text,.h{fill:", palette.ink, "}.s{fill:", palette.soft,
          "}.b{stroke:", palette.gray, "}.l,.d{stroke:", palette.soft, "}\n");
  for (std::size_t i = 0; i < svg::kColors; ++i) {
    rules += str(".c", i, "{fill:", palette.colors[i], "}");
  }
  return rules + "\n";
}

std::string program_style() {
  return svg::style_sheet(
      ".t{font-size:14px;font-weight:600}"
      ".n{font-weight:600}.e{text-anchor:end}.l,.d{fill:none}.d{stroke-dasharray:5 4}"
      "g:hover>.l{stroke-width:3}",
      program_rules);
}

// The class of a module, or the module that made the calls itself.
std::string type_text(const ProgramBox& box) {
  if (box.kind == ProgramBox::Kind::kCalls) return box.name.empty() ? "" : "in " + box.name;
  return box.name.empty() ? "" : box.type;
}

// What is shown on hover.
std::string details_of(const ProgramBox& box) {
  std::string text = box.heading();
  const auto add = [&](const std::string& line) {
    if (!line.empty() && line != text) text += "\n" + line;
  };
  add(type_text(box));
  add(box.calls);
  add(box.shapes);
  add(box.source);
  return text;
}

class ProgramDrawing {
 public:
  explicit ProgramDrawing(const ProgramPicture& picture) : picture_(picture) {}

  std::string draw() {
    place_boxes();
    sort_lines();
    for (std::size_t i = 0; i < picture_.boxes.size(); ++i) draw_box(picture_.boxes[i], tops_[i]);
    for (const ProgramLine* line : straight_) draw_arrow(*line);
    draw_bends();
    const double right = kLeft + kWidth + kFirstLane + kLane * static_cast<double>(lanes_.size());
    const double width =
        std::max(right + kEdge, kLetter * static_cast<double>(picture_.title.size()) + 2 * kEdge);
    return svg::opened(width, bottom_ + kEdge, picture_.title) + program_style() +
           svg::background() + svg::text_at(kEdge, 28, "t", picture_.title) + out_.str() +
           "</svg>\n";
  }

 private:
  // In pixels.
  static constexpr double kEdge = 16;
  static constexpr double kLeft = 16;
  static constexpr double kTop = 44;
  static constexpr double kWidth = 400;  // a box's
  static constexpr double kHeight = 42;
  static constexpr double kGap = 18;
  static constexpr double kCutGap = 40;
  static constexpr double kArrow = 30;      // from a box's left side to the arrow
  static constexpr double kFirstLane = 14;  // from a box's right side to the first line there
  static constexpr double kLane = 8;
  static constexpr double kLetter = 7.6;  // approximate width of a letter of the title
  static constexpr std::size_t kMostLanes = 80;

  void place_boxes() {
    double y = kTop;
    std::size_t cut = 0;
    const bool has_stages = !picture_.cuts.empty();
    if (has_stages) {
      y += 14;
      out_ << svg::text_at(kLeft, y - 6, "s", str("stage ", picture_.boxes.front().stage));
    }
    for (std::size_t i = 0; i < picture_.boxes.size(); ++i) {
      if (cut < picture_.cuts.size() && picture_.cuts[cut].box == i) {
        y += kCutGap - kGap;
        draw_cut(picture_.cuts[cut], y - kCutGap / 2);
        ++cut;
      }
      tops_.push_back(y);
      y += kHeight + kGap;
    }
    bottom_ = y - kGap;
  }

  void draw_cut(const PictureCut& cut, double y) {
    out_ << "<path class=\"d\" d=\"M" << svg::number(kLeft) << ' ' << svg::number(y) << 'H'
         << svg::number(kLeft + kWidth) << "\"/>\n"
         << svg::text_at(kLeft + kArrow + 12, y + 15, "s",
                         str("stage ", picture_.boxes[cut.box].stage, ", ",
                             report::bytes_text(static_cast<double>(cut.bytes)),
                             " cross with the batch of the export"));
  }

  void draw_box(const ProgramBox& box, double y) {
    const bool is_end =
        box.kind == ProgramBox::Kind::kArgument || box.kind == ProgramBox::Kind::kResult;
    out_ << svg::rect(kLeft, y, kWidth, kHeight, "b", details_of(box));
    if (!picture_.cuts.empty()) {
      out_ << svg::rect(kLeft, y, 5, kHeight,
                        str("c", static_cast<std::size_t>(box.stage) % svg::kColors));
    }
    const double left = kLeft + 14, right = kLeft + kWidth - 10;
    out_ << svg::text_at(left, y + 17, is_end ? "" : "n", svg::fitted(box.heading(), 230))
         << svg::text_at(right, y + 34, "e", svg::fitted(box.shapes, 230));
    const std::string type = type_text(box);
    if (!type.empty()) out_ << svg::text_at(right, y + 17, "s e", svg::fitted(type, 140));
    if (box.parameters == 0) return;
    out_ << svg::text_at(left, y + 34, "s", report::count_text(box.parameters) + " parameters");
  }

  // Arrows lead to the next box, and all other lines of a box share a lane on the right.
  void sort_lines() {
    for (const ProgramLine& line : picture_.lines) {
      if (line.to == line.from + 1) {
        straight_.push_back(&line);
      } else if (!bent_.empty() && bent_.back().front()->from == line.from) {
        bent_.back().push_back(&line);
      } else {
        bent_.push_back({&line});
      }
    }
  }

  static std::string head(double x, double y, double dx, double dy) {
    return str("<path class=\"h\" d=\"M", svg::number(x), ' ', svg::number(y), 'L',
               svg::number(x - 6 * dx - 4 * dy), ' ', svg::number(y - 6 * dy - 4 * dx), 'L',
               svg::number(x - 6 * dx + 4 * dy), ' ', svg::number(y - 6 * dy + 4 * dx), "Z\"/>\n");
  }

  std::string details(const ProgramLine& line) const {
    return str(picture_.boxes[line.from].heading(), " to ", picture_.boxes[line.to].heading(), ": ",
               line.shapes);
  }

  void draw_arrow(const ProgramLine& line) {
    const double x = kLeft + kArrow;
    const double from = tops_[line.from] + kHeight, to = tops_[line.to];
    out_ << "<g><title>" << svg::escaped(details(line)) << "</title>\n"
         << "<path class=\"l\" d=\"M" << svg::number(x) << ' ' << svg::number(from) << 'V'
         << svg::number(to - 6) << "\"/>\n"
         << head(x, to, 0, 1) << "</g>\n";
    // The box itself has the shapes of all that it passes on.
    const bool is_clear = line.shapes == picture_.boxes[line.from].shapes;
    if (!is_clear) out_ << svg::text_at(x + 12, to - 5, "s", svg::fitted(line.shapes, 300));
  }

  // The first lane that is free from `from` on; it is then taken until `to`.
  std::size_t take_lane(std::size_t from, std::size_t to) {
    const auto free =
        std::find_if(lanes_.begin(), lanes_.end(), [&](std::size_t until) { return until < from; });
    if (free != lanes_.end()) {
      *free = to;
      return static_cast<std::size_t>(free - lanes_.begin());
    }
    if (lanes_.size() < kMostLanes) lanes_.push_back(to);
    return lanes_.size() - 1;
  }

  void draw_bends() {
    const double side = kLeft + kWidth;
    for (const std::vector<const ProgramLine*>& lines : bent_) {
      const ProgramLine& first = *lines.front();
      const std::size_t lane = take_lane(first.from, lines.back()->to);
      const double x = side + kFirstLane + kLane * static_cast<double>(lane);
      std::string title, path, heads;
      for (const ProgramLine* line : lines) {
        const double y = tops_[line->to] + kHeight / 2 - 8;
        title += (title.empty() ? "" : "\n") + details(*line);
        path += str('M', svg::number(x), ' ', svg::number(y), 'H', svg::number(side + 6));
        heads += head(side, y, -1, 0);
      }
      out_ << "<g><title>" << svg::escaped(title) << "</title>\n<path class=\"l\" d=\"M"
           << svg::number(side) << ' ' << svg::number(tops_[first.from] + kHeight / 2 + 8) << 'H'
           << svg::number(x) << 'V' << svg::number(tops_[lines.back()->to] + kHeight / 2 - 8)
           << path << "\"/>\n"
           << heads << "</g>\n";
    }
  }

  const ProgramPicture& picture_;
  std::vector<double> tops_;  // each box's upper side
  double bottom_ = 0;
  std::vector<const ProgramLine*> straight_;
  std::vector<std::vector<const ProgramLine*>> bent_;  // grouped by box
  std::vector<std::size_t> lanes_;                     // the last box of each
  std::ostringstream out_;
};

}  // namespace

std::string program_svg(const ProgramPicture& picture) { return ProgramDrawing(picture).draw(); }

}  // namespace lockstep::cli
