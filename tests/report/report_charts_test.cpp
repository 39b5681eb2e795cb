// The report's charts: the SVG contains exactly the numbers that were given.
#include <cmath>
#include <limits>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <lockstep/report/html/base64.h>
#include <lockstep/report/html/chart_width.h>
#include <lockstep/report/html/line_chart.h>
#include <lockstep/report/html/page_parts.h>
#include <lockstep/report/html/stacked_bars.h>
#include <lockstep/report/html/step_timeline.h>
#include <lockstep/report/html/wait_matrix.h>
#include <lockstep/report/svg.h>
#include <tests/support/well_formed.h>

namespace lockstep::testing_support {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

constexpr const char* kHostile = "<script>alert(\"1\")</script> & \x01 \xff";

void expect_sound(const std::string& picture) {
  EXPECT_EQ(malformed(picture), "");
  for (const char* word : {"nan", "inf", "<script", "\x01", "\xff"}) {
    EXPECT_THAT(picture, Not(HasSubstr(word))) << word;
  }
}

std::size_t count_of(const std::string& text, const std::string& part) {
  std::size_t count = 0;
  for (auto at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++count;
  return count;
}

TEST(LineCharts, HaveAPointForEachValue) {
  const html::LineChart chart{.title = "Loss",
                              .x_label = "epoch",
                              .y_label = "loss",
                              .curves = {{.name = "a", .points = {{1, 0.5}, {2, 0.25}}},
                                         {.name = "b", .points = {{1, 4}}, .is_dashed = true}}};
  for (const double width : {html::kWide, html::kNarrow}) {
    const std::string picture = svg_of(chart, width);
    expect_sound(picture);
    EXPECT_EQ(count_of(picture, "<circle"), 3U);
    EXPECT_THAT(picture, HasSubstr("a, epoch 2: 0.25"));
    EXPECT_THAT(picture, HasSubstr("b, epoch 1: 4"));
    EXPECT_THAT(picture, HasSubstr("aria-label=\"Loss\""));
    EXPECT_THAT(picture, HasSubstr(str("viewBox=\"0 0 ", width, " ")));
  }
}

// After one epoch. Labels of nearly equal values do not cover each other.
TEST(LineCharts, WriteTheValuesOfSinglePoints) {
  html::LineChart chart{.curves = {{.name = "a", .points = {{1, 0.98415}}},
                                   {.name = "b", .points = {{1, 0.98416}}},
                                   {.name = "c", .points = {{1, 0.25}}}}};
  const std::string picture = svg_of(chart, html::kWide);
  expect_sound(picture);
  EXPECT_EQ(count_of(picture, ">0.984</text>"), 2U);
  EXPECT_EQ(count_of(picture, ">0.250</text>"), 1U);
  const std::size_t first = picture.find("<text x=\"393\"");
  ASSERT_NE(first, std::string::npos) << picture;
  const std::size_t second = picture.find("<text x=\"393\"", first + 1);
  ASSERT_NE(second, std::string::npos);
  EXPECT_NE(picture.substr(first, 30), picture.substr(second, 30)) << "at different heights";
  chart.curves[0].points.emplace_back(2, 0.99);
  EXPECT_EQ(count_of(svg_of(chart, html::kWide), ">0.984</text>"), 0U) << "a curve tells enough";
}

// In SVG, smaller y coordinates are higher, and must show larger values.
TEST(LineCharts, PutLargerValuesHigher) {
  const std::string picture =
      svg_of(html::LineChart{.curves = {{.name = "a", .points = {{0, 0}, {1, 10}}}}}, html::kWide);
  EXPECT_THAT(picture, HasSubstr("d=\"M64 244L704 "));
}

TEST(LineCharts, LeaveOutWhatIsNoNumber) {
  constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  const std::string picture = svg_of(
      html::LineChart{.curves = {{.name = "a", .points = {{1, kNan}, {2, 3}, {3, kInfinity}}},
                                 {.name = "b", .points = {{1, kNan}}}}},
      html::kWide);
  expect_sound(picture);
  EXPECT_EQ(count_of(picture, "<circle"), 1U);
  EXPECT_EQ(svg_of(html::LineChart{.curves = {{.name = "b", .points = {{1, kNan}}}}}, html::kWide),
            "");
  EXPECT_EQ(svg_of(html::LineChart{}, html::kWide), "");
}

TEST(LineCharts, AreSoundForAnyValues) {
  for (const auto& range :
       {std::pair(0.0, 0.0), std::pair(5.0, 5.0), std::pair(-1.0, -1.0), std::pair(-3.0, 2.0),
        std::pair(1e-9, 2e-9), std::pair(1e12, 2e12), std::pair(0.9999, 0.99991),
        std::pair(1.0, std::nextafter(1.0, 2)), std::pair(-1e15, std::nextafter(-1e15, 0)),
        std::pair(0.0, std::numeric_limits<double>::denorm_min())}) {
    for (const bool from_zero : {false, true}) {
      const std::string picture = svg_of(
          html::LineChart{
              .curves = {{.name = "a", .points = {{1, range.first}, {100000, range.second}}}},
              .from_zero = from_zero},
          html::kNarrow);
      expect_sound(picture);
      EXPECT_LT(count_of(picture, "<text"), 40U) << range.first;
    }
  }
}

TEST(LineCharts, BeginNearTheSmallestValueWhereTheyShall) {
  html::LineChart chart{.curves = {{.name = "a", .points = {{0, 100}, {1, 101}}}}};
  EXPECT_THAT(svg_of(chart, html::kWide), HasSubstr("d=\"M64 32.2L704 30.1\""));
  chart.from_zero = false;
  EXPECT_THAT(svg_of(chart, html::kWide), HasSubstr("d=\"M64 232.5L704 41.5\""));
}

TEST(LineCharts, HaveMarksAtWholeNumbersWhereTheyShall) {
  html::LineChart chart{.curves = {{.name = "a", .points = {{10, 0}, {11, 2}}}}};
  for (const char* mark : {">0.5</text>", ">1.5</text>"}) {
    EXPECT_THAT(svg_of(chart, html::kWide), HasSubstr(mark));
  }
  chart.whole_numbers = true;
  const std::string picture = svg_of(chart, html::kWide);
  for (const char* mark : {">0</text>", ">1</text>", ">2</text>"}) {
    EXPECT_THAT(picture, HasSubstr(mark));
  }
  EXPECT_THAT(picture, Not(HasSubstr(".5</text>")));
}

// Dots would cover a long curve. Colours repeat after the eighth curve.
TEST(LineCharts, HaveDotsOnShortCurvesAndEightColours) {
  html::LineChart chart;
  for (int i = 0; i < 9; ++i) chart.curves.push_back({.name = "a", .points = {{0, i}}});
  const std::string colours = svg_of(chart, html::kWide);
  EXPECT_EQ(count_of(colours, "<circle class=\"f0\""), 2U);
  EXPECT_EQ(count_of(colours, "<circle class=\"f7\""), 1U);
  for (const std::size_t points : {120U, 121U}) {
    html::Curve curve{.name = "a", .color = 3};
    for (std::size_t i = 0; i < points; ++i) {
      curve.points.emplace_back(static_cast<double>(i), 1.0);
    }
    const std::string picture = svg_of(html::LineChart{.curves = {curve}}, html::kWide);
    EXPECT_EQ(count_of(picture, "<circle"), points > 120 ? 0 : points);
    EXPECT_EQ(count_of(picture, "<path class=\"a k3\""), 1U);
  }
}

// A ring has the curve's colour, a remark in its title, and a line in the legend, also of a chart
// of one curve and on a curve that is too long for dots.
TEST(LineCharts, MarkPointsByRings) {
  html::LineChart chart{
      .x_label = "epoch",
      .curves = {{.name = "a", .points = {{1, 4}, {2, 5}}},
                 {.name = "b", .points = {{1, 6}, {2, 7}}, .rings = {{2, "3 of <8>"}}}},
      .ring_meaning = "a <part>"};
  for (const double width : {html::kWide, html::kNarrow}) {
    const std::string picture = svg_of(chart, width);
    expect_sound(picture);
    EXPECT_EQ(count_of(picture, "<circle class=\"f0\""), 2U);
    EXPECT_EQ(count_of(picture, "<circle class=\"f1\""), 1U);
    EXPECT_EQ(count_of(picture, "<circle class=\"h k1\""), 2U) << "the point and the legend";
    EXPECT_THAT(picture, HasSubstr("b, epoch 1: 6</title>"));
    EXPECT_THAT(picture, HasSubstr("b, epoch 2: 7 (3 of &lt;8&gt;)</title>"));
    EXPECT_EQ(count_of(picture, ">a &lt;part&gt;</text>"), 1U);
  }
  EXPECT_THAT(svg_of(chart, html::kWide), HasSubstr("viewBox=\"0 0 720 350\""))
      << "the legend has three lines";
  chart.curves.erase(chart.curves.begin());
  const std::string alone = svg_of(chart, html::kWide);
  EXPECT_THAT(alone, HasSubstr("viewBox=\"0 0 720 310\"")) << "the legend has one line";
  EXPECT_EQ(count_of(alone, ">a &lt;part&gt;</text>"), 1U);
  chart.curves[0].rings.clear();
  EXPECT_THAT(svg_of(chart, html::kWide), Not(HasSubstr("part")));
  html::Curve long_curve{.name = "long", .rings = {{7, "short"}}};
  for (int i = 0; i < 200; ++i) long_curve.points.emplace_back(i, 1);
  EXPECT_EQ(count_of(svg_of(html::LineChart{.curves = {long_curve}}, html::kWide), "<circle"), 2U);
}

// A narrow chart shows a long name in full, on two lines.
TEST(LineCharts, WrapTheNamesOfCurves) {
  const html::LineChart chart{
      .curves = {
          {.name = "ddp: mnist, loader native, 1 thread a rank, other kernels", .points = {{1, 2}}},
          {.name = "short", .points = {{1, 2}}}}};
  const std::string narrow = svg_of(chart, html::kNarrow);
  EXPECT_THAT(narrow, HasSubstr(">ddp: mnist, loader native, 1 thread a rank,</text>"));
  EXPECT_THAT(narrow, HasSubstr(">other kernels</text>"));
  EXPECT_THAT(svg_of(chart, html::kWide), HasSubstr("1 thread a rank, other kernels</text>"));
}

TEST(LineCharts, EscapeNames) {
  expect_sound(svg_of(html::LineChart{.title = kHostile,
                                      .x_label = kHostile,
                                      .y_label = kHostile,
                                      .curves = {{.name = kHostile, .points = {{1, 2}}},
                                                 {.name = kHostile, .points = {{1, 3}}}}},
                      html::kWide));
}

TEST(StackedBarCharts, HaveAPartForEachValue) {
  const html::StackedBars chart{
      .title = "Phases",
      .unit = "ms",
      .parts = {"data", kHostile},
      .bars = {{.name = "epoch 1", .parts = {3, 1}}, {.name = kHostile, .parts = {0, 2}}}};
  for (const double width : {html::kWide, html::kNarrow}) {
    const std::string picture = svg_of(chart, width);
    expect_sound(picture);
    EXPECT_EQ(count_of(picture, "height=\"18\""), 3U);  // a part of 0 has no rectangle
    EXPECT_THAT(picture, HasSubstr("epoch 1, data: 3.00 ms"));
    EXPECT_THAT(picture, HasSubstr(">4.00 ms</text>"));
  }
  EXPECT_EQ(svg_of(html::StackedBars{.parts = {"data"}, .bars = {{.parts = {0}}}}, html::kWide),
            "");
  EXPECT_EQ(svg_of(html::StackedBars{}, html::kWide), "");
}

// A part begins where the one before it ends. The longest bar takes all the room.
TEST(StackedBarCharts, PutPartsBehindEachOther) {
  const html::StackedBars chart{
      .unit = "ms",
      .parts = {"data", "forward", "backward"},
      .bars = {{.name = "long", .parts = {3, 0, 1}}, {.name = "short", .parts = {1, 1, 0}}},
      .colors = {5, 0, 2}};
  const std::string picture = svg_of(chart, html::kWide);
  // 720 pixels without 150 for the names and 76 for the sums: 123.5 a millisecond.
  for (const char* part : {"class=\"f5\" x=\"150\" y=\"8\" width=\"370.5\"",
                           "class=\"f2\" x=\"520.5\" y=\"8\" width=\"123.5\"",
                           "class=\"f5\" x=\"150\" y=\"33\" width=\"123.5\"",
                           "class=\"f0\" x=\"273.5\" y=\"33\" width=\"123.5\""}) {
    EXPECT_THAT(picture, HasSubstr(part));
  }
}

// The legend has a line for three parts in a wide chart, and for two in a narrow one.
TEST(StackedBarCharts, NameEachPartInTheirLegend) {
  const html::StackedBars chart{.title = "Phases",
                                .unit = "ms",
                                .parts = {"data", "forward", "backward", "optimizer"},
                                .bars = {{.name = "bar", .parts = {1, 1, 1, 1}}},
                                .colors = {5, 0, 2}};
  struct Case {
    double width;
    const char* height;
    std::vector<const char*> corners;
  };
  const Case cases[] = {
      {html::kWide,
       "viewBox=\"0 0 720 79\"",
       {"x=\"150\" y=\"39\"", "x=\"340\" y=\"39\"", "x=\"530\" y=\"39\"", "x=\"150\" y=\"59\""}},
      {html::kNarrow,
       "viewBox=\"0 0 340 96\"",
       {"x=\"0\" y=\"56\"", "x=\"170\" y=\"56\"", "x=\"0\" y=\"76\"", "x=\"170\" y=\"76\""}}};
  constexpr int kColors[] = {5, 0, 2, 3};  // a part without a color of its own has its number's
  for (const Case& each : cases) {
    const std::string picture = svg_of(chart, each.width);
    EXPECT_THAT(picture, HasSubstr(each.height));
    EXPECT_EQ(count_of(picture, "width=\"12\" height=\"12\"/>"), 4U);
    for (std::size_t i = 0; i < 4; ++i) {
      EXPECT_THAT(picture, HasSubstr(str("<rect class=\"f", kColors[i], "\" ", each.corners[i],
                                         " width=\"12\" height=\"12\"/>")));
      EXPECT_EQ(count_of(picture, ">" + chart.parts[i] + "</text>"), 1U);
    }
  }
}

TEST(StackedBarCharts, WriteValuesWithThreeDigits) {
  const html::StackedBars chart{.unit = "ms",
                                .parts = {"a", "b", "c"},
                                .bars = {{.name = "bar", .parts = {0.5, 12.34, 1.234}}}};
  const std::string picture = svg_of(chart, html::kWide);
  for (const char* text : {"bar, a: 0.500 ms", "bar, b: 12.3 ms", "bar, c: 1.23 ms", ">14.1 ms<"}) {
    EXPECT_THAT(picture, HasSubstr(text));
  }
  const std::string round = svg_of(
      html::StackedBars{
          .unit = "ms",
          .parts = {"a"},
          .bars = {{.name = "x", .parts = {1}}, {.name = "y", .parts = {10}}, {.parts = {0}}}},
      html::kWide);
  for (const char* text : {">1.00 ms<", ">10.0 ms<", ">0 ms<"}) {
    EXPECT_THAT(round, HasSubstr(text));
  }
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  EXPECT_EQ(
      svg_of(html::StackedBars{.parts = {"a"}, .bars = {{.parts = {kInfinity}}}}, html::kWide), "");
}

// Colors repeat after the eighth part.
TEST(StackedBarCharts, HaveEightColors) {
  html::StackedBars chart{.bars = {{.name = "bar", .parts = std::vector<double>(9, 1)}}};
  for (int part = 0; part < 9; ++part) chart.parts.push_back(str("part ", part));
  const std::string picture = svg_of(chart, html::kWide);
  EXPECT_EQ(count_of(picture, "<rect class=\"f0\""), 4U);  // in the bar and in the legend
  EXPECT_EQ(count_of(picture, "<rect class=\"f7\""), 2U);
}

html::TracedRun one_step() {
  html::TracedRun run{.ranks = 2};
  for (int rank = 0; rank < 2; ++rank) {
    run.spans.push_back({.rank = rank,
                         .name = kHostile,
                         .category = "phase",
                         .track = "training",
                         .begin = 0,
                         .end = 600});
    run.spans.push_back({.rank = rank,
                         .name = "reduction: waits for rank 0",
                         .category = "arrival",
                         .track = "bucket 0",
                         .begin = 600,
                         .end = 600.0 + 200 * rank});
  }
  run.steps.push_back(
      {.name = "step 1", .ranks = {{0, {.begin = 0, .end = 1000}}, {1, {.begin = 0, .end = 900}}}});
  return run;
}

TEST(StepTimelines, HaveARowForEachTrack) {
  const html::TracedRun run = one_step();
  for (const double width : {html::kWide, html::kNarrow}) {
    const std::string picture = svg_of(html::StepTimeline{.run = run, .step = run.steps[0]}, width);
    expect_sound(picture);
    for (const char* row : {"rank 0, training", "rank 1, training", "rank 1, bucket 0"}) {
      EXPECT_THAT(picture, HasSubstr(row));
    }
    EXPECT_THAT(picture, HasSubstr("reduction: waits for rank 0, 0.200 ms"));
    EXPECT_THAT(svg_of(html::StepTimeline{.run = run, .step = run.steps[0], .ranks = 1}, width),
                Not(HasSubstr("rank 1")));
  }
  // 720 pixels without 130 for the names and 40 behind them: 0.55 a microsecond.
  const std::string picture =
      svg_of(html::StepTimeline{.run = run, .step = run.steps[0]}, html::kWide);
  EXPECT_THAT(picture, HasSubstr("x=\"460\" y=\"92\" width=\"110\""));
  EXPECT_EQ(count_of(picture, "x=\"130\" y=\"32\" width=\"330\""), 1U);
  EXPECT_EQ(count_of(picture, "x=\"130\" y=\"72\" width=\"330\""), 1U);
  const html::TracedStep nothing{.name = "step 2", .ranks = {{0, {.begin = 5, .end = 5}}}};
  EXPECT_EQ(svg_of(html::StepTimeline{.run = run, .step = nothing}, html::kWide), "");
}

TEST(StepTimelines, NameEachKindInTheirLegend) {
  const html::TracedRun run = one_step();
  const html::StepTimeline timeline{.run = run, .step = run.steps[0]};
  const char* const kinds[] = {"forward",       "backward",         "optimizer", "data",
                               "communication", "waits for a rank", "other"};
  for (const double width : {html::kWide, html::kNarrow}) {
    const std::string picture = svg_of(timeline, width);
    EXPECT_EQ(count_of(picture, "width=\"12\" height=\"12\"/>"), 7U);
    for (const char* kind : kinds) EXPECT_EQ(count_of(picture, str(">", kind, "</text>")), 1U);
  }
  // Four rows of 20 pixels lie between the scale and the legend, which has four columns.
  const std::string wide = svg_of(timeline, html::kWide);
  for (const char* mark :
       {"f0\" x=\"130\" y=\"122\"", "f2\" x=\"277.5\" y=\"122\"", "f3\" x=\"425\" y=\"122\"",
        "f5\" x=\"572.5\" y=\"122\"", "f1\" x=\"130\" y=\"142\"", "f7\" x=\"277.5\" y=\"142\"",
        "f6\" x=\"425\" y=\"142\""}) {
    EXPECT_THAT(wide, HasSubstr(mark));
  }
}

// A timeline of one millisecond and one rank, whose only row is that of the training thread.
std::string timeline_of(const std::vector<html::TracedSpan>& spans) {
  html::TracedRun run{.ranks = 1};
  run.spans = spans;
  for (html::TracedSpan& span : run.spans) span.track = "training";
  run.steps = {{.name = "step 1", .ranks = {{0, {0, 1000}}}}};
  return svg_of(html::StepTimeline{.run = run, .step = run.steps[0]}, html::kWide);
}

TEST(StepTimelines, ColorSpansByWhatTheyAre) {
  struct Case {
    const char* name;
    const char* category;
    int color;
  };
  const Case cases[] = {{"reduction: waits for rank 0", "arrival", 7},
                        {"reduction", "communication", 1},
                        {"barrier", "collective", 1},
                        {"bucket", "reduction", 1},
                        {"0SEND_F0", "message", 1},
                        {"broadcast buffers", "phase", 1},
                        {"read", "data", 5},
                        {"wait for data", "phase", 5},
                        {"forward", "phase", 0},
                        {"0F0", "forward", 0},
                        {"backward", "phase", 2},
                        {"0B0", "backward", 2},
                        {"optimizer", "phase", 3},
                        {"zero gradients", "phase", 3},
                        {"finite check", "phase", 3},
                        {"clip", "phase", 6}};
  for (const auto& [name, category, color] : cases) {
    EXPECT_THAT(timeline_of({{.name = name, .category = category, .begin = 0, .end = 500}}),
                HasSubstr(str("<rect class=\"f", color, "\" x=\"130\" y=\"32\" width=\"275\"")))
        << name;
  }
  for (const char* category : {"step", "ddp", "team"}) {
    EXPECT_THAT(timeline_of({{.name = "forward", .category = category, .begin = 0, .end = 500}}),
                Not(HasSubstr("<title>")))
        << category;
  }
}

// A wide timeline has at most nine marks, a narrow one at most four, without that of zero.
TEST(StepTimelines, HaveMarksAtRoundTimes) {
  const auto drawn = [](double microseconds, double width) {
    html::TracedRun run{.ranks = 1};
    run.spans = {{.name = "forward", .category = "phase", .begin = 0, .end = microseconds}};
    run.steps = {{.name = "step 1", .ranks = {{0, {.begin = 0, .end = microseconds}}}}};
    return svg_of(html::StepTimeline{.run = run, .step = run.steps[0]}, width);
  };
  const std::string wide = drawn(900, html::kWide);
  EXPECT_EQ(count_of(wide, " ms</text>"), 5U);
  EXPECT_THAT(wide, HasSubstr(">0.00 ms</text>"));
  EXPECT_THAT(wide, HasSubstr(">0.80 ms</text>"));
  const std::string narrow = drawn(900, html::kNarrow);
  EXPECT_EQ(count_of(narrow, " ms</text>"), 2U);
  EXPECT_THAT(narrow, HasSubstr(">0.40 ms</text>"));
  EXPECT_THAT(narrow, HasSubstr(">0.80 ms</text>"));
  EXPECT_THAT(drawn(90, html::kWide), HasSubstr(">0.080 ms</text>"));
}

// Spans are cut at the ends of the step. A span without a length is still visible.
TEST(StepTimelines, ShowThePartsOfSpansInTheStep) {
  const auto shown = [](double begin, double end) {
    return timeline_of({{.name = "forward", .category = "phase", .begin = begin, .end = end}});
  };
  EXPECT_THAT(shown(-100, 100), HasSubstr("x=\"130\" y=\"32\" width=\"55\""));
  EXPECT_THAT(shown(900, 1200), HasSubstr("x=\"625\" y=\"32\" width=\"55\""));
  EXPECT_THAT(shown(500, 500), HasSubstr("x=\"405\" y=\"32\" width=\"0.5\""));
  EXPECT_THAT(shown(-100, 100), HasSubstr("rank 0, training: forward, 0.200 ms"));
  EXPECT_THAT(shown(-100, 0), Not(HasSubstr("<title>")));
  EXPECT_THAT(shown(1000, 1100), Not(HasSubstr("<title>")));
}

TEST(WaitMatrices, HaveARowForEachRank) {
  const std::string text = html::wait_matrix(one_step(), {{"run", kHostile}});
  expect_sound(text);
  EXPECT_THAT(text, HasSubstr(">0.200</td>"));
  html::TracedRun many = one_step();
  many.ranks = 40;
  EXPECT_THAT(html::wait_matrix(many, {}),
              HasSubstr(">rank 1</td><td class=\"t\">rank 0</td><td>0.2000</td>"));
  EXPECT_EQ(html::wait_matrix(html::TracedRun{.ranks = 1}, {}), "");
}

// Rank 1 waits twice for rank 0, and rank 0 once for rank 2.
TEST(WaitMatrices, HaveTheWaiterInTheRowAndTheMeanOfTheSteps) {
  html::TracedRun run{.ranks = 3};
  const auto wait = [&](int rank, int late, double begin, double time) {
    run.spans.push_back({.rank = rank,
                         .name = str("reduction: waits for rank ", late),
                         .category = "arrival",
                         .track = "bucket 0",
                         .begin = begin,
                         .end = begin + time});
  };
  wait(1, 0, 10, 200);
  wait(0, 2, 20, 100);
  wait(1, 0, 1010, 400);
  for (const double begin : {0.0, 1000.0}) {
    html::TracedStep step{.name = str("step ", begin)};
    for (int rank = 0; rank < 3; ++rank) step.ranks[rank] = {begin, begin + 1000};
    run.steps.push_back(step);
  }
  const std::string text = html::wait_matrix(run, {});
  for (const char* part :
       {"<th scope=\"row\">rank 0</th><td></td><td>0</td><td "
        "style=\"background:rgba(207,34,46,0.09)\">0.050</td></tr>",
        "<th scope=\"row\">rank 1</th><td style=\"background:rgba(207,34,46,0.55)\">0.300</td>"
        "<td></td><td>0</td></tr>",
        "<th scope=\"row\">rank 2</th><td>0</td><td>0</td><td></td></tr>",
        ">rank 1</td><td class=\"t\">rank 0</td><td>0.3000</td>", "The mean of 2 steps."}) {
    EXPECT_THAT(text, HasSubstr(part));
  }
}

// Seventeen ranks have 272 pairs, too many for a matrix and for a table.
TEST(WaitMatrices, ListTheLongestWaitsOfManyRanks) {
  for (const int ranks : {16, 17}) {
    html::TracedRun run{.ranks = ranks};
    html::TracedStep step{.name = "step 1"};
    for (int rank = 0; rank < ranks; ++rank) {
      step.ranks[rank] = {0, 1000};
      for (int late = 0; late < ranks; ++late) {
        if (late == rank) continue;
        run.spans.push_back({.rank = rank,
                             .name = str("reduction: waits for rank ", late),
                             .category = "arrival",
                             .begin = 0,
                             .end = 1.0 + 17 * rank + late});
      }
    }
    run.steps.push_back(step);
    const std::string text = html::wait_matrix(run, {});
    EXPECT_EQ(count_of(text, "<th scope=\"row\">"), ranks == 16 ? 16U : 0U);
    EXPECT_EQ(count_of(text, "<tr><td class=\"t\">rank "), ranks == 16 ? 240U : 2 * 100U);
  }
}

TEST(ReportParts, EscapeWhatTheyShow) {
  expect_sound(text_of(html::Table{.titles = {kHostile}, .rows = {{kHostile}}}, kHostile));
  expect_sound(text_of(html::Figure{.title = kHostile,
                                    .note = kHostile,
                                    .picture = "<p>1</p>",
                                    .commands = {{kHostile, kHostile}}}));
  EXPECT_EQ(text_of(html::Figure{.title = "a"}), "");
  EXPECT_EQ(html::section("a", "b", ""), "");
  expect_sound(html::style());
}

TEST(ReportParts, AlignColumnsOfWordsToTheLeft) {
  const html::Table table{.titles = {"run", "n"}, .rows = {{"x", "1"}, {"", "2"}, {"y"}}};
  const std::string text = text_of(table, "label", "anchor");
  for (const char* part :
       {"aria-label=\"label\" id=\"anchor\"><table>",
        "<th scope=\"col\" class=\"t\">run</th><th scope=\"col\">n</th>",
        "<tr><td class=\"t\">x</td><td>1</td></tr>", "<tr><td class=\"t\"></td><td>2</td></tr>",
        "<tr><td class=\"t\">y</td></tr>"}) {
    EXPECT_THAT(text, HasSubstr(part));
  }
  EXPECT_THAT(text_of(table, "label"), HasSubstr("aria-label=\"label\"><table>"));
}

// Cells behind the last title belong to columns of their own.
TEST(ReportParts, AlignCellsWithoutATitle) {
  const html::Table table{.titles = {"n"},
                          .rows = {{"1", "word", "9 lives"}, {"2", "-", "4"}, {"3"}}};
  const std::string text = text_of(table, "label");
  EXPECT_EQ(count_of(text, "<th scope"), 1U);
  for (const char* part :
       {"<tr><td>1</td><td class=\"t\">word</td><td>9 lives</td></tr>",
        "<tr><td>2</td><td class=\"t\">-</td><td>4</td></tr>", "<tr><td>3</td></tr>"}) {
    EXPECT_THAT(text, HasSubstr(part));
  }
}

TEST(ReportParts, HaveANoteAndCommandsWhereTheyAreGiven) {
  EXPECT_THAT(text_of(html::Figure{.title = "a", .picture = "<p>1</p>"}),
              ::testing::AllOf(HasSubstr("<b>a</b></figcaption>\n<p>1</p><details>"),
                               Not(HasSubstr("<code>"))));
  const std::string text =
      text_of(html::Figure{.title = "a",
                           .note = "a note",
                           .picture = "<p>1</p>",
                           .commands = {{"first", ""}, {"second", "lockstep train"}}});
  EXPECT_THAT(text, HasSubstr("<b>a</b><p>a note</p>\n</figcaption>"));
  EXPECT_THAT(text, HasSubstr("<p>second: <code>lockstep train</code></p>\n</details>"));
  EXPECT_THAT(text, Not(HasSubstr("first")));
  EXPECT_THAT(text, HasSubstr("aria-label=\"rows of: a\""));
  EXPECT_EQ(html::section("id", "b & c", "content\n"),
            "<section id=\"id\">\n<h2>b &amp; c</h2>\ncontent\n</section>\n");
}

TEST(ReportParts, CutWhatDoesNotFit) {
  EXPECT_EQ(svg::fitted("short", 100), "short");
  const std::string cut = svg::fitted(std::string(50, 'x'), 100);
  EXPECT_LT(cut.size(), 20U);
  EXPECT_TRUE(cut.ends_with("\u2026")) << cut;
  EXPECT_EQ(malformed(svg::escaped(svg::fitted("\u00e4\u00e4\u00e4\u00e4\u00e4\u00e4", 20))), "");
}

// The test vectors of RFC 4648, section 10.
TEST(ReportParts, WriteBase64) {
  EXPECT_EQ(html::base64(""), "");
  EXPECT_EQ(html::base64("f"), "Zg==");
  EXPECT_EQ(html::base64("fo"), "Zm8=");
  EXPECT_EQ(html::base64("foo"), "Zm9v");
  EXPECT_EQ(html::base64("foobar"), "Zm9vYmFy");
  EXPECT_EQ(html::base64("\xff\xfe\xfd"), "//79");
}

TEST(ReportParts, AreJudgedByACheckThatCanFail) {
  for (const char* page :
       {"<p>", "</p>", "<p></b></p>", "a & b", "<a href=\"></a>", "<p", "< p></p>"}) {
    EXPECT_NE(malformed(page), "") << page;
  }
  EXPECT_EQ(malformed("<!DOCTYPE html>\n<p class=\"a\">&amp;<br/></p>"), "");
}

}  // namespace
}  // namespace lockstep::testing_support
