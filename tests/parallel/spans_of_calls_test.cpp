#include <lockstep/parallel/base/spans_of_calls.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <mutex>

#include <lockstep/comm/group/process_group.h>
#include <lockstep/core/error.h>
#include <tests/support/groups.h>

namespace lockstep::parallel {
namespace {

using std::chrono::microseconds;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using testing_support::no_errors;
using testing_support::run_group;

Clock::time_point at(int time) { return Clock::time_point() + microseconds(time); }

RecordedCall call(CallKind kind, std::uint64_t number, int begin, int end) {
  CallDescription description;
  description.kind = kind;
  return {
      .group = "world", .call = description, .number = number, .begin = at(begin), .end = at(end)};
}

std::vector<std::string> tracks(const std::vector<Span>& spans) {
  std::vector<std::string> found;
  for (const Span& span : spans) found.push_back(span.track);
  return found;
}

TEST(SpansOfCalls, GiveCallsOfOneTimeTracksOfTheirOwn) {
  const auto spans = spans_of_calls(
      {call(CallKind::kAllReduce, 1, 0, 100), call(CallKind::kBarrier, 2, 50, 90),
       call(CallKind::kBroadcast, 3, 60, 200), call(CallKind::kBroadcast, 4, 100, 120),
       call(CallKind::kBroadcast, 5, 110, 130), call(CallKind::kBroadcast, 6, 119, 140)},
      {});
  EXPECT_THAT(tracks(spans),
              ElementsAre("calls", "calls 2", "calls 3", "calls", "calls 2", "calls 4"));
  EXPECT_EQ(spans[1].name, "barrier");
  EXPECT_EQ(spans[1].category, "collective");
  EXPECT_EQ(spans[1].collective, "world call 2");
  EXPECT_EQ(spans[1].begin, at(50));
  EXPECT_EQ(spans[1].end, at(90));
}

TEST(SpansOfCalls, LeaveOutWhatReductionsShow) {
  const Span reduction{
      .name = "reduction", .begin = at(10), .end = at(50), .collective = "bucket 0"};
  const Span backward{.name = "backward", .begin = at(0), .end = at(100)};
  EXPECT_THAT(spans_of_calls({call(CallKind::kAllReduce, 1, 11, 49)}, {backward, reduction}),
              IsEmpty());
  EXPECT_EQ(spans_of_calls({call(CallKind::kAllReduce, 1, 60, 70)}, {backward, reduction}).size(),
            1U);
  EXPECT_EQ(spans_of_calls({call(CallKind::kAllReduce, 1, 11, 70)}, {backward, reduction}).size(),
            1U);
}

// The clock of calls and that of spans differ by up to two microseconds.
TEST(SpansOfCalls, AllowForClocksThatDiffer) {
  const Span reduction{
      .name = "reduction", .begin = at(10), .end = at(50), .collective = "bucket 0"};
  const auto is_left_out = [&](int begin, int end) {
    return spans_of_calls({call(CallKind::kAllReduce, 1, begin, end)}, {reduction}).empty();
  };
  EXPECT_TRUE(is_left_out(8, 52));
  EXPECT_FALSE(is_left_out(7, 52));
  EXPECT_FALSE(is_left_out(8, 53));
}

TEST(SpansOfCalls, SayWhatWasCalledInWhichGroup) {
  RecordedCall receive = call(CallKind::kRecv, 7, 0, 10);
  receive.group = "stage 1";
  receive.message = "3 to 2 message 5";
  const std::vector<Span> spans =
      spans_of_calls({receive, call(CallKind::kBarrier, 4, 20, 30)}, {});
  ASSERT_EQ(spans.size(), 2U);
  EXPECT_EQ(spans[0].name, "recv");
  EXPECT_EQ(spans[0].category, kMessageCategory);
  EXPECT_EQ(spans[0].collective, "stage 1 3 to 2 message 5");
  EXPECT_EQ(spans[0].arguments.at("group"), "stage 1");
  EXPECT_EQ(spans[0].arguments.at("call"), describe(receive.call));
  EXPECT_EQ(spans[1].category, "collective");
  EXPECT_EQ(spans[1].collective, "world call 4");
  EXPECT_EQ(spans[1].arguments.at("group"), "world");
}

// All ranks use one name for a collective, and each message has a span on both ranks that it
// concerns.
TEST(SpansOfCalls, NameTheCollectivesOfAllRanksAlike) {
  std::mutex mutex;
  std::vector<std::vector<Span>> all(2);
  const auto errors = run_group(2, "shm", [&](ProcessGroup group) {
    const torch::Tensor tensor = torch::ones({3});
    group.barrier();
    const Clock::time_point from = Clock::now();
    group.all_reduce(tensor);
    if (group.rank() == 0) group.send(tensor, 1);
    if (group.rank() == 1) group.recv(tensor, 0);
    auto inner = group.new_group({1, 0});
    inner->async_broadcast(tensor, 0)->wait();
    const Clock::time_point until = Clock::now();
    const auto calls = group.recorded_calls(from);
    for (const RecordedCall& each : calls) {
      if (each.begin < from - microseconds(20) || each.end > until + microseconds(20) ||
          each.end < each.begin) {
        throw Error(str(describe(each.call), " is not from its time"));
      }
    }
    {
      const std::scoped_lock lock(mutex);
      all[static_cast<std::size_t>(group.rank())] = spans_of_calls(calls, {});
    }
    group.barrier();
  });
  ASSERT_EQ(errors, no_errors(2));
  const auto names = [](const std::vector<Span>& spans) {
    std::vector<std::string> found;
    for (const Span& span : spans) found.push_back(span.name);
    return found;
  };
  EXPECT_THAT(names(all[0]), ElementsAre("all_reduce", "send", "broadcast"));
  EXPECT_THAT(names(all[1]), ElementsAre("all_reduce", "recv", "broadcast"));
  for (const std::size_t collective : {0U, 2U}) {
    EXPECT_EQ(all[0][collective].collective, all[1][collective].collective);
    EXPECT_FALSE(all[0][collective].collective.empty());
  }
  EXPECT_NE(all[0][0].collective, all[0][2].collective);
  EXPECT_EQ(all[0][1].collective, "world 0 to 1 message 0");
  EXPECT_EQ(all[1][1].collective, all[0][1].collective);
  EXPECT_EQ(all[0][1].category, "message");
  EXPECT_EQ(all[0][0].arguments.at("call"), "all_reduce[float32, 3]");
}

}  // namespace
}  // namespace lockstep::parallel
