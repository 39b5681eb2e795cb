#include <lockstep/data/loader/batch_ring.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <pthread.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <fstream>
#include <latch>
#include <optional>
#include <regex>
#include <semaphore>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include <lockstep/core/error.h>
#include <lockstep/core/trace/span_recorder.h>
#include <tests/support/captured_log.h>
#include <tests/support/messages.h>

namespace lockstep::testing_support {
namespace {

// Each buffer holds the number of the batch that fills it.
class Numbers {
 public:
  explicit Numbers(const data::BatchRingOptions& options)
      : values_(options.slots, -1),
        ring_([this](int slot, std::int64_t batch) { values_[slot] = batch; }, options) {}

  data::BatchRing& ring() { return ring_; }
  std::optional<std::int64_t> next() {
    const auto slot = ring_.next();
    if (!slot) return std::nullopt;
    return values_[*slot];
  }

 private:
  std::vector<std::int64_t> values_;
  data::BatchRing ring_;
};

class BatchRingOf : public ::testing::TestWithParam<data::BatchRingOptions> {};

TEST_P(BatchRingOf, DeliversInOrderEachOnce) {
  Numbers numbers(GetParam());
  EXPECT_EQ(numbers.next(), std::nullopt) << "before start()";
  for (const auto& [first, end] : {std::pair{0, 500}, {37, 100}, {3, 3}, {0, 1}}) {
    numbers.ring().start(first, end);
    for (std::int64_t batch = first; batch < end; ++batch) ASSERT_EQ(numbers.next(), batch);
    EXPECT_EQ(numbers.next(), std::nullopt);
    EXPECT_EQ(numbers.next(), std::nullopt);
  }
}

TEST_P(BatchRingOf, AStartInTheMiddleForgetsTheOldSequence) {
  Numbers numbers(GetParam());
  for (int round = 0; round < 200; ++round) {
    numbers.ring().start(1000 * round, 1000 * round + 1000);
    for (std::int64_t i = 0; i < round % 5; ++i) ASSERT_EQ(numbers.next(), 1000 * round + i);
  }
  numbers.ring().stop();
  EXPECT_EQ(numbers.next(), std::nullopt);
}

// The consumer writes into the buffer that it holds. A thread that overwrites the buffer too early
// is detected by this test, or by ThreadSanitizer.
TEST_P(BatchRingOf, TheBufferInUseIsTheConsumersAlone) {
  const data::BatchRingOptions options = GetParam();
  std::vector<std::vector<std::int64_t>> buffers(options.slots, std::vector<std::int64_t>(256));
  data::BatchRing ring([&](int slot, std::int64_t batch) { buffers[slot].assign(256, batch); },
                       options);
  ring.start(0, 300);
  for (std::int64_t batch = 0; batch < 300; ++batch) {
    const auto slot = ring.next();
    ASSERT_TRUE(slot);
    for (std::int64_t& value : buffers[*slot]) {
      ASSERT_EQ(value, batch);
      value = -1;
    }
  }
}

TEST_P(BatchRingOf, AnErrorArrivesInItsPlaceAndEndsTheSequence) {
  const data::BatchRingOptions options = GetParam();
  data::BatchRing ring(
      [](int, std::int64_t batch) {
        if (batch >= 7 && batch < 20) throw DataError("batch " + std::to_string(batch));
      },
      options);
  for (int round = 0; round < 20; ++round) {
    ring.start(0, 100);
    for (int batch = 0; batch < 7; ++batch) ASSERT_TRUE(ring.next());
    try {
      ring.next();
      FAIL() << "the error was lost";
    } catch (const DataError& error) {
      EXPECT_STREQ(error.what(), "batch 7");
    }
    EXPECT_EQ(ring.next(), std::nullopt);
  }
  ring.start(20, 25);  // the ring continues after an error
  for (int batch = 20; batch < 25; ++batch) EXPECT_TRUE(ring.next());
}

TEST_P(BatchRingOf, IsDestroyedAtAnyTime) {
  for (int round = 0; round < 200; ++round) {
    Numbers numbers(GetParam());
    if (round % 4 == 0) continue;
    numbers.ring().start(0, round % 3 == 0 ? 1 : 1000);
    for (int i = 0; i < round % 7; ++i) numbers.next();
  }
}

INSTANTIATE_TEST_SUITE_P(Threads, BatchRingOf,
                         ::testing::Values(data::BatchRingOptions{.threads = 0, .slots = 1},
                                           data::BatchRingOptions{.threads = 0, .slots = 3},
                                           data::BatchRingOptions{.threads = 1, .slots = 2},
                                           data::BatchRingOptions{.threads = 2, .slots = 2},
                                           data::BatchRingOptions{.threads = 2, .slots = 4},
                                           data::BatchRingOptions{.threads = 4, .slots = 3}),
                         [](const auto& info) {
                           return std::to_string(info.param.threads) + "_threads_" +
                                  std::to_string(info.param.slots) + "_slots";
                         });

TEST(BatchRing, FillsAheadAllSlotsButTheOneInUse) {
  std::counting_semaphore<> filled(0);
  std::atomic<int> fills{0};
  data::BatchRing ring(
      [&](int, std::int64_t) {
        ++fills;
        filled.release();
      },
      {.threads = 1, .slots = 4});
  ring.start(0, 100);
  for (int i = 0; i < 4; ++i) filled.acquire();  // fills the whole ring without a call of next()
  ASSERT_TRUE(ring.next());
  EXPECT_EQ(fills, 4) << "the batch in use was overwritten";
  ASSERT_TRUE(ring.next());
  filled.acquire();  // the first slot is filled again
  ring.stop();
}

// When the consumer asks, the fourth fill may not be counted yet.
TEST(BatchRing, LeavesTheNumberOfReadyBatchesInATrace) {
  std::counting_semaphore<> filled(0);
  data::BatchRing ring([&](int, std::int64_t) { filled.release(); }, {.threads = 1, .slots = 4});
  ring.start(0, 100);
  for (int i = 0; i < 4; ++i) filled.acquire();
  start_recording();
  ASSERT_TRUE(ring.next());
  std::vector<Span> spans = stop_recording(Clock::time_point::min());
  std::erase_if(spans, [](const Span& span) { return span.category != kValueCategory; });
  ASSERT_EQ(spans.size(), 1U);
  EXPECT_EQ(spans[0].name, "ready batches");
  const int ready = std::stoi(spans[0].arguments.at("value"));
  EXPECT_TRUE(ready == 3 || ready == 4) << ready;
  ring.stop();
}

// Sometimes a fill is faster than the consumer, but not every time.
TEST(BatchRing, CountsTheReadyBatchesBeforeItWaitsForOne) {
  data::BatchRing ring([](int, std::int64_t) { std::this_thread::yield(); },
                       {.threads = 1, .slots = 2});
  bool waited = false;
  for (int round = 0; round < 2000 && !waited; ++round) {
    start_recording();
    ring.start(0, 1);
    ASSERT_TRUE(ring.next());
    for (const Span& span : stop_recording(Clock::time_point::min())) {
      if (span.category == kValueCategory) waited = span.arguments.at("value") == "0";
    }
  }
  EXPECT_TRUE(waited) << "a batch was ready each time";
}

TEST(BatchRing, LeavesEachFillInATrace) {
  for (const int threads : {0, 1}) {
    data::BatchRing ring([](int, std::int64_t) {}, {.threads = threads, .slots = 2});
    start_recording();
    ring.start(5, 7);
    while (ring.next()) continue;
    std::vector<Span> spans = stop_recording(Clock::time_point::min());
    const std::size_t values =
        std::erase_if(spans, [](const Span& span) { return span.category == kValueCategory; });
    EXPECT_EQ(values, threads > 0 ? 2U : 0U) << "one for each batch, if it can be ready";
    ASSERT_EQ(spans.size(), 2U);
    EXPECT_EQ(spans[0].name, "load batch 5");
    EXPECT_EQ(spans[1].name, "load batch 6");
    for (const Span& span : spans) {
      EXPECT_EQ(span.category, "data");
      if (threads > 0) EXPECT_EQ(span.track, "loader 0");
    }
  }
}

// The consumer still holds a buffer of the old sequence when the new one has filled all buffers.
TEST(BatchRing, AStartTakesBackTheBufferInUse) {
  std::counting_semaphore<> filled(0);
  std::vector<std::int64_t> values(2);
  data::BatchRing ring(
      [&](int slot, std::int64_t batch) {
        values[slot] = batch;
        filled.release();
      },
      {.threads = 1, .slots = 2});
  for (const std::int64_t first : {0, 100, 200}) {
    ring.start(first, first + 10);
    for (int i = 0; i < 2; ++i) filled.acquire();
    const auto slot = ring.next();
    ASSERT_TRUE(slot);
    EXPECT_EQ(values[*slot], first);
  }
  const auto last = ring.next();
  ASSERT_TRUE(last);
  EXPECT_EQ(values[*last], 201);
  ring.stop();
}

// The old sequence may use memory that its owner frees after stop().
TEST(BatchRing, StopWaitsForARunningFill) {
  std::counting_semaphore<> begun(0);
  std::atomic<int> running{0};
  data::BatchRing ring(
      [&](int, std::int64_t) {
        ++running;
        begun.release();
        std::this_thread::sleep_for(std::chrono::milliseconds(20));
        --running;
      },
      {.threads = 2, .slots = 3});
  ring.start(0, 100);
  begun.acquire();
  ring.stop();
  EXPECT_EQ(running, 0);
  EXPECT_EQ(ring.next(), std::nullopt);
}

TEST(BatchRing, WarnsOfProcessorsThatAreNotThere) {
  const CapturedLog log;
  data::BatchRing ring([](int, std::int64_t) {}, {.threads = 1, .slots = 2, .cpus = {1022, 1023}});
  ring.start(0, 3);
  for (int batch = 0; batch < 3; ++batch) EXPECT_TRUE(ring.next()) << "it fills nevertheless";
  EXPECT_FALSE(ring.next());
  EXPECT_THAT(log.lines(), ::testing::ElementsAre(::testing::HasSubstr(
                               "BatchRing: cannot pin a thread to processors 1022, 1023")));
}

TEST(BatchRing, FillersWorkAtTheSameTime) {
  std::latch both(2);  // the two fills wait for each other
  data::BatchRing ring([&](int, std::int64_t) { both.arrive_and_wait(); },
                       {.threads = 2, .slots = 2});
  ring.start(0, 2);
  EXPECT_TRUE(ring.next());
  EXPECT_TRUE(ring.next());
}

// Runs in a child process whose address space has room for only some of the threads. If the ring
// waited for those that did not start, alarm() would end the process.
TEST(BatchRing, AThreadThatCannotStartIsAnError) {
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    alarm(30);
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, std::size_t{256} << 20);
    pthread_setattr_default_np(&attributes);
    std::size_t pages = 0;
    std::ifstream("/proc/self/statm") >> pages;
    const rlim_t bytes = pages * sysconf(_SC_PAGESIZE) + (std::size_t{1} << 30);
    const rlimit limit{bytes, bytes};
    setrlimit(RLIMIT_AS, &limit);
    const std::string text = message_of<Error>(
        [] { data::BatchRing([](int, std::int64_t) {}, {.threads = 16, .slots = 2}); });
    _exit(std::regex_search(text, std::regex("refuses thread [2-9] of 16")) ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

TEST(BatchRing, RefusesBadOptions) {
  const auto fill = [](int, std::int64_t) {};
  EXPECT_EQ(message_of<ConfigError>([&] { data::BatchRing(fill, {.threads = -1, .slots = 2}); }),
            "BatchRing: threads must be from 0 to 1024, got -1");
  EXPECT_EQ(message_of<ConfigError>([&] { data::BatchRing(fill, {.threads = 0, .slots = 0}); }),
            "BatchRing: slots must be from 1 to 65536, got 0");
  EXPECT_EQ(message_of<ConfigError>([&] { data::BatchRing(fill, {.threads = 1, .slots = 1}); }),
            "BatchRing: slots must be from 2 to 65536, got 1");
  EXPECT_EQ(message_of<ConfigError>([&] { data::BatchRing(fill, {.threads = 0, .slots = 65537}); }),
            "BatchRing: slots must be from 1 to 65536, got 65537");
  EXPECT_EQ(message_of<ConfigError>([&] { data::BatchRing(fill, {.threads = 1, .slots = 65537}); }),
            "BatchRing: slots must be from 2 to 65536, got 65537");
  EXPECT_NO_THROW(data::BatchRing(fill, {.threads = 0, .slots = 65536}));
  EXPECT_EQ(message_of<ConfigError>([&] { data::BatchRing(fill, {.threads = 1025, .slots = 2}); }),
            "BatchRing: threads must be from 0 to 1024, got 1025");
}

}  // namespace
}  // namespace lockstep::testing_support
