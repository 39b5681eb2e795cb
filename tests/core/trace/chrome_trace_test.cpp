#include <lockstep/core/trace/chrome_trace.h>

#include <algorithm>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <lockstep/core/error.h>
#include <tests/support/messages.h>
#include <tests/support/temporary_directory.h>

namespace lockstep {
namespace {

using nlohmann::json;
using std::chrono::microseconds;

class ChromeTrace : public ::testing::Test {
 protected:
  json written(const std::vector<RankTrace>& ranks) {
    const auto path = folder_.path() / "trace.json";
    write_chrome_trace(path, ranks);
    return json::parse(testing_support::read_text(path));
  }
  static std::vector<json> events(const json& trace, const std::string& phase) {
    std::vector<json> found;
    for (const auto& event : trace.at("traceEvents")) {
      if (event.at("ph") == phase) found.push_back(event);
    }
    return found;
  }

  const Clock::time_point start_{};

 private:
  testing_support::TemporaryDirectory folder_;
};

TEST_F(ChromeTrace, HoldsTheSpansOfAllRanks) {
  const std::vector<Span> spans = {
      {"backward",
       "compute",
       start_ + microseconds(5),
       start_ + microseconds(9),
       "main",
       {{"bytes", "12"}}},
      {"say \"hi\"\n", "communication", start_ + microseconds(6), start_ + microseconds(7),
       "bucket 0"},
      {"forward", "compute", start_ + microseconds(1), start_ + microseconds(2), "main"}};
  const json trace = written({{.rank = 0, .spans = spans}, {.rank = 1, .spans = {spans[0]}}});
  const std::vector<json> complete = events(trace, "X");
  std::map<std::pair<int, int>, std::string> tracks;
  for (const json& event : events(trace, "M")) {
    if (event.at("name") == "thread_name") {
      tracks[{event.at("pid"), event.at("tid")}] = event.at("args").at("name");
    }
  }
  ASSERT_EQ(complete.size(), 4U);
  EXPECT_EQ(complete[0].at("name"), "backward");
  EXPECT_EQ(complete[0].at("ts"), 5.0);
  EXPECT_EQ(complete[0].at("dur"), 4.0);
  EXPECT_EQ(complete[0].at("cat"), "compute");
  EXPECT_EQ(complete[0].at("args").at("bytes"), "12");
  EXPECT_EQ(complete[1].at("name"), "say \"hi\"\n");
  EXPECT_EQ(complete[2].at("tid"), complete[0].at("tid"));  // spans with one name share a row
  EXPECT_EQ(complete[3].at("pid"), 1);
  const std::map<std::pair<int, int>, std::string> expected = {
      {{0, 0}, "main"}, {{0, 1}, "bucket 0"}, {{1, 0}, "main"}};
  EXPECT_EQ(tracks, expected);
  EXPECT_EQ(trace.at("displayTimeUnit"), "ms");
}

Span reduction(Clock::time_point begin, Clock::time_point end) {
  return {.name = "reduction",
          .category = "communication",
          .begin = begin,
          .end = end,
          .track = "bucket 0",
          .collective = "step 1 bucket 0"};
}

// Rank 1 arrives 4 us after rank 0, and the transfer takes 3 us. Rank 1's clock is 100 us behind.
TEST_F(ChromeTrace, TellsWaitingForALateRankFromTheTransfer) {
  const ClockOffset behind{.nanoseconds = 100'000, .uncertainty_nanoseconds = 2'000};
  const Clock::time_point at_1 = start_ + microseconds(200);
  const json trace =
      written({{.rank = 0,
                .host = "a",
                .spans = {reduction(start_ + microseconds(300), start_ + microseconds(307))}},
               {.rank = 1,
                .host = "b",
                .clock = behind,
                .spans = {reduction(at_1 + microseconds(4), at_1 + microseconds(7))}}});
  const std::vector<json> complete = events(trace, "X");
  ASSERT_EQ(complete.size(), 3U);
  EXPECT_EQ(complete[0].at("name"), "reduction: waits for rank 1");
  EXPECT_EQ(complete[0].at("cat"), "arrival");
  EXPECT_EQ(complete[0].at("ts"), 300.0);
  EXPECT_EQ(complete[0].at("dur"), 4.0);
  EXPECT_EQ(complete[1].at("name"), "reduction");
  EXPECT_EQ(complete[1].at("ts"), 304.0);
  EXPECT_EQ(complete[1].at("dur"), 3.0);
  EXPECT_EQ(complete[2].at("pid"), 1);
  EXPECT_EQ(complete[2].at("ts"), 304.0);  // the last rank waits for nobody
  EXPECT_EQ(complete[2].at("dur"), 3.0);

  // The flow leads from the last rank to the other one.
  const std::vector<json> from = events(trace, "s");
  const std::vector<json> to = events(trace, "f");
  ASSERT_EQ(from.size(), 1U);
  ASSERT_EQ(to.size(), 1U);
  EXPECT_EQ(from[0].at("pid"), 1);
  EXPECT_EQ(to[0].at("pid"), 0);
  EXPECT_EQ(from[0].at("id"), to[0].at("id"));
  EXPECT_EQ(to[0].at("bp"), "e");
  EXPECT_FALSE(from[0].contains("bp"));
  for (const json& flow : {from[0], to[0]}) {
    EXPECT_EQ(flow.at("name"), "reduction");
    EXPECT_EQ(flow.at("cat"), "collective");
    EXPECT_EQ(flow.at("ts"), 304.0);
    EXPECT_EQ(flow.at("tid"), complete[1].at("tid"));
  }

  const json clocks = trace.at("otherData").at("clocks");
  EXPECT_EQ(clocks[0].at("rank"), 0);
  EXPECT_EQ(clocks[0].at("host"), "a");
  EXPECT_EQ(clocks[0].at("offset_us"), 0.0);
  EXPECT_EQ(clocks[0].at("uncertainty_us"), 0.0);
  EXPECT_EQ(clocks[1].at("rank"), 1);
  EXPECT_EQ(clocks[1].at("offset_us"), 100.0);
  EXPECT_EQ(clocks[1].at("uncertainty_us"), 2.0);
  EXPECT_EQ(clocks[1].at("host"), "b");
}

// All wait for the last of several ranks, in whatever order they arrive.
TEST_F(ChromeTrace, TellsTheLastOfThreeRanks) {
  std::vector<int> begins = {300, 304, 308};
  do {
    std::vector<RankTrace> ranks;
    for (int rank = 0; rank < 3; ++rank) {
      ranks.push_back(
          {.rank = rank,
           .spans = {reduction(start_ + microseconds(begins[rank]), start_ + microseconds(310))}});
    }
    const json trace = written(ranks);
    const auto last = std::ranges::max_element(begins) - begins.begin();
    for (const json& event : events(trace, "X")) {
      if (event.at("cat") != "arrival") continue;
      EXPECT_EQ(event.at("name"), str("reduction: waits for rank ", last));
      EXPECT_EQ(event.at("dur"), 308 - begins[event.at("pid").get<int>()]);
    }
    EXPECT_EQ(events(trace, "X").size(), 3U + 2U);
    EXPECT_EQ(events(trace, "s").size(), 1U);
    EXPECT_EQ(events(trace, "f").size(), 2U);
  } while (std::ranges::next_permutation(begins).found);
}

Span message(const char* name, Clock::time_point begin, Clock::time_point end) {
  return {.name = name,
          .category = kMessageCategory,
          .begin = begin,
          .end = end,
          .track = "calls",
          .collective = "world 1 to 0 message 0"};
}

// Rank 0 waits for 4 us until rank 1 sends. The other message was sent before rank 0 asked for it.
TEST_F(ChromeTrace, TellsWaitingForASenderFromTheMessage) {
  std::vector<Span> received = {
      message("recv", start_ + microseconds(300), start_ + microseconds(307)),
      message("recv", start_ + microseconds(400), start_ + microseconds(402))};
  std::vector<Span> sent = {
      message("send", start_ + microseconds(304), start_ + microseconds(305)),
      message("send", start_ + microseconds(350), start_ + microseconds(351))};
  received[1].collective = sent[1].collective = "world 1 to 0 message 1";
  const json trace = written({{.rank = 0, .spans = received}, {.rank = 1, .spans = sent}});
  const std::vector<json> complete = events(trace, "X");
  ASSERT_EQ(complete.size(), 5U);
  EXPECT_EQ(complete[0].at("name"), "recv: waits for rank 1");
  EXPECT_EQ(complete[0].at("cat"), "arrival");
  EXPECT_EQ(complete[0].at("dur"), 4.0);
  EXPECT_EQ(complete[1].at("name"), "recv");
  EXPECT_EQ(complete[1].at("dur"), 3.0);
  EXPECT_EQ(complete[2].at("dur"), 2.0);
  EXPECT_EQ(complete[4].at("name"), "send") << "a sender waits for nobody";
  EXPECT_EQ(complete[4].at("dur"), 1.0);
  const std::vector<json> from = events(trace, "s");
  const std::vector<json> to = events(trace, "f");
  ASSERT_EQ(from.size(), 2U);
  ASSERT_EQ(to.size(), 2U);
  for (std::size_t i = 0; i < 2; ++i) {
    EXPECT_EQ(from[i].at("pid"), 1);
    EXPECT_EQ(to[i].at("pid"), 0);
    EXPECT_EQ(from[i].at("id"), to[i].at("id"));
    EXPECT_GE(to[i].at("ts"), from[i].at("ts"));
  }
  EXPECT_NE(from[0].at("id"), from[1].at("id")) << "two messages have two flows";
}

// The sender is listed first. One message waits for it, the other was sent before it was wanted.
TEST_F(ChromeTrace, TakesTheSenderOfAMessageForTheLastWhicheverRankComesFirst) {
  std::vector<Span> sent = {
      message("send", start_ + microseconds(304), start_ + microseconds(305)),
      message("send", start_ + microseconds(350), start_ + microseconds(351))};
  std::vector<Span> received = {
      message("recv", start_ + microseconds(300), start_ + microseconds(307)),
      message("recv", start_ + microseconds(400), start_ + microseconds(402))};
  sent[1].collective = received[1].collective = "world 1 to 0 message 1";
  const json trace = written({{.rank = 0, .spans = sent}, {.rank = 1, .spans = received}});
  const std::vector<json> complete = events(trace, "X");
  ASSERT_EQ(complete.size(), 5U);
  EXPECT_EQ(complete[2].at("name"), "recv: waits for rank 0");
  EXPECT_EQ(complete[2].at("dur"), 4.0);
  EXPECT_EQ(complete[4].at("name"), "recv");
  EXPECT_EQ(complete[4].at("dur"), 2.0);
  for (const json& flow : events(trace, "s")) EXPECT_EQ(flow.at("pid"), 0);
  for (const json& flow : events(trace, "f")) EXPECT_EQ(flow.at("pid"), 1);
}

TEST_F(ChromeTrace, NamesRanksAndTheHostsThatAreKnown) {
  const json trace = written({{.rank = 0, .spans = {}}, {.rank = 1, .host = "b", .spans = {}}});
  const std::vector<json> names = events(trace, "M");
  ASSERT_EQ(names.size(), 2U);
  for (const json& name : names) EXPECT_EQ(name.at("name"), "process_name");
  EXPECT_EQ(names[0].at("args").at("name"), "rank 0");
  EXPECT_EQ(names[1].at("args").at("name"), "rank 1 on b");
  EXPECT_EQ(names[1].at("pid"), 1);
}

// A collective that only one rank has recorded is an ordinary span.
TEST_F(ChromeTrace, LeavesACollectiveOfOneRankWhole) {
  const json trace = written({{.rank = 0, .spans = {reduction(start_, start_ + microseconds(7))}}});
  ASSERT_EQ(events(trace, "X").size(), 1U);
  EXPECT_EQ(events(trace, "X")[0].at("dur"), 7.0);
  EXPECT_TRUE(events(trace, "s").empty());
}

// The uncertainty of the clocks may place the last rank's arrival after the end. No span may end
// before it begins.
TEST_F(ChromeTrace, KeepsDurationsFromBelowZero) {
  const json trace = written(
      {{.rank = 0, .spans = {reduction(start_, start_ + microseconds(5))}},
       {.rank = 1, .spans = {reduction(start_ + microseconds(6), start_ + microseconds(9))}}});
  const std::vector<json> complete = events(trace, "X");
  const std::pair<double, double> expected[] = {{0, 5}, {5, 0}, {6, 3}};  // begins, durations
  ASSERT_EQ(complete.size(), 3U);
  for (std::size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(complete[i].at("ts"), expected[i].first) << i;
    EXPECT_EQ(complete[i].at("dur"), expected[i].second) << i;
  }
}

TEST_F(ChromeTrace, ShowsValuesAsACounter) {
  const Clock::time_point then = start_ + microseconds(5);
  const json trace = written({{.rank = 0,
                               .spans = {{.name = "ready batches",
                                          .category = kValueCategory,
                                          .begin = then,
                                          .end = then,
                                          .track = "training",
                                          .arguments = {{"value", "3"}}}}}});
  EXPECT_TRUE(events(trace, "X").empty());
  const std::vector<json> counters = events(trace, "C");
  ASSERT_EQ(counters.size(), 1U);
  EXPECT_EQ(counters[0].at("name"), "ready batches");
  EXPECT_EQ(counters[0].at("cat"), kValueCategory);
  EXPECT_EQ(counters[0].at("pid"), 0);
  EXPECT_EQ(counters[0].at("tid"), 0);
  EXPECT_EQ(counters[0].at("ts"), 5.0);
  EXPECT_EQ(counters[0].at("args").at("ready batches"), 3);
}

TEST_F(ChromeTrace, SaysWhereItCannotWrite) {
  EXPECT_THROW(write_chrome_trace("/dev/null/trace.json", {}), Error);
}

TEST_F(ChromeTrace, TakesNamesThatAreNoText) {
  const RankTrace trace{.host = "host\xE9", .spans = {{.name = "caf\xE9", .category = "c"}}};
  EXPECT_EQ(rank_trace_from(to_text(trace)).spans[0].name, "caf\\xe9");
  EXPECT_EQ(events(written({trace}), "X").at(0).at("name"), "caf\\xe9");
}

TEST(Span, IsTheSameBehindAMessage) {
  RankTrace trace{
      .rank = 3, .host = "host", .clock = {.nanoseconds = -5, .uncertainty_nanoseconds = 7}};
  trace.spans = {{.name = "a \"b\"\n",
                  .category = "c",
                  .begin = Clock::time_point(std::chrono::nanoseconds(1'234'567'890'123)),
                  .end = Clock::time_point(std::chrono::nanoseconds(1'234'567'890'999)),
                  .track = "t",
                  .arguments = {{"k", "v"}},
                  .collective = "x"}};
  const RankTrace back = rank_trace_from(to_text(trace));
  EXPECT_EQ(back.rank, 3);
  EXPECT_EQ(back.host, "host");
  EXPECT_EQ(back.clock.nanoseconds, -5);
  EXPECT_EQ(back.clock.uncertainty_nanoseconds, 7);
  ASSERT_EQ(back.spans.size(), 1U);
  EXPECT_EQ(back.spans[0].name, trace.spans[0].name);
  EXPECT_EQ(back.spans[0].category, "c");
  EXPECT_EQ(back.spans[0].track, "t");
  EXPECT_EQ(back.spans[0].begin, trace.spans[0].begin);
  EXPECT_EQ(back.spans[0].end, trace.spans[0].end);
  EXPECT_EQ(back.spans[0].arguments, trace.spans[0].arguments);
  EXPECT_EQ(back.spans[0].collective, "x");
  for (const char* text : {"", "{", "[]", R"({"rank": "x"})"}) {
    EXPECT_THAT(testing_support::message_of<DataError>([&] { rank_trace_from(text); }),
                ::testing::StartsWith("these are not the spans of a rank: "))
        << text;
  }
}

}  // namespace
}  // namespace lockstep
