// Pictures of a traced all-reduce, drawn from a fixed trace.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <utility>

#include <lockstep/bench/collectives/trace_svg.h>
#include <lockstep/bench/collectives/trace_text.h>
#include <lockstep/bench/collectives/traced_run.h>
#include <lockstep/core/strings.h>
#include <lockstep/report/svg.h>

namespace lockstep {
namespace {

using testing::HasSubstr;
using testing::Not;

constexpr auto kSend = comm::TraceEvent::Kind::kSend;
constexpr auto kReceive = comm::TraceEvent::Kind::kReceive;
constexpr auto kReduce = comm::TraceEvent::Kind::kReduce;

// A ring of two ranks with four float32 values: each rank adds one half, then passes it on. Times
// are from 0 to 100 microseconds.
bench::TracedRun ring_of_two() {
  constexpr std::int64_t us = 1000;
  const comm::ScheduledRange lower{0, 2}, upper{2, 2};
  const auto trace = [&](int peer, comm::ScheduledRange own, comm::ScheduledRange other,
                         std::int64_t late) {
    const auto at = [&](std::int64_t time) { return 5'000'000 + (time + late) * us; };
    return comm::Trace{at(0),
                       at(90),
                       {{kSend, 0, peer, other, 8, at(0), at(20)},
                        {kReceive, 0, peer, own, 8, at(0), at(40)},
                        {kReduce, 0, -1, own, 8, at(40), at(50)},
                        {kSend, 1, peer, own, 8, at(50), at(60)},
                        {kReceive, 1, peer, other, 8, at(50), at(90)}}};
  };
  return {.algorithm = "ring",
          .backend = "shm",
          .dtype = "float32",
          .bytes = 16,
          .count = 4,
          .model = {5e-6, 1e-10, 2e-10},
          .predicted_seconds = {40e-6, 41e-6},
          .traces = {trace(1, lower, upper, 0), trace(0, upper, lower, 10)},
          .repetitions = 21,
          .processors = 2};
}

TEST(TracedRun, TellsArrowsAndPieces) {
  const bench::TracedRun run = ring_of_two();
  const auto arrows = bench::arrows_of(run);
  ASSERT_EQ(arrows.size(), 4U);
  const bench::PieceNames names(run);
  EXPECT_EQ(names.pieces(), 2U);
  struct Expected {
    int step, from, to;
    const char* piece;
    bool added;
  };
  const Expected expected[] = {
      {0, 0, 1, "1", true}, {0, 1, 0, "0", true}, {1, 0, 1, "0", false}, {1, 1, 0, "1", false}};
  for (std::size_t i = 0; i < arrows.size(); ++i) {
    EXPECT_EQ(arrows[i].step, expected[i].step);
    EXPECT_EQ(arrows[i].from, expected[i].from);
    EXPECT_EQ(arrows[i].to, expected[i].to);
    EXPECT_EQ(names.name(arrows[i].range), expected[i].piece);
    EXPECT_EQ(arrows[i].added, expected[i].added);
  }
  EXPECT_EQ(names.name({0, 4}), "all");
}

TEST(TracedRun, NamesRangesOfPieces) {
  bench::TracedRun run = ring_of_two();
  run.count = 8;
  run.traces[0].events.push_back({kSend, 2, 1, {4, 4}, 16, 0, 0});
  run.traces[0].events.push_back({kSend, 2, 1, {6, 2}, 8, 0, 0});
  const bench::PieceNames names(run);
  EXPECT_EQ(names.name({4, 4}), "2-3");
  EXPECT_EQ(names.name({6, 2}), "3");
  EXPECT_EQ(names.name({0, 4}), "0-1");
}

TEST(TracedRun, CountsBytesAndTime) {
  const bench::TracedRun run = ring_of_two();
  const auto totals = bench::totals_of(run);
  ASSERT_EQ(totals.size(), 2U);
  EXPECT_EQ(totals[1].messages_sent, 2U);
  EXPECT_EQ(totals[1].bytes_sent, 16U);
  EXPECT_EQ(totals[1].bytes_received, 16U);
  EXPECT_NEAR(totals[1].seconds, 90e-6, 1e-12);
  EXPECT_NEAR(totals[1].reduce_seconds, 10e-6, 1e-12);
  EXPECT_EQ(totals[1].predicted_seconds, 41e-6);
  EXPECT_EQ(bench::end_ns(run) - bench::begin_ns(run), 100'000);
  EXPECT_EQ(bench::step_count(run), 2);
}

TEST(TraceText, ShowsStepsTimesAndTotals) {
  EXPECT_EQ(
      bench::trace_text(ring_of_two(), 60, false),
      "ring all-reduce of 16 B float32 on 2 ranks over shm\n"
      "\n"
      "step 1  0 -> 1 +[1]  1 -> 0 +[0]\n"
      "step 2  0 -> 1  [0]  1 -> 0  [1]\n"
      "[n]: piece n of 2 of the tensor; +: added to what the receiver has, else it replaces that\n"
      "\n"
      "rank 0   xxxxxxxxxxxrrrrrrrrr++++++xxxxxrrrrrrrrrrrrrrr....\n"
      "rank 1   .....xxxxxxxxxxxrrrrrrrrr++++++xxxxxrrrrrrrrrrrrrr\n"
      "         0                                           100 us\n"
      "         s sends  r receives  x both  + adds  . neither\n"
      "\n"
      "rank messages       sent   received    time us predicted us\n"
      "   0        2       16 B       16 B       90.0         40.0\n"
      "   1        2       16 B       16 B       90.0         41.0\n"
      "alpha 5.00 us per message, beta 0.10 ns per byte (10.0 GB/s), gamma 0.20 ns per byte "
      "added\n");
}

TEST(TraceText, WrapsLongSteps) {
  bench::TracedRun run = ring_of_two();
  const std::string text = bench::trace_text(run, 30, false);
  EXPECT_THAT(text, HasSubstr("step 1  0 -> 1 +[1]\n        1 -> 0 +[0]\n"));
}

// A step's line has 32 characters.
TEST(TraceText, FillsItsColumns) {
  const bench::TracedRun run = ring_of_two();
  EXPECT_THAT(bench::trace_text(run, 32, false), HasSubstr("\nstep 1  0 -> 1 +[1]  1 -> 0 +[0]\n"));
  EXPECT_THAT(bench::trace_text(run, 31, false),
              HasSubstr("\nstep 1  0 -> 1 +[1]\n        1 -> 0 +[0]\n"));
}

TEST(TraceText, AlignsTheNumbersOfSteps) {
  bench::TracedRun run = ring_of_two();
  run.traces[0].events.push_back({kSend, 9, 1, {0, 2}, 8, 5'000'000, 5'000'000});
  EXPECT_EQ(bench::step_count(run), 10);
  EXPECT_THAT(bench::trace_text(run, 60, false),
              HasSubstr("\nstep  2  0 -> 1  [0]  1 -> 0  [1]\nstep 10  0 -> 1  [0]\n"));
  EXPECT_THAT(bench::trace_text(run, 20, false),
              HasSubstr("\nstep  1  0 -> 1 +[1]\n         1 -> 0 +[0]\n"));
}

std::string replaced(std::string text, const std::string& from, const std::string& to) {
  for (auto at = text.find(from); at != std::string::npos; at = text.find(from, at + to.size())) {
    text.replace(at, from.size(), to);
  }
  return text;
}

TEST(TraceText, DrawsBlocksWhereTheTerminalHasThem) {
  bench::TracedRun run = ring_of_two();
  // Rank 0 sends for the first fifth of the time; rank 1 does all there is.
  run.traces[0].events = {{kSend, 0, 1, {2, 2}, 8, 5'000'000, 5'020'000}};
  const std::string ascii =
      "rank 0   sssssssssss.......................................\n"
      "rank 1   .....xxxxxxxxxxxrrrrrrrrr++++++xxxxxrrrrrrrrrrrrrr\n";
  EXPECT_THAT(bench::trace_text(run, 60, false), HasSubstr(ascii));
  std::string blocks = ascii.substr(ascii.find("s"));
  for (const auto& [letter, block] : {std::pair(".", "·"), {"s", "▀"}, {"x", "█"}}) {
    blocks = replaced(blocks, letter, block);
  }
  blocks = replaced(replaced(blocks, "r", "▄"), "▄ank", "rank");
  const std::string text = bench::trace_text(run, 60, true);
  EXPECT_THAT(text, HasSubstr("\nstep 1  0 → 1 +[1]  1 → 0  [0]\n"));
  EXPECT_THAT(text, HasSubstr("rank 0   " + blocks));
  EXPECT_THAT(text, HasSubstr("\n         ▀ sends  ▄ receives  █ both  + adds  · neither\n"));
}

TEST(TraceText, SaysWhenRanksShareProcessors) {
  bench::TracedRun run = ring_of_two();
  run.processors = 1;
  EXPECT_THAT(bench::trace_text(run, 80, true), HasSubstr("here 2 ranks shared 1."));
  EXPECT_THAT(bench::trace_svg(run), HasSubstr("here 2 ranks shared 1."));
  for (const int processors : {0, 2, 3}) {  // 0: unknown
    run.processors = processors;
    EXPECT_THAT(bench::trace_text(run, 80, true), Not(HasSubstr("ranks shared")));
    EXPECT_THAT(bench::trace_svg(run), Not(HasSubstr("ranks shared")));
  }
}

TEST(TraceText, HasNoRateOfAWireThatWasNotMeasured) {
  EXPECT_EQ(bench::model_text({}),
            "alpha 0.00 us per message, beta 0.00 ns per byte (0.00 GB/s), gamma 0.00 ns per byte "
            "added");
}

std::size_t count_of(const std::string& text, const std::string& part) {
  std::size_t count = 0;
  for (auto at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++count;
  return count;
}

TEST(TraceSvg, DrawsEveryMessageAndEveryEvent) {
  const std::string svg = bench::trace_svg(ring_of_two());
  EXPECT_TRUE(svg.starts_with("<svg xmlns=\"http://www.w3.org/2000/svg\""));
  EXPECT_TRUE(svg.ends_with("</svg>\n"));
  EXPECT_EQ(count_of(svg, "marker-end="), 4U);
  EXPECT_EQ(count_of(svg, "class=\"a k0\" ") + count_of(svg, "class=\"a k1\" "), 2U);  // additions
  EXPECT_EQ(count_of(svg, "class=\"a k0 o\" ") + count_of(svg, "class=\"a k1 o\" "),
            2U);  // copies
  EXPECT_EQ(count_of(svg, "<rect"), 1U + 10U);
  EXPECT_THAT(svg, HasSubstr("<title>step 1, sends 1 to 1, 20.0 us</title>"));
  EXPECT_THAT(svg, HasSubstr("<title>step 1, adds 0, 10.0 us</title>"));
  EXPECT_THAT(svg, HasSubstr("prefers-color-scheme:dark"));
  EXPECT_THAT(svg, HasSubstr(">41.0 us</text>"));
  // The picture is self-contained: it loads nothing and runs no script.
  for (const char* part : {"href", "<script", "<image", "@import", "url(http"})
    EXPECT_THAT(svg, Not(HasSubstr(part)));
}

// The timelines are 420 pixels wide, for 100 us.
TEST(TraceSvg, PlacesEventsAndFigures) {
  const std::string svg = bench::trace_svg(ring_of_two());
  for (const char* part :
       {">ring all-reduce of 16 B float32 on 2 ranks over shm</text>",
        "the piece of the tensor (0 to 1). Solid: added there. Dashed: replaces it.</text>",
        "The median of 21 runs.</text>", ">step 1</text>", ">step 2</text>", ">16 B</text>",
        ">90.0 us</text>", ">40.0 us</text>", ">0 us</text>", ">20</text>", ">100</text>",
        "<title>step 2, receives 1 from 1, 40.0 us</title>",
        "<title>step 2, sends 1 to 0, 10.0 us</title>",
        ">alpha 5.00 us per message, beta 0.10 ns per byte (10.0 GB/s), gamma 0.20 ns per byte "
        "added</text>"}) {
    EXPECT_THAT(svg, HasSubstr(part));
  }
  EXPECT_EQ(count_of(svg, ">rank 0</text>"), 2U) << "a lane and a timeline";
  EXPECT_EQ(count_of(svg, ">rank 1</text>"), 2U);
  EXPECT_EQ(count_of(svg, "height=\"8\" class=\"sum\""), 2U);
  EXPECT_EQ(count_of(svg, "<rect x=\"76\" "), 2U) << "what rank 0 does first";
  // The last event of rank 1 lasts from 60 to 100 us.
  EXPECT_THAT(svg, testing::ContainsRegex("<rect x=\"328\" y=\"[0-9.]+\" width=\"168\""));
}

std::string event_box(int x, int y, int width, const std::string& classes,
                      const std::string& title) {
  return str("<rect x=\"", x, "\" y=\"", y, "\" width=\"", width, "\" height=\"",
             classes == "sum" ? 8 : 9, "\" class=\"", classes, "\"><title>", title,
             " us</title></rect>\n");
}

std::string message_arrow(const std::string& classes, int color, const std::string& path) {
  return str("<path class=\"", classes, "\" marker-end=\"url(#h", color, ")\" d=\"", path,
             "\"/>\n");
}

// A step is 104 pixels wide, a rank's lane 62 high above and 44 below, and a microsecond 4.2 wide.
TEST(TraceSvg, PutsEachThingInItsPlace) {
  using svg::line_between;
  using svg::text_at;
  const bench::TracedRun run = ring_of_two();
  const std::string title = "ring all-reduce of 16 B float32 on 2 ranks over shm";
  std::string expected =
      "<rect width=\"100%\" height=\"100%\" class=\"back\"/>\n" + text_at(16, 28, "t", title) +
      text_at(16, 48, "s",
              "An arrow is a message, its label the piece of the tensor (0 to 1). Solid: added "
              "there. Dashed: replaces it.") +
      line_between(76, 115, 284, 115) + text_at(16, 119, "", "rank 0") +
      line_between(76, 177, 284, 177) + text_at(16, 181, "", "rank 1") +
      line_between(76, 80, 76, 208) + text_at(128, 76, "s m", "step 1") +
      line_between(180, 80, 180, 208) + text_at(232, 76, "s m", "step 2") +
      line_between(284, 80, 284, 208);
  expected += message_arrow("a k1", 1, "M90 115L166 177") + text_at(112.8, 137.6, "n m f1", "1") +
              message_arrow("a k0", 0, "M90 177L166 115") + text_at(112.8, 162.4, "n m f0", "0") +
              message_arrow("a k0 o", 0, "M194 115L270 177") +
              text_at(216.8, 137.6, "n m f0", "0") +
              message_arrow("a k1 o", 1, "M194 177L270 115") + text_at(216.8, 162.4, "n m f1", "1");
  expected +=
      text_at(16, 246, "t", "What really happened") +
      text_at(16, 264, "s", "Above: sends. Middle: adds. Below: receives. The median of 21 runs.") +
      text_at(572, 264, "s e", "sent") + text_at(646, 264, "s e", "time") +
      text_at(752, 264, "s e", "predicted");
  expected += line_between(76, 312, 496, 312) + text_at(16, 294, "", "rank 0") +
              text_at(572, 294, "e", "16 B") + text_at(646, 294, "e", "90.0 us") +
              text_at(752, 294, "e", "40.0 us") +
              event_box(76, 277, 84, "f1", "step 1, sends 1 to 1, 20.0") +
              event_box(76, 296, 168, "f0", "step 1, receives 0 from 1, 40.0") +
              event_box(244, 287, 42, "sum", "step 1, adds 0, 10.0") +
              event_box(286, 277, 42, "f0", "step 2, sends 0 to 1, 10.0") +
              event_box(286, 296, 168, "f1", "step 2, receives 1 from 1, 40.0");
  expected += line_between(76, 356, 496, 356) + text_at(16, 338, "", "rank 1") +
              text_at(572, 338, "e", "16 B") + text_at(646, 338, "e", "90.0 us") +
              text_at(752, 338, "e", "41.0 us") +
              event_box(118, 321, 84, "f0", "step 1, sends 0 to 0, 20.0") +
              event_box(118, 340, 168, "f1", "step 1, receives 1 from 0, 40.0") +
              event_box(286, 331, 42, "sum", "step 1, adds 1, 10.0") +
              event_box(328, 321, 42, "f1", "step 2, sends 1 to 0, 10.0") +
              event_box(328, 340, 168, "f0", "step 2, receives 0 from 0, 40.0");
  for (int i = 0; i <= 5; ++i) {
    const double x = 76 + 84 * i;
    expected += line_between(x, 272, x, 364) +
                text_at(x, 378, "s m", i == 0 ? std::string("0 us") : std::to_string(20 * i));
  }
  expected += text_at(16, 404, "s", bench::model_text(run.model)) + "</svg>\n";
  const std::string drawn = bench::trace_svg(run);
  EXPECT_THAT(drawn, testing::StartsWith(svg::opened(786, 426, title)));
  const std::string head = "</defs>\n";
  EXPECT_EQ(drawn.substr(drawn.find(head) + head.size()), expected);
  for (std::size_t color = 0; color < svg::kColors; ++color) {
    EXPECT_THAT(drawn, HasSubstr(str("<marker id=\"h", color, "\" ")));
    EXPECT_THAT(drawn, HasSubstr(str("<path d=\"M0 0L8 4L0 8z\" class=\"f", color, "\"/>")));
  }
}

TEST(TraceSvg, NumbersManyStepsWithoutAWord) {
  bench::TracedRun run = ring_of_two();
  const auto add_step = [&](int step) {
    run.traces[0].events.push_back({kSend, step, 1, {0, 2}, 8, 5'000'000, 5'000'000});
  };
  add_step(11);
  EXPECT_THAT(bench::trace_svg(run), HasSubstr(">step 12</text>"));
  add_step(12);
  EXPECT_THAT(bench::trace_svg(run), HasSubstr(">13</text>"));
  EXPECT_THAT(bench::trace_svg(run), Not(HasSubstr(">step 1</text>")));
}

TEST(TraceSvg, BalancesItsTags) {
  const std::string svg = bench::trace_svg(ring_of_two());
  for (const char* tag : {"svg", "style", "defs", "marker", "text", "title"}) {
    EXPECT_EQ(
        count_of(svg, std::string("<") + tag + " ") + count_of(svg, std::string("<") + tag + ">"),
        count_of(svg, std::string("</") + tag + ">"))
        << tag;
  }
}

}  // namespace
}  // namespace lockstep
