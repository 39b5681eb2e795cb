#include <lockstep/report/html/traced_steps.h>

#include <algorithm>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <lockstep/core/error.h>
#include <lockstep/core/trace/chrome_trace.h>
#include <lockstep/report/html/critical_path.h>
#include <tests/support/messages.h>
#include <tests/support/temporary_directory.h>

namespace lockstep::testing_support {
namespace {

using std::chrono::microseconds;
using ::testing::ElementsAre;
using ::testing::Pair;

Span span(const std::string& name, const std::string& category, const std::string& track, int begin,
          int end, const std::string& collective = "") {
  const Clock::time_point start{};
  return {.name = name,
          .category = category,
          .begin = start + microseconds(begin),
          .end = start + microseconds(end),
          .track = track,
          .collective = collective};
}

Span value(const std::string& name, int time, const std::string& number) {
  Span span_of_value = span(name, kValueCategory, "training", time, time);
  span_of_value.arguments = {{"value", number}};
  return span_of_value;
}

// Rank 1's backward takes 300 us longer than that of rank 0, which waits for it. Then both transfer
// data for 100 us.
std::vector<RankTrace> two_ranks() {
  return {{.rank = 0,
           .spans = {span("step 1", "step", "training", 20, 1000),
                     span("wait for data", "phase", "training", 0, 20),
                     value("ready batches", 1, "3"), span("forward", "phase", "training", 20, 300),
                     span("backward", "phase", "training", 300, 900),
                     span("exposed communication", "communication", "backward", 500, 900),
                     span("reduction", "communication", "bucket 0", 500, 900, "bucket"),
                     span("optimizer", "phase", "training", 900, 1000),
                     span("barrier", "collective", "calls", 1010, 1100, "barrier")}},
          {.rank = 1,
           .spans = {span("step 1", "step", "training", 0, 990),
                     span("forward", "phase", "training", 0, 300),
                     span("backward", "phase", "training", 300, 900),
                     span("exposed communication", "communication", "backward", 800, 900),
                     span("reduction", "communication", "bucket 0", 800, 900, "bucket"),
                     span("optimizer", "phase", "training", 900, 990),
                     span("barrier", "collective", "calls", 1090, 1100, "barrier")}}};
}

class TracedSteps : public ::testing::Test {
 protected:
  html::TracedRun read(const std::vector<RankTrace>& ranks) {
    write_chrome_trace(folder_ / "trace.json", ranks);
    return html::read_traced_run(folder_ / "trace.json");
  }
  static std::vector<std::string> texts(const std::vector<html::PathPart>& path) {
    std::vector<std::string> texts;
    for (const html::PathPart& part : path) {
      texts.push_back(str("rank ", part.rank, " ", part.what, " ", part.begin, " to ", part.end));
    }
    return texts;
  }

  TemporaryDirectory folder_;
};

TEST_F(TracedSteps, BeginWithTheWaitForTheirBatch) {
  const html::TracedRun run = read(two_ranks());
  EXPECT_EQ(run.ranks, 2);
  ASSERT_EQ(run.steps.size(), 1U);
  EXPECT_EQ(run.steps[0].name, "step 1");
  EXPECT_EQ(run.steps[0].ranks.at(0).begin, 0);
  EXPECT_EQ(run.steps[0].ranks.at(1).end, 990);
  EXPECT_EQ(html::whole_window(run.steps[0]).end, 1000);
  ASSERT_EQ(run.values.size(), 1U);
  EXPECT_EQ(run.values[0].name, "ready batches");
  EXPECT_EQ(run.values[0].value, 3);
}

TEST_F(TracedSteps, BeginWithTheFirstWaitSinceTheStepBefore) {
  const html::TracedRun run = read({{.rank = 0,
                                     .spans = {span("wait for data", "phase", "training", 0, 20),
                                               span("step 1", "step", "training", 20, 100),
                                               span("wait for data", "phase", "loader", 105, 110),
                                               span("wait for data", "phase", "training", 120, 130),
                                               span("wait for data", "phase", "training", 135, 140),
                                               span("step 2", "step", "training", 140, 200),
                                               span("step 3", "step", "training", 210, 300)}}});
  std::vector<double> begins;
  for (const html::TracedStep& step : run.steps) begins.push_back(step.ranks.at(0).begin);
  EXPECT_THAT(begins, ElementsAre(0, 120, 210));
}

// The values of all ranks are in the order of their times.
TEST_F(TracedSteps, HaveTheirValuesInOrder) {
  std::vector<RankTrace> ranks = two_ranks();
  ranks[0].spans.push_back(value("ready batches", 400, "5"));
  ranks[1].spans.push_back(value("ready batches", 200, "4"));
  const html::TracedRun run = read(ranks);
  std::vector<std::string> values;
  for (const html::TracedValue& each : run.values) {
    values.push_back(str("rank ", each.rank, " at ", each.time, ": ", each.value));
  }
  EXPECT_THAT(values, ElementsAre("rank 0 at 1: 3", "rank 1 at 200: 4", "rank 0 at 400: 5"));
}

// A flow marks where the transfer of a collective begins. Other spans may begin there, too.
TEST_F(TracedSteps, TieCollectivesToTheRankThatCameLast) {
  folder_.write("trace.json", R"({"traceEvents": [
    {"ph": "M", "name": "thread_name", "pid": 0, "tid": 3, "args": {"name": "calls"}},
    {"ph": "M", "name": "process_name", "pid": 0, "tid": 3, "args": {"name": "rank 0"}},
    {"ph": "X", "name": "barrier", "cat": "collective", "pid": 0, "tid": 3, "ts": 5, "dur": 2},
    {"ph": "X", "name": "bucket", "cat": "communication", "pid": 0, "tid": 3, "ts": 5, "dur": 1},
    {"ph": "X", "name": "work", "cat": "phase", "pid": 0, "tid": 3, "ts": 5, "dur": 4},
    {"ph": "X", "name": "other thread", "cat": "collective", "pid": 0, "tid": 4, "ts": 5, "dur": 1},
    {"ph": "X", "name": "later", "cat": "collective", "pid": 0, "tid": 3, "ts": 6, "dur": 1},
    {"ph": "f", "name": "barrier", "cat": "collective", "pid": 0, "tid": 3, "ts": 5, "id": 7},
    {"ph": "s", "name": "barrier", "cat": "collective", "pid": 1, "tid": 3, "ts": 5.5, "id": 7},
    {"ph": "X", "name": "barrier", "cat": "collective", "pid": 1, "tid": 3, "ts": 5.5, "dur": 1},
    {"ph": "f", "name": "lost", "cat": "collective", "pid": 1, "tid": 3, "ts": 8, "id": 8},
    {"ph": "X", "name": "lost", "cat": "collective", "pid": 1, "tid": 3, "ts": 8, "dur": 1}],
    "otherData": {"clocks": [{"rank": 0, "uncertainty_us": 0},
                             {"rank": 1, "uncertainty_us": 2.5}]}})");
  const html::TracedRun run = html::read_traced_run(folder_ / "trace.json");
  std::vector<std::string> spans;
  for (const html::TracedSpan& each : run.spans) {
    spans.push_back(str("rank ", each.rank, " ", each.name, " on '", each.track, "' until ",
                        each.end, ", last ", each.last_rank.value_or(-1)));
  }
  EXPECT_THAT(spans, ElementsAre("rank 0 barrier on 'calls' until 7, last 1",
                                 "rank 0 bucket on 'calls' until 6, last 1",
                                 "rank 0 work on 'calls' until 9, last -1",
                                 "rank 0 other thread on '' until 6, last -1",
                                 "rank 1 barrier on '' until 6.5, last 1",
                                 "rank 0 later on 'calls' until 7, last -1",
                                 "rank 1 lost on '' until 9, last -1"));
  EXPECT_EQ(run.ranks, 2);
  EXPECT_THAT(run.uncertainty, ElementsAre(Pair(0, 0), Pair(1, 2.5)));
}

TEST_F(TracedSteps, FollowTheRankThatTheOthersWaitedFor) {
  const html::TracedRun run = read(two_ranks());
  const std::vector<html::PathPart> path = html::critical_path(run, run.steps[0]);
  EXPECT_THAT(texts(path),
              ElementsAre("rank 1 forward 0 to 300", "rank 1 backward 300 to 800",
                          "rank 0 transfer 800 to 900", "rank 0 optimizer 900 to 1000"));
  EXPECT_DOUBLE_EQ(html::accounted_share(path, run.steps[0]), 1);
  EXPECT_THAT(html::path_shares(path), ElementsAre(Pair("forward", 300), Pair("backward", 500),
                                                   Pair("transfer", 100), Pair("optimizer", 100)));
}

// The rank that ends last is also the one that the others waited for.
TEST_F(TracedSteps, FollowARankThatWaitedForNoOther) {
  std::vector<RankTrace> ranks = two_ranks();
  ranks[1].spans[0].end += microseconds(20);
  ranks[1].spans[5].end += microseconds(20);
  const html::TracedRun run = read(ranks);
  EXPECT_THAT(texts(html::critical_path(run, run.steps[0])),
              ElementsAre("rank 1 forward 0 to 300", "rank 1 backward 300 to 800",
                          "rank 1 transfer 800 to 900", "rank 1 optimizer 900 to 1010"));
}

// Forward and backward compute while their collectives transfer data. Rank 1 joins these late. What
// the threads of the loader do is no part of the path.
TEST_F(TracedSteps, StayInComputingThatOverlapsWithCollectives) {
  const auto rank = [](int number, int late) {
    return RankTrace{
        .rank = number,
        .spans = {span("step 1", "step", "training", 0, 1000 - late),
                  span("read", "phase", "loader", 0, 1000),
                  span("forward", "phase", "training", 0, 500),
                  span("reduction", "communication", "bucket 0", 100 + late, 200, "bucket"),
                  span("backward", "phase", "training", 500, 1000 - late),
                  span("reduction", "communication", "bucket 0", 600 + late, 800, "bucket")}};
  };
  const html::TracedRun run = read({rank(0, 0), rank(1, 50)});
  EXPECT_THAT(texts(html::critical_path(run, run.steps[0])),
              ElementsAre("rank 0 forward 0 to 500", "rank 0 backward 500 to 1000"));
}

// Nothing is recorded for rank 1 between its forward and its backward: 50 of 1000 us have no name.
TEST_F(TracedSteps, AccountForWhatHasAName) {
  std::vector<RankTrace> ranks = two_ranks();
  ranks[1].spans[1].end -= microseconds(50);
  const html::TracedRun run = read(ranks);
  const std::vector<html::PathPart> path = html::critical_path(run, run.steps[0]);
  EXPECT_NEAR(html::accounted_share(path, run.steps[0]), 0.95, 0.002);
  double between = 0;
  for (const auto& [what, time] : html::path_shares(path)) {
    if (what == html::kBetweenPhases) between = time;
  }
  EXPECT_NEAR(between, 50, 2);
}

// Rank 1 comes late to the broadcast of the buffers, where rank 0 waits for it.
TEST_F(TracedSteps, FollowACollectiveOfAPhase) {
  const html::TracedRun run =
      read({{.rank = 0,
             .spans = {span("step 1", "step", "training", 0, 1000),
                       span("broadcast buffers", "phase", "training", 0, 500),
                       span("broadcast", "collective", "calls", 10, 490, "call"),
                       span("forward", "phase", "training", 500, 1000)}},
            {.rank = 1,
             .spans = {span("step 1", "step", "training", 0, 900),
                       span("zero gradients", "phase", "training", 0, 400),
                       span("broadcast buffers", "phase", "training", 400, 500),
                       span("broadcast", "collective", "calls", 410, 490, "call"),
                       span("forward", "phase", "training", 500, 900)}}});
  EXPECT_THAT(texts(html::critical_path(run, run.steps[0])),
              ElementsAre("rank 1 zero gradients 0 to 400", "rank 1 broadcast buffers 400 to 410",
                          "rank 0 transfer 410 to 490", "rank 0 broadcast buffers 490 to 500",
                          "rank 0 forward 500 to 1000"));
}

// Worker 1 waits for the activations of worker 0's second forward, and then sends gradients back.
TEST_F(TracedSteps, FollowTheMessagesOfAPipeline) {
  const html::TracedRun run =
      read({{.rank = 0,
             .spans = {span("step 1", "step", "training", 0, 1000),
                       span("works", "team", "worker 0", 10, 950),
                       span("0F0", "forward", "worker 0", 10, 200),
                       span("0SEND_F0", "message", "worker 0", 200, 210),
                       span("0RECV_B0", "message", "worker 0", 210, 650),
                       span("0B0", "backward", "worker 0", 650, 950),
                       span("1RECV_F0", "message", "worker 1", 10, 215),
                       span("1F0", "forward", "worker 1", 215, 400),
                       span("1B0", "backward", "worker 1", 400, 640),
                       span("1SEND_B0", "message", "worker 1", 640, 645),
                       span("optimizer", "phase", "training", 960, 1000)}}});
  const std::vector<html::PathPart> path = html::critical_path(run, run.steps[0]);
  EXPECT_THAT(texts(path),
              ElementsAre("rank 0 between phases 0 to 10", "rank 0 forward 10 to 200",
                          "rank 0 message 200 to 215", "rank 0 forward 215 to 400",
                          "rank 0 backward 400 to 640", "rank 0 message 640 to 650",
                          "rank 0 backward 650 to 950", "rank 0 between phases 950 to 960",
                          "rank 0 optimizer 960 to 1000"));
  EXPECT_DOUBLE_EQ(html::accounted_share(path, run.steps[0]), 0.98);
}

// Ranks 0 and 1 are a pipeline, and ranks 2 and 3 are another one with messages of the same names.
TEST_F(TracedSteps, FollowTheMessagesOfTheNearestRank) {
  const auto path_of = [&](int end_of_rank_1, int end_of_rank_3) {
    const auto first = [](int rank, int sent) {
      return RankTrace{.rank = rank,
                       .spans = {span("step 1", "step", "training", 0, 900),
                                 span("0F0", "forward", "training", 0, sent - 10),
                                 span("0SEND_F0", "message", "training", sent - 10, sent)}};
    };
    const auto second = [](int rank, int received, int end) {
      return RankTrace{.rank = rank,
                       .spans = {span("step 1", "step", "training", 0, end),
                                 span("1RECV_F0", "message", "training", 0, received),
                                 span("1F0", "forward", "training", received, end)}};
    };
    const html::TracedRun run = read({first(0, 210), second(1, 320, end_of_rank_1), first(2, 310),
                                      second(3, 330, end_of_rank_3)});
    return texts(html::critical_path(run, run.steps[0]));
  };
  EXPECT_THAT(path_of(900, 1000),
              ElementsAre("rank 2 forward 0 to 300", "rank 2 message 300 to 310",
                          "rank 3 message 310 to 330", "rank 3 forward 330 to 1000"));
  EXPECT_THAT(path_of(1000, 900),
              ElementsAre("rank 0 forward 0 to 200", "rank 0 message 200 to 210",
                          "rank 1 message 210 to 320", "rank 1 forward 320 to 1000"))
      << "of two ranks that are equally near, the first";
}

// The name of an action begins with the number of its stage. Other spans have the categories of
// actions, too: "backward" of DDP, and the messages that a program sends itself.
TEST(TracedStepsByHand, HaveNoActionsButThoseOfAWorker) {
  const auto path_of = [](const char* name, const char* category) {
    html::TracedRun run{.ranks = 1};
    run.spans = {
        {.name = "forward", .category = "phase", .track = "training", .begin = 0, .end = 300},
        {.name = name, .category = category, .track = "worker 0", .begin = 300, .end = 900},
        {.name = "optimizer", .category = "phase", .track = "training", .begin = 900, .end = 1000}};
    run.steps = {{.name = "step 1", .ranks = {{0, {0, 1000}}}}};
    std::vector<std::string> whats;
    for (const html::PathPart& part : html::critical_path(run, run.steps[0])) {
      whats.push_back(str(part.what, " ", part.begin, " to ", part.end));
    }
    return whats;
  };
  for (const char* name : {"0B0", "9B0", "12I3"}) {
    EXPECT_THAT(path_of(name, "backward"),
                ElementsAre("forward 0 to 300", "backward 300 to 900", "optimizer 900 to 1000"))
        << name;
  }
  EXPECT_THAT(path_of("0SEND_F0", "message"),
              ElementsAre("forward 0 to 300", "message 300 to 900", "optimizer 900 to 1000"));
  const std::pair<const char*, const char*> others[] = {
      {"backward", "backward"}, {"send", "message"}, {"/", "forward"},    {":", "forward"},
      {"", "forward"},          {"0B0", "phase"},    {"0B0", "reduction"}};
  for (const auto& [name, category] : others) {
    EXPECT_THAT(
        path_of(name, category),
        ElementsAre("forward 0 to 300", "between phases 300 to 900", "optimizer 900 to 1000"))
        << name << ", " << category;
  }
}

// The gradients of a stage are reduced after its actions, and rank 1's stage is late.
TEST_F(TracedSteps, FollowTheReductionsOfAHybrid) {
  const auto stage = [](int backward, int begin) {
    return std::vector<Span>{span("step 1", "step", "training", 0, 900),
                             span("0F0", "forward", "training", 0, 300),
                             span("0B0", "backward", "training", 300, backward),
                             span("exposed communication", "communication", "backward", begin, 800),
                             span("reduction", "communication", "bucket 0", begin, 800, "bucket"),
                             span("reduce gradients", "phase", "training", 805, 810),
                             span("optimizer", "phase", "training", 810, 900)};
  };
  const html::TracedRun run =
      read({{.rank = 0, .spans = stage(500, 510)}, {.rank = 1, .spans = stage(700, 710)}});
  EXPECT_THAT(texts(html::critical_path(run, run.steps[0])),
              ElementsAre("rank 1 forward 0 to 300", "rank 1 backward 300 to 700",
                          "rank 1 between phases 700 to 710", "rank 0 transfer 710 to 800",
                          "rank 0 between phases 800 to 805", "rank 0 reduce gradients 805 to 810",
                          "rank 0 optimizer 810 to 900"));
}

// Spans that follow each other within a microsecond are adjacent: clocks are no more precise.
TEST_F(TracedSteps, FollowSpansThatAreNearlyAdjacent) {
  const auto phase = [](int rank, const char* name, double begin, double end) {
    return html::TracedSpan{.rank = rank,
                            .name = name,
                            .category = "phase",
                            .track = "training",
                            .begin = begin,
                            .end = end};
  };
  const auto action = [](const char* name, const char* category, int worker, double begin,
                         double end) {
    return html::TracedSpan{.name = name,
                            .category = category,
                            .track = str("worker ", worker),
                            .begin = begin,
                            .end = end};
  };
  const auto exposed = [](int rank, double begin, double end) {
    return html::TracedSpan{.rank = rank,
                            .name = "exposed communication",
                            .category = "communication",
                            .track = "backward",
                            .begin = begin,
                            .end = end};
  };
  const auto transfer = [](int rank, double begin, double end) {
    return html::TracedSpan{.rank = rank,
                            .name = "reduction",
                            .category = "communication",
                            .track = "bucket 0",
                            .begin = begin,
                            .end = end,
                            .last_rank = 1};
  };
  const auto path_of = [](int ranks, std::vector<html::TracedSpan> spans) {
    html::TracedRun run{.ranks = ranks};
    run.spans = std::move(spans);
    std::ranges::stable_sort(run.spans, {}, &html::TracedSpan::begin);
    run.steps.push_back({.name = "step 1"});
    run.steps[0].ranks[0] = {0, 1000};
    if (ranks == 2) run.steps[0].ranks[1] = {0, 990};
    return texts(html::critical_path(run, run.steps[0]));
  };
  EXPECT_THAT(path_of(1, {phase(0, "forward", 0, 299.5), phase(0, "backward", 300, 899.25),
                          phase(0, "optimizer", 900, 1000)}),
              ElementsAre("rank 0 forward 0 to 300", "rank 0 backward 300 to 900",
                          "rank 0 optimizer 900 to 1000"));
  EXPECT_THAT(path_of(1, {phase(0, "forward", 0, 300.5), phase(0, "backward", 300, 900.75),
                          phase(0, "optimizer", 900, 1000)}),
              ElementsAre("rank 0 forward 0 to 300", "rank 0 backward 300 to 900",
                          "rank 0 optimizer 900 to 1000"))
      << "spans that overlap";
  EXPECT_THAT(path_of(1, {phase(0, "forward", 0, 300), phase(0, "backward", 300, 898.5),
                          phase(0, "optimizer", 900, 1000)}),
              ElementsAre("rank 0 forward 0 to 300", "rank 0 backward 300 to 898.5",
                          "rank 0 between phases 898.5 to 900", "rank 0 optimizer 900 to 1000"))
      << "a gap of more than a microsecond";
  // The wait ends just before the optimizer begins, and the transfer just before or after the wait.
  for (const double end : {898.75, 899.25, 899.75}) {
    EXPECT_THAT(
        path_of(2, {phase(0, "backward", 0, 900), exposed(0, 500, 899.25), transfer(0, 800, end),
                    phase(0, "optimizer", 900, 1000), phase(1, "backward", 0, 900),
                    exposed(1, 800, 900), transfer(1, 800, 900), phase(1, "optimizer", 900, 990)}),
        ElementsAre("rank 1 backward 0 to 800", "rank 0 transfer 800 to 900",
                    "rank 0 optimizer 900 to 1000"))
        << end;
  }
  EXPECT_THAT(
      path_of(1, {action("0F0", "forward", 0, 0, 299.5), action("0B0", "backward", 0, 300, 899.25),
                  phase(0, "optimizer", 900, 1000)}),
      ElementsAre("rank 0 forward 0 to 300", "rank 0 backward 300 to 899.25",
                  "rank 0 between phases 899.25 to 900", "rank 0 optimizer 900 to 1000"));
  // The sender's clock says that the message ended just after it was received.
  EXPECT_THAT(path_of(1, {action("0F0", "forward", 0, 0, 199.5),
                          action("0SEND_F0", "message", 0, 200, 300.75),
                          action("1RECV_F0", "message", 1, 0, 300),
                          action("1F0", "forward", 1, 300, 900), phase(0, "optimizer", 900, 1000)}),
              ElementsAre("rank 0 forward 0 to 200", "rank 0 message 200 to 300",
                          "rank 0 forward 300 to 900", "rank 0 optimizer 900 to 1000"));
}

// The barrier after the step is not counted as a wait of the step.
TEST_F(TracedSteps, SayWhoWaitedForWhom) {
  EXPECT_THAT(html::waits_of(read(two_ranks())),
              ElementsAre(Pair(Pair(0, 1), ::testing::DoubleNear(300, 0.01))));
}

TEST_F(TracedSteps, SayHowLongTheirPhasesTake) {
  EXPECT_THAT(html::mean_phases(read(two_ranks()), 0),
              ElementsAre(Pair("wait for data", 20), Pair("forward", 280), Pair("backward", 200),
                          Pair("optimizer", 100), Pair("exposed communication", 400)));
}

TEST(TracedStepsByHand, ReachFromTheFirstBeginToTheLastEnd) {
  using Windows = std::map<int, html::StepWindow>;
  for (const Windows& ranks :
       {Windows{{0, {10, 90}}, {1, {20, 100}}, {2, {30, 80}}},
        Windows{{0, {20, 100}}, {1, {30, 80}}, {2, {10, 90}}},
        Windows{{0, {30, 80}}, {1, {10, 90}}, {2, {20, 100}}}, Windows{{3, {10, 100}}}}) {
    const html::StepWindow whole = html::whole_window({.name = "step 1", .ranks = ranks});
    EXPECT_EQ(whole.begin, 10);
    EXPECT_EQ(whole.end, 100);
  }
}

// The share is that of the time since the path's first rank began, not since any rank did.
TEST(TracedStepsByHand, AccountForThePartsOfAPath) {
  const std::vector<html::PathPart> path = {{.what = "forward", .begin = 0, .end = 10},
                                            {.rank = 1, .what = "backward", .begin = 10, .end = 30},
                                            {.what = html::kBetweenPhases, .begin = 30, .end = 40},
                                            {.what = "forward", .begin = 40, .end = 45}};
  EXPECT_THAT(html::path_shares(path),
              ElementsAre(Pair("forward", 15), Pair("backward", 20), Pair("between phases", 10)));
  const html::TracedStep step{.name = "step 1", .ranks = {{0, {0, 40}}, {1, {-5, 50}}}};
  EXPECT_DOUBLE_EQ(html::accounted_share(path, step), 35.0 / 50);
  EXPECT_EQ(html::accounted_share({}, step), 0);
  const html::TracedStep nothing{.name = "step 2", .ranks = {{0, {5, 5}}}};
  EXPECT_EQ(html::accounted_share({{.what = "forward", .begin = 5, .end = 5}}, nothing), 0);
}

// Work that began in the step before counts from the beginning of the step.
TEST(TracedStepsByHand, HavePathsWithinThem) {
  const html::TracedSpan early[] = {
      {.name = "forward", .category = "phase", .track = "training", .begin = -50, .end = 900},
      {.name = "0F0", .category = "forward", .track = "worker 0", .begin = -50, .end = 900}};
  for (const html::TracedSpan& span : early) {
    html::TracedRun run{.ranks = 1};
    run.spans = {
        span,
        {.name = "optimizer", .category = "phase", .track = "training", .begin = 900, .end = 1000}};
    run.steps = {{.name = "step 1", .ranks = {{0, {0, 1000}}}}};
    const std::vector<html::PathPart> path = html::critical_path(run, run.steps[0]);
    ASSERT_EQ(path.size(), 2U) << span.name;
    EXPECT_EQ(path[0].what, "forward");
    EXPECT_EQ(path[0].begin, 0) << span.name;
    EXPECT_DOUBLE_EQ(html::accounted_share(path, run.steps[0]), 1) << span.name;
  }
}

// What hides communication is the backward of the same step, and phases end with their step.
TEST(TracedStepsByHand, TakeTheMeanOfTheirPhases) {
  const auto phase = [](const char* name, double begin, double end) {
    return html::TracedSpan{
        .name = name, .category = "phase", .track = "training", .begin = begin, .end = end};
  };
  html::TracedRun run{.ranks = 2};
  run.spans = {phase("forward", 0, 20),
               phase("exposed communication", 10, 90),
               phase("backward", 20, 60),
               phase("works", 30, 40),
               phase("backward", 100, 200),
               phase("forward", 110, 120),
               phase("exposed communication", 150, 180),
               phase("optimizer", 190, 320)};
  for (const std::size_t exposed : {1U, 6U}) run.spans[exposed].category = "communication";
  run.spans[3].track = "worker 0";
  run.spans[5].rank = 1;
  run.steps = {{.name = "step 1", .ranks = {{0, {0, 100}}, {1, {0, 100}}}},
               {.name = "step 2", .ranks = {{0, {100, 300}}, {1, {100, 300}}}}};
  EXPECT_THAT(html::mean_phases(run, 0),
              ElementsAre(Pair("forward", 10), Pair("backward", (40 + 100 - 40 - 30) / 2),
                          Pair("optimizer", 55), Pair("exposed communication", 55)));
  EXPECT_THAT(html::mean_phases(run, 1), ElementsAre(Pair("forward", 5)));
}

// A wait belongs to the step in which it begins; the end of a step is outside of it.
TEST(TracedStepsByHand, CountTheWaitsThatBeginInThem) {
  html::TracedRun run{.ranks = 2};
  run.steps = {{.name = "step 1", .ranks = {{0, {0, 100}}, {1, {0, 90}}}},
               {.name = "step 2", .ranks = {{0, {200, 300}}, {1, {200, 290}}}}};
  const auto wait = [&](int rank, double begin, double time, const char* category = "arrival") {
    run.spans.push_back({.rank = rank,
                         .name = str("reduction: waits for rank ", 1 - rank),
                         .category = category,
                         .begin = begin,
                         .end = begin + time});
  };
  wait(0, 0, 1);
  wait(1, 89, 2000);
  wait(1, 90, 4000);
  wait(0, 99, 20);
  wait(0, 100, 400);
  wait(0, 150, 8000);
  wait(0, 200, 300);
  wait(0, 250, 50000, "communication");
  wait(0, 301, 600000);
  EXPECT_THAT(html::waits_of(run), ElementsAre(Pair(Pair(0, 1), 321), Pair(Pair(1, 0), 2000)));
}

TEST_F(TracedSteps, AreThoseOfAllRanks) {
  std::vector<RankTrace> ranks = two_ranks();
  ranks[0].spans.push_back(span("step 2", "step", "training", 1200, 1300));
  EXPECT_EQ(read(ranks).steps.size(), 1U);
}

// The search for the critical path must terminate, even with impossible times from a damaged file.
TEST_F(TracedSteps, EndForTimesThatCannotBe) {
  std::vector<RankTrace> ranks = two_ranks();
  for (Span& each : ranks[0].spans) each.begin = each.end;
  for (Span& each : ranks[1].spans) std::swap(each.begin, each.end);
  const html::TracedRun run = read(ranks);
  for (const html::TracedStep& step : run.steps) {
    EXPECT_LE(html::accounted_share(html::critical_path(run, step), step), 1.001);
  }
}

TEST_F(TracedSteps, AreNotReadFromAnotherFile) {
  for (const char* text :
       {"", "[]", "{}", R"({"traceEvents": [{"ph": "X"}]})",
        R"({"traceEvents": [{"ph": "M", "pid": -1, "tid": 0}], "otherData": {"clocks": []}})"}) {
    folder_.write("trace.json", text);
    EXPECT_THROW(html::read_traced_run(folder_ / "trace.json"), DataError) << text;
  }
}

TEST_F(TracedSteps, SayWhyAFileIsNotReadAsATrace) {
  const auto refusal = [&](const char* name) {
    return message_of<DataError>([&] { html::read_traced_run(folder_ / name); });
  };
  EXPECT_EQ(refusal("none.json"), "cannot read " + (folder_ / "none.json").string());
  const std::string file = (folder_ / "trace.json").string();
  folder_.write("trace.json", "");
  EXPECT_EQ(refusal("trace.json"), file + " is not JSON: line 1, column 1");
  const std::pair<const char*, const char*> cases[] = {
      {"{}", "'traceEvents' is missing"},
      {R"({"traceEvents": []})", "'otherData' is missing"},
      {R"({"traceEvents": [{"ph": "X"}]})", "'pid' is missing"},
      {R"({"traceEvents": [{"ph": "X", "pid": 0, "tid": 0}], "otherData": {"clocks": []}})",
       "'ts' is missing"},
      {R"({"traceEvents": [{"ph": "M", "pid": -1, "tid": 0}], "otherData": {"clocks": []}})",
       "rank -1 in a trace"}};
  for (const auto& [text, problem] : cases) {
    folder_.write("trace.json", text);
    EXPECT_EQ(refusal("trace.json"), file + " is not a trace that Lockstep writes: " + problem);
  }
}

TEST_F(TracedSteps, BoundTheNumberOfRanks) {
  const auto read_rank = [&](int rank) {
    folder_.write("trace.json",
                  str(R"({"traceEvents": [{"ph": "M", "name": "process_name", "tid": 0, "pid": )",
                      rank, R"(}], "otherData": {"clocks": []}})"));
    return html::read_traced_run(folder_ / "trace.json").ranks;
  };
  EXPECT_EQ(read_rank((1 << 20) - 1), 1 << 20);
  EXPECT_EQ(message_of<DataError>([&] { read_rank(1 << 20); }),
            (folder_ / "trace.json").string() +
                " is not a trace that Lockstep writes: rank 1048576 in a trace");
}

}  // namespace
}  // namespace lockstep::testing_support
