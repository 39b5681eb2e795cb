// Where the parts of the report's charts stand, in the wide and in the narrow form.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include <lockstep/report/html/chart_width.h>
#include <lockstep/report/html/line_chart.h>
#include <lockstep/report/html/stacked_bars.h>
#include <lockstep/report/html/step_timeline.h>
#include <lockstep/report/html/wait_matrix.h>
#include <lockstep/report/svg.h>

namespace lockstep::testing_support {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

void expect_parts(const std::string& picture, const std::vector<std::string>& parts) {
  for (const std::string& part : parts) EXPECT_THAT(picture, HasSubstr(part));
}

std::size_t number_of(const std::string& text, const std::string& part) {
  std::size_t count = 0;
  for (auto at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++count;
  return count;
}

TEST(LineChartPlaces, AreThoseOfAxesAndLegend) {
  html::LineChart chart{.title = "Loss",
                        .x_label = "epoch",
                        .y_label = "loss",
                        .curves = {{.name = "a", .points = {{0, 0}, {1, 10}}},
                                   {.name = "b", .points = {{1, 5}}, .is_dashed = true}}};
  // 214 pixels stand for 0 to 10.6.
  const std::string wide = svg_of(chart, html::kWide);
  expect_parts(wide, {"viewBox=\"0 0 720 330\" width=\"720\" height=\"330\"",
                      "<text x=\"0\" y=\"14\" class=\"s\">loss</text>",
                      "<text x=\"384\" y=\"282\" class=\"s m\">epoch</text>",
                      "<path class=\"l\" d=\"M64 244L704 244\"/>",
                      "<text x=\"56\" y=\"248\" class=\"s e\">0</text>",
                      "<path class=\"l\" d=\"M64 42.1L704 42.1\"/>",
                      "<text x=\"56\" y=\"46.1\" class=\"s e\">10</text>",
                      "<text x=\"64\" y=\"262\" class=\"s m\">0</text>",
                      "<text x=\"704\" y=\"262\" class=\"s m\">1</text>",
                      "d=\"M64 300h24\"/><text x=\"96\" y=\"304\" class=\"\">a</text>",
                      " o\" d=\"M64 320h24\"/><text x=\"96\" y=\"324\" class=\"\">b</text>"});
  EXPECT_EQ(number_of(wide, "<path class=\"l\""), 6U) << "0, 2, 4, 6, 8 and 10";
  expect_parts(svg_of(chart, html::kNarrow),
               {"viewBox=\"0 0 340 330\"", "<text x=\"194\" y=\"282\" class=\"s m\">epoch</text>",
                "<text x=\"324\" y=\"262\" class=\"s m\">1</text>",
                "d=\"M0 300h24\"/><text x=\"32\" y=\"304\" class=\"\">a</text>",
                " o\" d=\"M0 320h24\"/><text x=\"32\" y=\"324\" class=\"\">b</text>"});
  chart.curves.pop_back();
  const std::string alone = svg_of(chart, html::kWide);
  expect_parts(alone, {"viewBox=\"0 0 720 290\""});
  EXPECT_THAT(alone, Not(HasSubstr("h24"))) << "a single curve needs no legend";
}

TEST(LineChartPlaces, MakeRoomForANameOfTwoLines) {
  const html::LineChart chart{
      .curves = {
          {.name = "ddp: mnist, loader native, 1 thread a rank, other kernels", .points = {{1, 2}}},
          {.name = "short", .points = {{1, 2}}}}};
  expect_parts(svg_of(chart, html::kNarrow),
               {"<text x=\"32\" y=\"304\" class=\"\">ddp: mnist, ",
                "<text x=\"32\" y=\"319\" class=\"\">other kernels</text>",
                "d=\"M0 335h24\"/><text x=\"32\" y=\"339\" class=\"\">short</text>",
                "viewBox=\"0 0 340 345\""});
}

TEST(LineChartPlaces, LeaveRoomBetweenTheMarksOfManyEpochs) {
  html::Curve curve{.name = "a"};
  for (int epoch = 1; epoch <= 100; ++epoch) curve.points.emplace_back(epoch, 1.0);
  const html::LineChart chart{.curves = {curve}};
  const std::string marks = "y=\"262\" class=\"s m\">";
  EXPECT_EQ(number_of(svg_of(chart, html::kWide), marks), 10U) << "10, 20, ...";
  EXPECT_EQ(number_of(svg_of(chart, html::kNarrow), marks), 5U) << "20, 40, ...";
}

TEST(StackedBarPlaces, AreThoseOfBarsAndTheirNames) {
  const html::StackedBars chart{
      .unit = "ms",
      .parts = {"data", "forward", "backward"},
      .bars = {{.name = "long", .parts = {3, 0, 1}}, {.name = "short", .parts = {1, 1, 0}}}};
  expect_parts(svg_of(chart, html::kWide), {"<text x=\"142\" y=\"21\" class=\"e\">long</text>",
                                            "<text x=\"142\" y=\"46\" class=\"e\">short</text>",
                                            "<text x=\"650\" y=\"21\" class=\"s\">4.00 ms</text>",
                                            "<text x=\"403\" y=\"46\" class=\"s\">2.00 ms</text>"});
  // A narrow chart has its names above the bars, and 66 pixels for a millisecond.
  expect_parts(svg_of(chart, html::kNarrow),
               {"viewBox=\"0 0 340 138\"", "<text x=\"0\" y=\"21\" class=\"\">long</text>",
                "<text x=\"0\" y=\"63\" class=\"\">short</text>",
                "x=\"0\" y=\"26\" width=\"198\" height=\"18\"",
                "x=\"198\" y=\"26\" width=\"66\" height=\"18\"",
                "x=\"0\" y=\"68\" width=\"66\" height=\"18\"",
                "x=\"66\" y=\"68\" width=\"66\" height=\"18\"",
                "<text x=\"270\" y=\"39\" class=\"s\">4.00 ms</text>",
                "<text x=\"138\" y=\"81\" class=\"s\">2.00 ms</text>"});
}

// A step of two ranks that has a pixel for each microsecond. Rank 1 waits for rank 0.
std::string step_of_pixels(double microseconds, double width) {
  html::TracedRun run{.ranks = 2};
  for (int rank = 0; rank < 2; ++rank) {
    run.spans.push_back({.rank = rank,
                         .name = "forward",
                         .category = "phase",
                         .track = "training",
                         .begin = 0,
                         .end = 200});
    run.spans.push_back({.rank = rank,
                         .name = "reduction: waits for rank 0",
                         .category = "arrival",
                         .track = "bucket 0",
                         .begin = 200,
                         .end = 200.0 + 100 * rank});
  }
  run.steps = {{.name = "step 1", .ranks = {{0, {0, microseconds}}, {1, {0, microseconds}}}}};
  return svg_of(html::StepTimeline{.run = run, .step = run.steps[0]}, width);
}

TEST(TimelinePlaces, AreThoseOfRowsMarksAndLegend) {
  expect_parts(step_of_pixels(720 - 130 - 40, html::kWide),
               {"viewBox=\"0 0 720 162\"", "aria-label=\"timeline of step 1\"",
                "<path class=\"l\" d=\"M130 24L130 110\"/>",
                "<text x=\"130\" y=\"18\" class=\"s m\">0.00 ms</text>",
                "<path class=\"l\" d=\"M230 24L230 110\"/>",
                "<text x=\"230\" y=\"18\" class=\"s m\">0.10 ms</text>",
                "<text x=\"630\" y=\"18\" class=\"s m\">0.50 ms</text>",
                "<text x=\"122\" y=\"44\" class=\"e\">rank 0, training</text>",
                "<text x=\"122\" y=\"104\" class=\"e\">rank 1, bucket 0</text>",
                "x=\"130\" y=\"32\" width=\"200\" height=\"16\"",
                "x=\"330\" y=\"52\" width=\"0.5\" height=\"16\"",
                "x=\"330\" y=\"92\" width=\"100\" height=\"16\""});
  const std::string narrow = step_of_pixels(340 - 28, html::kNarrow);
  expect_parts(narrow, {"viewBox=\"0 0 340 266\"", "<path class=\"l\" d=\"M100 24L100 174\"/>",
                        "<text x=\"100\" y=\"18\" class=\"s m\">0.10 ms</text>",
                        "<text x=\"300\" y=\"18\" class=\"s m\">0.30 ms</text>",
                        "<text x=\"0\" y=\"42\" class=\"\">rank 0, training</text>",
                        "<text x=\"0\" y=\"150\" class=\"\">rank 1, bucket 0</text>",
                        "x=\"0\" y=\"46\" width=\"200\" height=\"16\"",
                        "x=\"200\" y=\"154\" width=\"100\" height=\"16\"",
                        "x=\"170\" y=\"186\" width=\"12\" height=\"12\"",
                        "x=\"0\" y=\"246\" width=\"12\" height=\"12\"",
                        "<text x=\"18\" y=\"256\" class=\"\">other</text>"});
  EXPECT_THAT(narrow, Not(HasSubstr(">0.00 ms</text>"))) << "half of it would be cut off";
}

TEST(WaitMatrixPlaces, AreNamedAtTheTopAndListedWhereThereIsAWait) {
  html::TracedRun run{.ranks = 2};
  for (int rank = 0; rank < 2; ++rank) {
    run.spans.push_back({.rank = rank,
                         .name = str("reduction: waits for rank ", 1 - rank),
                         .category = "arrival",
                         .begin = 10,
                         .end = 10.0 + 200 * rank});
  }
  run.steps = {{.name = "step 1", .ranks = {{0, {0, 1000}}, {1, {0, 1000}}}}};
  const std::string text = html::wait_matrix(run, {});
  expect_parts(text, {"<thead><tr><th scope=\"col\">waits</th><th scope=\"col\">for rank 0</th>"
                      "<th scope=\"col\">for rank 1</th></tr></thead>",
                      "<th scope=\"col\" class=\"t\">rank</th><th scope=\"col\" class=\"t\">waits "
                      "for</th><th scope=\"col\">ms a step</th>",
                      "The mean of 1 step."});
  EXPECT_EQ(number_of(text, "<tr><td class=\"t\">rank "), 1U) << "rank 0 did not wait";
  run.spans.clear();
  EXPECT_EQ(number_of(html::wait_matrix(run, {}), "<td>0</td>"), 2U);
}

TEST(SvgText, IsCutToItsWidth) {
  // 100 pixels hold 14 characters.
  EXPECT_EQ(svg::fitted(std::string(14, 'x'), 100), std::string(14, 'x'));
  EXPECT_EQ(svg::fitted(std::string(15, 'x'), 100), std::string(13, 'x') + "\u2026");
  EXPECT_EQ(svg::fitted("ab", 1), "\u2026");
  EXPECT_EQ(svg::fitted("a", 1), "a");
  EXPECT_EQ(svg::escaped("a\nb\tc\x02 <>&\"'"), "a\nb\tc  &lt;&gt;&amp;&quot;'");
}

TEST(SvgMarks, AreAtRoundDistances) {
  const std::pair<double, double> cases[] = {{10, 2},  {19, 2},  {20, 5},     {49, 5},
                                             {50, 10}, {99, 10}, {0.3, 0.05}, {700, 100}};
  for (const auto& [total, distance] : cases) {
    EXPECT_DOUBLE_EQ(svg::distance_of_marks(total), distance) << total;
  }
}

}  // namespace
}  // namespace lockstep::testing_support
