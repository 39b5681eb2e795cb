#include <lockstep/report/html/traced_steps.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <lockstep/core/error.h>
#include <lockstep/trace/chrome_trace.h>
#include <tests/support/temporary_directory.h>

namespace lockstep::testing_support {
namespace {

using std::chrono::microseconds;

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

// Rank 1's backward takes 300 us longer than rank 0's, which waits for it. Then both transfer for 100 us.
std::vector<RankTrace> two_ranks() {
  return {{.rank = 0,
           .spans = {span("step 1", "step", "training", 0, 1000),
                     span("forward", "phase", "training", 0, 300),
                     span("backward", "phase", "training", 300, 900),
                     span("exposed communication", "communication", "backward", 500, 900),
                     span("reduction", "communication", "bucket 0", 500, 900, "bucket"),
                     span("optimizer", "phase", "training", 900, 1000)}},
          {.rank = 1,
           .spans = {span("step 1", "step", "training", 0, 990),
                     span("forward", "phase", "training", 0, 300),
                     span("backward", "phase", "training", 300, 900),
                     span("exposed communication", "communication", "backward", 800, 900),
                     span("reduction", "communication", "bucket 0", 800, 900, "bucket"),
                     span("optimizer", "phase", "training", 900, 990)}}};
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

TEST_F(TracedSteps, FollowTheRankThatTheOthersWaitedFor) {
  const html::TracedRun run = read(two_ranks());
  EXPECT_EQ(run.ranks, 2);
  EXPECT_THAT(run.steps, ::testing::ElementsAre("step 1"));
  EXPECT_THAT(texts(html::critical_path(run, "step 1")),
              ::testing::ElementsAre("rank 1 forward 0 to 300", "rank 1 backward 300 to 800",
                                     "rank 0 transfer 800 to 900", "rank 0 optimizer 900 to 1000"));
  EXPECT_TRUE(html::critical_path(run, "step 2").empty());
}

TEST_F(TracedSteps, AccountForTheWholeStep) {
  std::vector<RankTrace> ranks = two_ranks();
  ranks[1].spans[1].end -= microseconds(50);  // nothing is recorded between forward and backward
  double sum = 0;
  for (const html::PathPart& part : html::critical_path(read(ranks), "step 1")) sum += part.end - part.begin;
  EXPECT_NEAR(sum, 1000, 2);
}

TEST_F(TracedSteps, SayWhoWaitedForWhom) {
  const auto waits = html::waits_of(read(two_ranks()));
  EXPECT_NEAR(waits[0][1], 300, 0.01);
  EXPECT_EQ(waits[0][0] + waits[1][0] + waits[1][1], 0);
}

TEST_F(TracedSteps, AreNotReadFromAnotherFile) {
  for (const char* text : {"", "[]", "{}", R"({"traceEvents": [{"ph": "X"}]})"}) {
    folder_.write("trace.json", text);
    EXPECT_THROW(html::read_traced_run(folder_ / "trace.json"), DataError) << text;
  }
  EXPECT_THROW(html::read_traced_run(folder_ / "none.json"), DataError);
}

}  // namespace
}  // namespace lockstep::testing_support
