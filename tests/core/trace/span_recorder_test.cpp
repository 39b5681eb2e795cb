#include <lockstep/core/trace/span_recorder.h>

#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <lockstep/core/strings.h>

namespace lockstep {
namespace {

using ::testing::ElementsAre;
using ::testing::UnorderedElementsAre;

std::vector<std::string> names_of(const std::vector<Span>& spans) {
  std::vector<std::string> names;
  for (const Span& span : spans) names.push_back(span.track + ": " + span.name);
  return names;
}

TEST(SpanRecorder, KeepsTheSpansOfAllThreads) {
  name_thread_track("main");
  {
    const SpanScope before("before", "test");
  }
  start_recording();
  {
    const SpanScope outer("outer", "test");
    const SpanScope inner("load", "data", 12);
  }
  std::thread other([] {
    name_thread_track("other");
    const SpanScope scope("elsewhere", "test");
  });
  other.join();
  const std::vector<Span> spans = stop_recording(Clock::time_point::min());
  {
    const SpanScope after("after", "test");
  }
  EXPECT_THAT(names_of(spans),
              UnorderedElementsAre("main: load 12", "main: outer", "other: elsewhere"));
  for (const Span& span : spans) EXPECT_LE(span.begin, span.end);
  EXPECT_EQ(spans[0].category, "data");
}

TEST(SpanRecorder, NamesActionsOfPipelines) {
  name_thread_track("main");
  start_recording();
  const Clock::time_point now = Clock::now();
  record_span("F", "forward", 12, now, now + Milliseconds(1), 2);
  record_span("REDUCE_GRAD", "reduction", -1, now, now + Milliseconds(1), 0);
  EXPECT_THAT(names_of(stop_recording(Clock::time_point::min())),
              ElementsAre("main: 2F12", "main: 0REDUCE_GRAD"));
}

TEST(SpanRecorder, NumbersThreadsWithoutAName) {
  start_recording();
  for (int i = 0; i < 2; ++i) {
    std::thread([] { const SpanScope scope("work", "test"); }).join();
  }
  EXPECT_THAT(names_of(stop_recording(Clock::time_point::min())),
              ElementsAre("thread 1: work", "thread 2: work"));
}

TEST(SpanRecorder, RenamesATrackInTheNextRecording) {
  name_thread_track("main");
  start_recording();
  {
    const SpanScope scope("first", "test");
  }
  name_thread_track("renamed");
  {
    const SpanScope scope("second", "test");
  }
  EXPECT_THAT(names_of(stop_recording(Clock::time_point::min())),
              ElementsAre("main: first", "main: second"));
  start_recording();
  {
    const SpanScope scope("third", "test");
  }
  EXPECT_THAT(names_of(stop_recording(Clock::time_point::min())), ElementsAre("renamed: third"));
}

TEST(SpanRecorder, KeepsValuesOfAMoment) {
  name_thread_track("main");
  record_value("ready batches", 1);
  start_recording();
  record_value("ready batches", 3);
  const std::vector<Span> spans = stop_recording(Clock::time_point::min());
  ASSERT_THAT(names_of(spans), ElementsAre("main: ready batches"));
  EXPECT_EQ(spans[0].category, kValueCategory);
  EXPECT_EQ(spans[0].arguments.at("value"), "3");
  EXPECT_EQ(spans[0].begin, spans[0].end);
}

TEST(SpanRecorder, KeepsTheNewestSpansOfABoundedRing) {
  name_thread_track("main");
  start_recording(3);
  for (int i = 0; i < 8; ++i) const SpanScope scope("step", "test", i);
  EXPECT_THAT(names_of(stop_recording(Clock::time_point::min())),
              ElementsAre("main: step 5", "main: step 6", "main: step 7"));
}

TEST(SpanRecorder, KeepsOneSpanAtLeast) {
  name_thread_track("main");
  start_recording(0);
  for (int i = 0; i < 3; ++i) const SpanScope scope("step", "test", i);
  EXPECT_THAT(names_of(stop_recording(Clock::time_point::min())), ElementsAre("main: step 2"));
}

TEST(SpanRecorder, LeavesOutWhatEndsAtATimeOrBefore) {
  name_thread_track("main");
  start_recording();
  const Clock::time_point from = Clock::now();
  const Clock::time_point begin = from - Milliseconds(1);
  const Clock::duration tick(1);
  record_span("before", "test", -1, begin, from - tick);
  record_span("at", "test", -1, begin, from);
  record_span("behind", "test", -1, begin, from + tick);
  const std::vector<Span> spans = stop_recording(from);
  ASSERT_THAT(names_of(spans), ElementsAre("main: behind"));
  EXPECT_EQ(spans[0].begin, begin);
  EXPECT_EQ(spans[0].end, from + tick);
}

TEST(SpanRecorder, ReturnsWhatEndsBehindATime) {
  name_thread_track("main");
  start_recording();
  {
    const SpanScope scope("early", "test");
  }
  const Clock::time_point from = Clock::now();
  {
    const SpanScope scope("late", "test");
  }
  EXPECT_THAT(names_of(stop_recording(from)), ElementsAre("main: late"));
}

TEST(SpanRecorder, BeginsAnew) {
  name_thread_track("main");
  start_recording();
  {
    const SpanScope scope("first", "test");
  }
  start_recording();
  {
    const SpanScope scope("second", "test");
  }
  EXPECT_THAT(names_of(stop_recording(Clock::time_point::min())), ElementsAre("main: second"));
  EXPECT_TRUE(stop_recording(Clock::time_point::min()).empty());
}

TEST(SpanRecorder, PausesForWhatNobodyWants) {
  name_thread_track("main");
  start_recording(3);
  {
    const SpanScope scope("step", "test", 1);
  }
  {
    const SpanScope evaluation("evaluation", "test");
    const RecordingPause pause;
    for (int i = 0; i < 8; ++i) const SpanScope scope("batch", "test", i);
  }
  {
    const SpanScope scope("step", "test", 2);
  }
  EXPECT_THAT(names_of(stop_recording(Clock::time_point::min())),
              ElementsAre("main: step 1", "main: evaluation", "main: step 2"));
  {
    const RecordingPause pause;
  }
  EXPECT_FALSE(is_recording()) << "nothing was recorded before the pause";
}

// Never destroyed, because open scopes may still call it.
class NotedScopes final : public SpanObserver {
 public:
  void begin(const char* name, const char*, std::int64_t number) noexcept override {
    notes.push_back(str(name, " ", number));
  }
  void end(const char* category) noexcept override { notes.push_back(str("end of ", category)); }
  std::vector<std::string> notes{};
};

TEST(SpanRecorder, TellsItsObserverOfScopes) {
  static auto* const noted = new NotedScopes;
  observe_spans(noted);
  {
    const SpanScope scope("before", "test");
  }
  start_recording();
  {
    const SpanScope outer("outer", "a", 3);
    const SpanScope inner("inner", "b");
    observe_spans(nullptr);
    const SpanScope unheard("unheard", "c");
  }
  stop_recording(Clock::time_point::max());
  EXPECT_THAT(noted->notes, ElementsAre("outer 3", "inner -1", "end of b", "end of a"));
}

// Threads record spans while recording starts and stops, for ThreadSanitizer.
TEST(SpanRecorder, StopsWhileThreadsRecord) {
  std::atomic<bool> done{false};
  std::vector<std::thread> threads;
  for (int i = 0; i < 3; ++i) {
    threads.emplace_back([&] {
      while (!done) const SpanScope scope("work", "test");
    });
  }
  std::size_t count = 0;
  for (int i = 0; i < 20; ++i) {
    start_recording(64);
    std::this_thread::sleep_for(Milliseconds(1));
    const std::vector<Span> spans = stop_recording(Clock::time_point::min());
    EXPECT_LE(spans.size(), 3U * 64U);
    count += spans.size();
  }
  done = true;
  for (std::thread& thread : threads) thread.join();
  EXPECT_GT(count, 0U);
}

}  // namespace
}  // namespace lockstep
