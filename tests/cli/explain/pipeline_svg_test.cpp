// Drawings of pipeline schedules, from timelines that are written down here.
#include <lockstep/cli/explain/pipeline_svg.h>

#include <algorithm>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <lockstep/cli/explain/pipeline_picture.h>
#include <lockstep/core/strings.h>
#include <lockstep/parallel/pipeline/schedule/table.h>
#include <lockstep/report/svg.h>
#include <tests/support/well_formed.h>

namespace lockstep::cli {
namespace {

using pipeline::Action;
using pipeline::Interval;
using pipeline::Kind;
using testing::HasSubstr;
using testing::Not;

// One worker, which does these things in four units of time.
PipelinePicture picture_of_intervals(const std::vector<Interval>& intervals) {
  PipelinePicture picture{.title = "mine"};
  picture.table.name = "mine";
  std::vector<Action>& actions = picture.table.workers.emplace_back();
  int stages = 0;
  for (const Interval& each : intervals) {
    actions.push_back(each.action);
    stages = std::max(stages, each.action.stage + 1);
  }
  picture.table.worker_of.assign(static_cast<std::size_t>(stages), 0);
  picture.peak_activations = {5};
  picture.charts = {{.name = "replayed", .timeline = {.workers = {intervals}, .end = 4}}};
  return picture;
}

std::size_t times_in(const std::string& text, const std::string& part) {
  std::size_t count = 0;
  for (auto at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++count;
  return count;
}

struct DrawnKind {
  Kind kind;
  const char* css;
  const char* meaning;
  int height;
};

// A kind has its own color, which the legend explains if the picture has such an action.
TEST(PipelineSvg, DrawsAndExplainsEachKindOfAction) {
  const DrawnKind kinds[] = {{Kind::kForward, "kf", "forward", 22},
                             {Kind::kBackward, "kb", "backward", 22},
                             {Kind::kBackwardInput, "ki", "gradients of inputs", 22},
                             {Kind::kBackwardWeight, "kw", "gradients of weights", 22},
                             {Kind::kSendForward, "ks", "sends", 6},
                             {Kind::kSendBackward, "ks", "sends", 6},
                             {Kind::kReceiveForward, "kr", "receives, and waits for it", 6},
                             {Kind::kReceiveBackward, "kr", "receives, and waits for it", 6},
                             {Kind::kReduce, "kd", "reduces over replicas", 6}};
  for (const DrawnKind& drawn : kinds) {
    const Action action{drawn.kind, 0, drawn.kind == Kind::kReduce ? -1 : 7};
    SCOPED_TRACE(text(action));
    const std::string svg = pipeline_svg(picture_of_intervals({{action, 1, 3}}));
    EXPECT_EQ(testing_support::malformed(svg), "");
    EXPECT_THAT(svg, HasSubstr(str("height=\"", drawn.height, "\" class=\"", drawn.css,
                                   "\"><title>", text(action), " on worker 0: 1 to 3</title>")));
    EXPECT_THAT(svg, HasSubstr(str("height=\"12\" class=\"", drawn.css, "\"/>")));
    for (const DrawnKind& other : kinds) {
      const bool is_equal = std::string(other.css) == drawn.css;
      EXPECT_EQ(times_in(svg, str("class=\"", other.css, "\"")), is_equal ? 2U : 0U) << other.css;
      EXPECT_EQ(times_in(svg, str(">", other.meaning, "</text>")), is_equal ? 1U : 0U);
    }
    EXPECT_EQ(times_in(svg, ">7</text>"), drawn.height == 22 ? 1U : 0U) << "the micro-batch";
    EXPECT_THAT(svg, HasSubstr(is_compute(drawn.kind) ? ">50.00%</text>" : ">100.00%</text>"));
    EXPECT_THAT(svg, Not(HasSubstr("paler")));
  }
}

TEST(PipelineSvg, DrawsTheLaterStagesOfAWorkerPaler) {
  const std::string svg = pipeline_svg(picture_of_intervals({{{Kind::kForward, 0, 7}, 0, 2},
                                                             {{Kind::kForward, 1, 8}, 2, 3.99},
                                                             {{Kind::kForward, 1, 6}, 3.99, 4}}));
  EXPECT_EQ(times_in(svg, "class=\"kf\""), 2U) << "a box, and that of the legend";
  EXPECT_EQ(times_in(svg, "class=\"kf later\""), 2U);
  EXPECT_THAT(svg, HasSubstr("class=\"m in\">7</text>"));
  EXPECT_THAT(svg, HasSubstr("class=\"m\">8</text>"));
  EXPECT_THAT(svg, Not(HasSubstr(">6</text>"))) << "the box is too narrow for its number";
  EXPECT_THAT(svg, HasSubstr("paler: a worker's later stages"));
}

TEST(PipelineSvg, ShowsWhatAMeasurementTells) {
  PipelinePicture picture = picture_of_intervals({{{Kind::kForward, 0, 7}, 0, 4}});
  const std::string replayed = pipeline_svg(picture);
  EXPECT_THAT(replayed, Not(HasSubstr("Executor")));
  EXPECT_THAT(replayed, HasSubstr(">5</text>")) << "activations, whose size is not known";
  EXPECT_THAT(replayed, HasSubstr("class=\"s m\">0</text>"));
  picture.charts[0].unit = "ms";
  picture.worker_bytes = {3 << 19};
  picture.executor = {.step = 0.01, .empty_step = 0.0005};
  picture.bubbles = {{.key = "bubble", .name = "measured", .bubble = 0.25},
                     {.key = "bubble_formula", .name = "by formula", .bubble = 0}};
  picture.notes = {"The workers shared a processor."};
  const std::string svg = pipeline_svg(picture);
  EXPECT_EQ(testing_support::malformed(svg), "");
  for (const char* part :
       {">Executor</text>",
        "the same table with stages that do nothing takes 0.500 ms, 5.00% of a step</text>",
        ">5, 1.5 MiB</text>", "class=\"s m\">0 ms</text>", "on worker 0: 0 to 4 ms</title>",
        ">25.00%</text>", "width=\"100\" height=\"12\" class=\"bar\"", ">measured</text>",
        ">0.00%</text>", ">by formula</text>", ">The workers shared a processor.</text>"}) {
    EXPECT_THAT(svg, HasSubstr(part));
  }
}

// A table from a file may have a worker without stages.
TEST(PipelineSvg, HasALaneForAnIdleWorker) {
  PipelinePicture picture = picture_of_intervals({{{Kind::kForward, 0, 7}, 0, 4}});
  picture.table.workers = {{}, picture.table.workers[0]};
  picture.table.worker_of = {1};
  picture.charts[0].timeline.workers.insert(picture.charts[0].timeline.workers.begin(),
                                            std::vector<Interval>{});
  picture.peak_activations = {0, 5};
  const std::string svg = pipeline_svg(picture);
  EXPECT_EQ(testing_support::malformed(svg), "");
  EXPECT_THAT(svg, HasSubstr(">worker 0</text>"));
  EXPECT_THAT(svg, HasSubstr(">100.00%</text>"));
  EXPECT_THAT(svg, HasSubstr("0F7 on worker 1: 0 to 4</title>"));
  EXPECT_THAT(svg, HasSubstr("class=\"c\">0F7</text>")) << "its line of the table";
}

std::string box(const std::string& place, const std::string& classes,
                const std::string& title = "") {
  const std::string end = title.empty() ? "/>" : "><title>" + title + "</title></rect>";
  return str("<rect ", place, " class=\"", classes, "\"", end, "\n");
}

// Three stages on two workers, the times of a chart, a measurement of memory and executor, a bubble
// and a note: everything that a drawing can have, and nothing twice.
PipelinePicture picture_of_everything() {
  PipelinePicture picture{.title = "mine"};
  picture.table.name = "mine";
  picture.table.worker_of = {0, 1, 0};
  picture.table.workers = {{{Kind::kForward, 0, 0}, {Kind::kForward, 2, 0}},
                           {{Kind::kForward, 1, 0}}};
  picture.peak_activations = {4, 1};
  picture.worker_bytes = {3 << 19, 1 << 20};
  picture.stage_bytes = {1 << 20, 1 << 20, 1 << 19};
  picture.executor = {.step = 0.01, .empty_step = 0.0005};
  picture.charts = {
      {.name = "replayed",
       .explanation = "by hand",
       .timeline = {
           .workers = {{{{Kind::kForward, 0, 0}, 0, 1}, {{Kind::kForward, 2, 0}, 2, 3}},
                       {{{Kind::kForward, 1, 0}, 1, 2}, {{Kind::kSendForward, 1, 0}, 2, 2.2}}},
           .end = 4}}};
  picture.bubbles = {{.key = "bubble", .name = "counted", .bubble = 0.25}};
  picture.notes = {"A note."};
  return picture;
}

// A unit of time is 105 pixels wide, the lanes begin at 84 and end at 504.
TEST(PipelineSvg, PutsEachThingInItsPlace) {
  using svg::text_at;
  std::string expected =
      text_at(16, 28, "t", "mine") + box(R"(x="16" y="42" width="12" height="12")", "kf") +
      text_at(33, 52, "", "forward") + box(R"(x="97.9" y="42" width="12" height="12")", "ks") +
      text_at(114.9, 52, "", "sends") + box(R"(x="166.4" y="42" width="12" height="12")", "idle") +
      text_at(183.4, 52, "", "waits") + text_at(234.9, 52, "s", "paler: a worker's later stages") +
      text_at(16, 88, "t", "replayed") + text_at(108, 88, "s", "by hand") +
      text_at(568, 88, "s e", "waits") + text_at(584, 88, "s", "holds at most");
  const char* const marks[] = {"0", "0.5", "1", "1.5", "2", "2.5", "3", "3.5", "4"};
  for (int i = 0; i < 9; ++i) {
    const double x = 84 + 52.5 * i;
    expected += svg::line_between(x, 95, x, 172) + text_at(x, 185, "s m", marks[i]);
  }
  expected +=
      text_at(16, 113, "", "worker 0") + box(R"(x="84" y="98" width="420" height="22")", "idle") +
      box(R"(x="84" y="98" width="104.4" height="22")", "kf", "0F0 on worker 0: 0 to 1") +
      text_at(136.2, 113, "m in", "0") +
      box(R"(x="294" y="98" width="104.4" height="22")", "kf later", "2F0 on worker 0: 2 to 3") +
      text_at(346.2, 113, "m", "0") + text_at(568, 113, "e", "50.00%") +
      box(R"(x="584" y="104" width="70" height="10")", "bar") +
      text_at(660, 113, "", "4, 1.5 MiB") + text_at(584, 127, "s n", "stages: 1 MiB + 512 KiB") +
      text_at(16, 149, "", "worker 1") + box(R"(x="84" y="134" width="420" height="22")", "idle") +
      box(R"(x="189" y="134" width="104.4" height="22")", "kf", "1F0 on worker 1: 1 to 2") +
      text_at(241.2, 149, "m in", "0") +
      box(R"(x="294" y="158" width="20.4" height="6")", "ks", "1SEND_F0 on worker 1: 2 to 2.2") +
      text_at(568, 149, "e", "75.00%") + box(R"(x="584" y="140" width="17.5" height="10")", "bar") +
      text_at(607.5, 149, "", "1, 1 MiB");
  expected +=
      text_at(16, 222, "t", "Bubble") +
      text_at(108, 222, "s", "the share of all workers' time in which they do not compute") +
      text_at(72, 242, "e", "25.00%") + box(R"(x="82" y="232" width="100" height="12")", "bar") +
      text_at(190, 242, "", "counted") + text_at(16, 276, "t", "Executor") +
      text_at(108, 276, "s",
              "the same table with stages that do nothing takes 0.500 ms, 5.00% of a step") +
      text_at(16, 310, "t", "Table") + text_at(108, 310, "s", "a line for each worker") +
      text_at(16, 325, "c", "0F0,2F0") + text_at(16, 340, "c", "1F0") +
      text_at(16, 358, "s", "A note.") + "</svg>\n";
  const std::string drawn = pipeline_svg(picture_of_everything());
  // 224.8 pixels beside the lanes hold the 23 letters of the stages' bytes.
  EXPECT_THAT(drawn, testing::StartsWith(svg::opened(84 + 420 + 224.8, 374, "mine")));
  const std::string back = "class=\"back\"/>\n";
  EXPECT_EQ(drawn.substr(drawn.find(back) + back.size()), expected);
}

// A single chart is drawn to a scale, as far as it fits; several fill the width.
TEST(PipelineSvg, IsAsWideAsItsTime) {
  PipelinePicture picture = picture_of_intervals({{{Kind::kForward, 0, 7}, 0, 4}});
  const auto width_for = [&](double end) {
    picture.charts[0].timeline.end = end;
    const std::string drawn = pipeline_svg(picture);
    const std::size_t at = drawn.find("viewBox=\"0 0 ") + 13;
    return std::stod(drawn.substr(at)) - 84 - 220;
  };
  EXPECT_EQ(width_for(16), 420);
  EXPECT_EQ(width_for(20), 520);
  EXPECT_EQ(width_for(34), 880);
  EXPECT_EQ(width_for(1000), 880);
  picture.charts.push_back(picture.charts[0]);
  EXPECT_EQ(width_for(4), 880);
  EXPECT_THAT(pipeline_svg(picture), HasSubstr(svg::text_at(84 + 880 + 64, 88, "s e", "waits")))
      << "the longer chart counts";
  picture.peak_activations = {0};
  EXPECT_THAT(pipeline_svg(picture), HasSubstr("width=\"0\" height=\"10\" class=\"bar\""));
}

}  // namespace
}  // namespace lockstep::cli
