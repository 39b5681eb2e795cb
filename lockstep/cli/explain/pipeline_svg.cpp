#include <lockstep/cli/explain/pipeline_svg.h>

#include <algorithm>
#include <set>
#include <sstream>

#include <lockstep/bench/sizes.h>
#include <lockstep/core/strings.h>
#include <lockstep/report/svg.h>
#include <lockstep/report/text.h>

namespace lockstep::cli {
namespace {

using svg::rect;

// How a kind of action is drawn. CSS class names begin with k.
struct LookOfKind {
  const char* name;
  std::size_t color;  // index in svg::Palette
  const char* meaning;
};
constexpr LookOfKind kForwardLook = {"kf", 0, "forward"};
constexpr LookOfKind kBackwardLook = {"kb", 1, "backward"};
constexpr LookOfKind kInputLook = {"ki", 4, "gradients of inputs"};
constexpr LookOfKind kWeightLook = {"kw", 2, "gradients of weights"};
constexpr LookOfKind kSendLook = {"ks", 3, "sends"};
constexpr LookOfKind kReceiveLook = {"kr", 6, "receives, and waits for it"};
constexpr LookOfKind kReduceLook = {"kd", 5, "reduces over replicas"};
constexpr const LookOfKind* kLooks[] = {&kForwardLook, &kBackwardLook, &kInputLook, &kWeightLook,
                                        &kSendLook,    &kReceiveLook,  &kReduceLook};

const LookOfKind& look_of(pipeline::Kind kind) {
  switch (kind) {
    case pipeline::Kind::kForward:
      return kForwardLook;
    case pipeline::Kind::kBackward:
      return kBackwardLook;
    case pipeline::Kind::kBackwardInput:
      return kInputLook;
    case pipeline::Kind::kBackwardWeight:
      return kWeightLook;
    case pipeline::Kind::kSendForward:
    case pipeline::Kind::kSendBackward:
      return kSendLook;
    case pipeline::Kind::kReceiveForward:
    case pipeline::Kind::kReceiveBackward:
      return kReceiveLook;
    case pipeline::Kind::kReduce:
      break;
  }
  return kReduceLook;
}

std::string pipeline_rules(const svg::Palette& palette) {
  std::string rules = str(".back,.in{fill:", palette.back, "}text{fill:", palette.ink,
                          "}.bar{fill:", palette.gray, "}.s{fill:", palette.soft,
                          "}.l{stroke:", palette.line, "}.idle{fill:", palette.line, "}\n");
  for (const LookOfKind* look : kLooks)
    rules += str(".", look->name, "{fill:", palette.colors[look->color], "}");
  return rules + "\n";
}

std::string pipeline_style() {
  return svg::style_sheet(
      ".t{font-size:16px;font-weight:600}"
      ".m{text-anchor:middle;font-size:10px}.n{font-size:10px}.e{text-anchor:end}.l{fill:none}"
      ".idle{opacity:.45}.later{fill-opacity:.5}.c{font:11px ui-monospace,monospace}",
      pipeline_rules);
}

// Draws from top to bottom; the height is known only at the end.
class PipelineDrawing {
 public:
  explicit PipelineDrawing(const PipelinePicture& picture) : picture_(picture) {
    for (const PipelineChart& chart : picture.charts) end_ = std::max(end_, chart.timeline.end);
    const bool drawn_to_scale_of_units = picture.charts.size() == 1;
    lanes_width_ = drawn_to_scale_of_units ? std::clamp(end_ * kWidestUnit, kLeastWidth, kMostWidth)
                                           : kMostWidth;
    double side = kSide;
    for (std::size_t worker = 0; worker < picture.table.workers.size(); ++worker) {
      const auto letters = static_cast<double>(bytes_of_stages(worker).size());
      side = std::max(side, kHeld + kSmallLetter * letters + kEdge);
    }
    width_ = kLanes + lanes_width_ + side;
    for (const int each : picture.peak_activations) most_held_ = std::max(most_held_, each);
    std::vector<int> held_before(picture.table.workers.size());
    for (const int worker : picture.table.worker_of)
      place_.push_back(held_before[static_cast<std::size_t>(worker)]++);
  }

  std::string draw() {
    out_ << svg::text_at(kEdge, y_, "t", picture_.title);
    draw_legend();
    for (const PipelineChart& chart : picture_.charts) draw_chart(chart);
    draw_bubbles();
    if (picture_.executor) draw_executor(*picture_.executor);
    draw_table();
    for (const std::string& note : picture_.notes) {
      y_ += 18;
      out_ << svg::text_at(kEdge, y_, "s", note);
    }
    return svg::opened(width_, y_ + kEdge, picture_.title) + pipeline_style() + svg::background() +
           out_.str() + "</svg>\n";
  }

 private:
  // In pixels.
  static constexpr double kEdge = 16;
  static constexpr double kLanes = 84;  // where the timelines begin
  static constexpr double kLane = 36;   // from one worker to the next
  static constexpr double kBox = 22;
  static constexpr double kThinBox = 6;  // height of actions other than computations
  static constexpr double kSide = 220;   // minimum width to the right of the timelines
  static constexpr double kHeld = 80;    // from there to the worker's memory
  static constexpr double kHeldBar = 70;
  static constexpr double kWholeTime = 400;  // a bubble of 100%
  static constexpr double kWidestUnit = 26;
  static constexpr double kLeastWidth = 420;
  static constexpr double kMostWidth = 880;
  static constexpr double kLetter = 6.7;  // approximate width of a letter
  static constexpr double kSmallLetter = 5.6;

  void draw_legend() {
    y_ += 24;
    double x = kEdge;
    const auto entry = [&](const char* classes, const std::string& meaning) {
      out_ << rect(x, y_ - 10, 12, 12, classes) << svg::text_at(x + 17, y_, "", meaning);
      x += 35 + kLetter * static_cast<double>(meaning.size());
    };
    std::set<const LookOfKind*> seen;
    for (const PipelineChart& chart : picture_.charts) {
      for (const auto& intervals : chart.timeline.workers) {
        for (const pipeline::Interval& each : intervals) seen.insert(&look_of(each.action.kind));
      }
    }
    for (const LookOfKind* look : kLooks) {
      if (seen.contains(look)) entry(look->name, look->meaning);
    }
    entry("idle", "waits");
    if (*std::max_element(place_.begin(), place_.end()) > 0)
      out_ << svg::text_at(x, y_, "s", "paler: a worker's later stages");
  }

  double x_of(double time) const { return kLanes + lanes_width_ * time / end_; }

  void draw_box(const pipeline::Interval& each, std::size_t worker, double top,
                const std::string& unit) {
    const double x = x_of(each.begin);
    const double width = std::max(x_of(each.end) - x - 0.6, 0.6);
    const LookOfKind& look = look_of(each.action.kind);
    const bool computes = is_compute(each.action.kind);
    const bool later = place_[static_cast<std::size_t>(each.action.stage)] > 0;
    out_ << rect(x, computes ? top : top + kBox + 2, width, computes ? kBox : kThinBox,
                 str(look.name, later ? " later" : ""),
                 str(text(each.action), " on worker ", worker, ": ", svg::number(each.begin),
                     " to ", svg::number(each.end), unit.empty() ? "" : " ", unit));
    const std::string label = std::to_string(each.action.micro_batch);
    if (computes && width > kLetter * static_cast<double>(label.size()) + 1)
      out_ << svg::text_at(x + width / 2, top + 15, later ? "m" : "m in", label);
  }

  void draw_chart(const PipelineChart& chart) {
    const double right = kLanes + lanes_width_;
    y_ += 36;
    out_ << svg::text_at(kEdge, y_, "t", chart.name)
         << svg::text_at(kEdge + 92, y_, "s", chart.explanation)
         << svg::text_at(right + 64, y_, "s e", "waits")
         << svg::text_at(right + kHeld, y_, "s", "holds at most");
    const double top = y_ + 10;
    y_ = top + kLane * static_cast<double>(chart.timeline.workers.size());
    draw_axis(chart, top);
    for (std::size_t worker = 0; worker < chart.timeline.workers.size(); ++worker) {
      const double lane = top + kLane * static_cast<double>(worker);
      out_ << svg::text_at(kEdge, lane + 15, "", str("worker ", worker))
           << rect(kLanes, lane, x_of(chart.timeline.end) - kLanes, kBox, "idle");
      for (const pipeline::Interval& each : chart.timeline.workers[worker])
        draw_box(each, worker, lane, chart.unit);
      out_ << svg::text_at(right + 64, lane + 15, "e",
                           report::percent_text(chart.timeline.bubble_of(worker)));
      draw_held(worker, right + kHeld, lane);
    }
  }

  // Empty if the worker has one stage, or if nothing is known.
  std::string bytes_of_stages(std::size_t worker) const {
    const std::string bytes = stage_bytes_text(picture_, worker);
    return bytes.empty() ? "" : "stages: " + bytes;
  }

  void draw_held(std::size_t worker, double x, double top) {
    const int held = picture_.peak_activations[worker];
    const double width = kHeldBar * held / std::max(1, most_held_);
    const std::string memory =
        picture_.worker_bytes.empty()
            ? ""
            : ", " +
                  bench::binary_bytes_text(static_cast<double>(picture_.worker_bytes.at(worker)));
    out_ << rect(x, top + 6, width, 10, "bar")
         << svg::text_at(x + width + 6, top + 15, "", str(held, memory));
    const std::string of_stages = bytes_of_stages(worker);
    if (!of_stages.empty()) out_ << svg::text_at(x, top + 29, "s n", of_stages);
  }

  void draw_axis(const PipelineChart& chart, double top) {
    const double distance = svg::distance_of_marks(chart.timeline.end);
    for (int mark = 0; mark * distance <= chart.timeline.end; ++mark) {
      const double x = x_of(mark * distance);
      out_ << svg::line_between(x, top - 3, x, y_ + 2)
           << svg::text_at(x, y_ + 15, "s m",
                           svg::number(mark * distance) +
                               (mark == 0 && !chart.unit.empty() ? " " + chart.unit : ""));
    }
    y_ += 18;
  }

  void draw_bubbles() {
    y_ += 34;
    out_ << svg::text_at(kEdge, y_, "t", "Bubble")
         << svg::text_at(kEdge + 92, y_, "s",
                         "the share of all workers' time in which they do not compute");
    for (const NamedBubble& each : picture_.bubbles) {
      const double width = std::max(kWholeTime * each.bubble, 0.6);
      y_ += 20;
      out_ << svg::text_at(kEdge + 56, y_, "e", report::percent_text(each.bubble))
           << rect(kEdge + 66, y_ - 10, width, 12, "bar")
           << svg::text_at(kEdge + 74 + width, y_, "", each.name);
    }
  }

  void draw_executor(const ExecutorCost& cost) {
    y_ += 34;
    out_ << svg::text_at(kEdge, y_, "t", "Executor")
         << svg::text_at(kEdge + 92, y_, "s",
                         str("the same table with stages that do nothing takes ",
                             report::fixed_text(cost.empty_step * 1e3, 3), " ms, ",
                             report::percent_text(executor_share(cost)), " of a step"));
  }

  void draw_table() {
    y_ += 34;
    out_ << svg::text_at(kEdge, y_, "t", "Table")
         << svg::text_at(kEdge + 92, y_, "s", "a line for each worker");
    const auto columns = static_cast<std::size_t>((width_ - 2 * kEdge) / kLetter);
    for (const std::string& line : wrapped_table(picture_.table, columns)) {
      y_ += 15;
      const std::size_t indent = line.find_first_not_of(' ');
      if (indent == std::string::npos) continue;  // an idle worker
      out_ << svg::text_at(kEdge + kLetter * static_cast<double>(indent), y_, "c",
                           line.substr(indent));
    }
  }

  const PipelinePicture& picture_;
  std::vector<int> place_;  // position of each stage among those of its worker
  double end_ = 0, lanes_width_ = 0, width_ = 0;
  int most_held_ = 0;
  double y_ = 28;
  std::ostringstream out_;
};

}  // namespace

std::string pipeline_svg(const PipelinePicture& picture) { return PipelineDrawing(picture).draw(); }

}  // namespace lockstep::cli
