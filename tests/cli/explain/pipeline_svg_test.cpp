// Drawings of pipeline schedules, from timelines that are written down here.
#include <lockstep/cli/explain/pipeline_svg.h>

#include <algorithm>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <lockstep/cli/explain/pipeline_picture.h>
#include <lockstep/parallel/pipeline/schedule/table.h>
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

}  // namespace
}  // namespace lockstep::cli
