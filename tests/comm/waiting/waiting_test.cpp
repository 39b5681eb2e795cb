// How a thread waits: it polls, sleeps on words of memory, and advances other groups meanwhile.
#include <lockstep/comm/waiting/futex.h>
#include <lockstep/comm/waiting/patience.h>
#include <lockstep/comm/waiting/progress.h>

#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <memory>
#include <span>
#include <thread>
#include <vector>

#include <lockstep/core/clock.h>

namespace lockstep::comm {
namespace {

using std::chrono::hours;
using std::chrono::milliseconds;
using std::chrono::nanoseconds;

// How often a wait may poll before it has to sleep, and `most` if it may poll more often.
int polls_before_sleep(const shm::PatienceOptions& options, nanoseconds at_most, int most) {
  shm::Patience patience(options, at_most);
  int polls = 0;
  while (polls < most && patience.pause()) ++polls;
  return polls;
}

TEST(Patience, LastsAsLongAsSpinningAndYieldingTogether) {
  constexpr int kMany = 1000;
  constexpr int kEndless = 1'000'000'000;
  const std::chrono::microseconds none(0);
  EXPECT_EQ(polls_before_sleep({.spin = none, .yield = none}, hours(1), kMany), 0);
  EXPECT_EQ(polls_before_sleep({.spin = hours(1), .yield = none}, hours(1), kMany), kMany);
  EXPECT_EQ(polls_before_sleep({.spin = none, .yield = hours(1)}, hours(1), kMany), kMany);
  EXPECT_LT(polls_before_sleep({.spin = milliseconds(1), .yield = none}, hours(1), kEndless),
            kEndless);
  EXPECT_LT(polls_before_sleep({.spin = none, .yield = milliseconds(1)}, hours(1), kEndless),
            kEndless);
}

TEST(Patience, EndsWithTheWait) {
  constexpr int kMany = 1000;
  const std::chrono::microseconds none(0);
  EXPECT_EQ(polls_before_sleep({.spin = none, .yield = hours(1)}, nanoseconds(0), kMany), 0);
  EXPECT_LT(polls_before_sleep({.spin = hours(1), .yield = none}, nanoseconds(0), kMany), kMany);
}

// --- Words ---------------------------------------------------------------------------------------

TEST(SleepOnWords, EndsAtItsTimeout) {
  shm::Word word = 5;
  shm::Word sleepers = 0;
  const AwaitedWord awaited[] = {{&word, 5, &sleepers}};
  auto start = Clock::now();
  shm::sleep_on({}, milliseconds(20));
  EXPECT_GE(Clock::now() - start, milliseconds(20)) << "without a word";
  start = Clock::now();
  shm::sleep_on(awaited, milliseconds(20));
  EXPECT_GE(Clock::now() - start, milliseconds(20));
  EXPECT_EQ(sleepers.load(), 0U);
}

// The kernel watches 128 words at most.
TEST(SleepOnWords, IsShortWhereSomeWordsCannotBeWatched) {
  shm::Word word = 0;
  shm::Word sleepers = 0;
  const std::vector<AwaitedWord> awaited(129, AwaitedWord{&word, 0, &sleepers});
  shm::sleep_on(awaited, hours(1));
  EXPECT_EQ(sleepers.load(), 0U);
}

struct TwoWords {
  std::array<shm::Word, 2> words{};
  std::array<shm::Word, 2> sleepers{};
  const std::array<AwaitedWord, 2> awaited{AwaitedWord{&words[0], 0, &sleepers[0]},
                                           AwaitedWord{&words[1], 0, &sleepers[1]}};
};

TEST(SleepOnWords, EndsWithAChangeOfAnyOfThem) {
  for (const std::size_t count : {1U, 2U}) {
    for (std::size_t changed = 0; changed < count; ++changed) {
      TwoWords earlier;
      earlier.words[changed] = 1;
      shm::sleep_on(std::span(earlier.awaited).first(count), hours(1));
      EXPECT_EQ(earlier.sleepers[changed].load(), 0U);
      TwoWords later;
      std::thread sleeper([&] {
        // A kernel that cannot watch several words sleeps only briefly.
        while (later.words[changed] == 0) {
          shm::sleep_on(std::span(later.awaited).first(count), hours(1));
        }
      });
      while (later.sleepers[changed] == 0) std::this_thread::yield();
      later.words[changed] = 1;
      shm::futex_wake_all(later.words[changed]);
      sleeper.join();
      EXPECT_EQ(later.sleepers[changed].load(), 0U);
    }
  }
}

// --- Several groups ------------------------------------------------------------------------------

struct CountingMember final : Progressing {
  bool advance() noexcept override {
    ++advances;
    return moves;
  }
  void awaited_words(std::vector<AwaitedWord>& words) override {
    if (waits) words.push_back({&word, 0, &sleepers});
  }
  nanoseconds longest_sleep() override { return longest; }

  std::atomic<int> advances = 0;
  std::atomic<bool> moves = false;
  bool waits = false;
  nanoseconds longest = nanoseconds::max();
  shm::Word word = 0;
  shm::Word sleepers = 0;
};

class ProgressOfTwo : public ::testing::Test {
 protected:
  ProgressOfTwo() {
    progress_.add(first_);
    progress_.add(second_);
  }

  Progress progress_;
  const std::shared_ptr<CountingMember> first_ = std::make_shared<CountingMember>();
  const std::shared_ptr<CountingMember> second_ = std::make_shared<CountingMember>();
};

TEST_F(ProgressOfTwo, AdvancesAllButOne) {
  first_->moves = true;
  EXPECT_TRUE(progress_.advance(nullptr));
  EXPECT_EQ(first_->advances, 1);
  EXPECT_EQ(second_->advances, 1) << "although the first has moved";
  EXPECT_FALSE(progress_.advance(first_.get()));
  EXPECT_TRUE(progress_.advance(second_.get()));
  EXPECT_EQ(first_->advances, 2);
  EXPECT_EQ(second_->advances, 2);
}

TEST_F(ProgressOfTwo, NeedsAHandWhileAMemberMovesOrWaits) {
  EXPECT_FALSE(progress_.needs_a_hand());
  first_->moves = true;
  EXPECT_TRUE(progress_.needs_a_hand());
  EXPECT_EQ(second_->advances, 2) << "each is asked each time";
  first_->moves = false;
  second_->waits = true;
  EXPECT_TRUE(progress_.needs_a_hand());
}

TEST_F(ProgressOfTwo, AwaitsTheWordsOfAllButOneAndTheBell) {
  first_->waits = second_->waits = true;
  std::vector<AwaitedWord> words;
  progress_.awaited_words(first_.get(), words);
  ASSERT_EQ(words.size(), 1U);
  EXPECT_EQ(words[0].word, &second_->word);
  progress_.awaited_words(nullptr, words);
  EXPECT_EQ(words.size(), 3U) << "they are appended; nobody rings";
  progress_.will_ring();
  words.clear();
  progress_.awaited_words(nullptr, words);
  ASSERT_EQ(words.size(), 3U);
  EXPECT_EQ(words[2].word->load(), words[2].seen);
  progress_.ring();
  EXPECT_NE(words[2].word->load(), words[2].seen);
}

TEST_F(ProgressOfTwo, SleepsNoLongerThanAnyMemberAllows) {
  EXPECT_EQ(progress_.longest_sleep(), nanoseconds::max());
  second_->longest = milliseconds(3);
  EXPECT_EQ(progress_.longest_sleep(), milliseconds(3));
  first_->longest = milliseconds(2);
  EXPECT_EQ(progress_.longest_sleep(), milliseconds(2));
}

// Each of these pauses would otherwise last an hour.
TEST_F(ProgressOfTwo, PausesNoLongerThanThereIsNothingToDo) {
  int asked = 0;
  second_->moves = true;
  progress_.pause(hours(1), [&] { return ++asked < 0; });
  EXPECT_EQ(asked, 0) << "a member has moved";
  second_->moves = false;
  progress_.pause(hours(1), [&] { return ++asked > 0; });
  EXPECT_EQ(asked, 1) << "the wait is over";
  progress_.pause(hours(1), [&] {
    second_->moves = true;
    return false;
  });
  second_->moves = false;
  second_->longest = milliseconds(1);
  progress_.pause(hours(1), [] { return false; });
  second_->longest = nanoseconds::max();
  const auto start = Clock::now();
  progress_.pause(milliseconds(20), [] { return false; });
  EXPECT_GE(Clock::now() - start, milliseconds(20));
}

TEST_F(ProgressOfTwo, WakesAtTheBell) {
  progress_.will_ring();
  std::vector<AwaitedWord> words;
  progress_.awaited_words(nullptr, words);
  ASSERT_EQ(words.size(), 1U);
  std::atomic<bool> is_over = false;
  std::thread pausing([&] {
    while (!is_over) progress_.pause(hours(1), [&] { return is_over.load(); });
  });
  while (*words[0].sleepers == 0) std::this_thread::yield();
  is_over = true;
  progress_.ring();
  pausing.join();
  EXPECT_EQ(words[0].sleepers->load(), 0U);
}

}  // namespace
}  // namespace lockstep::comm
