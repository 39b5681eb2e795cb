#include <lockstep/parallel/pipeline/schedule/schedules.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include <lockstep/core/error.h>
#include <lockstep/parallel/pipeline/schedule/check.h>
#include <lockstep/parallel/pipeline/schedule/replay.h>

namespace lockstep::pipeline {
namespace {

using testing::Each;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Le;

constexpr const char* kNames[] = {"gpipe", "1f1b", "interleaved", "zb-h1", "zbv"};

TEST(PipelineSchedules, AreTheTablesOfThePapers) {
  EXPECT_EQ(csv(gpipe(2, 3)), "0F0,0F1,0F2,0B0,0B1,0B2\n1F0,1F1,1F2,1B0,1B1,1B2\n");
  EXPECT_EQ(csv(one_forward_one_backward(2, 3)),
            "0F0,0F1,0B0,0F2,0B1,0B2\n1F0,1B0,1F1,1B1,1F2,1B2\n");
  EXPECT_EQ(csv(zero_bubble_h1(2, 3)),
            "0F0,0F1,0I0,0W0,0F2,0I1,0W1,0I2,0W2\n1F0,1I0,1F1,1I1,1W0,1F2,1I2,1W1,1W2\n");
  EXPECT_EQ(csv(interleaved(2, 2, 2)),
            "0F0,0F1,2F0,2F1,2B0,2B1,0B0,0B1\n1F0,1F1,3F0,3B0,3F1,3B1,1B0,1B1\n");
  EXPECT_THAT(zero_bubble_v(3, 4).worker_of, ElementsAre(0, 1, 2, 2, 1, 0));
}

// With messages, with reductions, and with any stage whose backward is not split.
TEST(PipelineSchedules, PassTheCheckForAnySize) {
  for (const char* name : kNames) {
    for (int workers = 1; workers <= 8; ++workers) {
      for (int micro_batches = 1; micro_batches <= 32; ++micro_batches) {
        for (const int each : {1, 2, 3}) {
          const Table table = schedule_of(name, workers, micro_batches, each);
          ASSERT_NO_THROW(check(table)) << name << ' ' << workers << ' ' << micro_batches;
          if (micro_batches > 9) continue;
          const Table whole =
              with_whole_backward(table, (workers + micro_batches) % table.stages());
          ASSERT_NO_THROW(check(with_messages(with_reductions(whole))))
              << name << ' ' << workers << ' ' << micro_batches;
        }
      }
    }
  }
}

// Messages cost nothing here, so that they must not change the times.
TEST(PipelineSchedules, MessagesKeepTheTimes) {
  for (const char* name : kNames) {
    const Table table = schedule_of(name, 4, 8);
    EXPECT_EQ(replay(with_messages(table)).end, replay(table).end) << name;
  }
}

double idle_of(const Table& table) {
  const Timeline timeline = replay(table);
  return timeline.bubble() * timeline.end;
}

// For each worker, in units of a forward; a backward takes two. The stages of interleaved and zbv
// are half as long.
TEST(PipelineSchedules, HaveTheBubblesOfTheFormulas) {
  for (int p = 1; p <= 8; ++p) {
    const int m = 4 * p;
    EXPECT_NEAR(idle_of(gpipe(p, m)), 3 * (p - 1), 1e-9);
    EXPECT_NEAR(idle_of(one_forward_one_backward(p, m)), 3 * (p - 1), 1e-9);
    EXPECT_NEAR(idle_of(interleaved(p, 2, m)) / 2, 3 * (p - 1) / 2., 1e-9);
    EXPECT_NEAR(idle_of(interleaved(p, 3, m)) / 3, 3 * (p - 1) / 3., 1e-9);
    EXPECT_NEAR(idle_of(zero_bubble_h1(p, m)), p - 1, 1e-9);
    EXPECT_NEAR(idle_of(zero_bubble_v(p, m)) / 2, (p - 1) / 2., 1e-9);
  }
  // The papers define the bubble relative to the time of the work alone.
  EXPECT_NEAR(idle_of(one_forward_one_backward(2, 8)) / 24, 0.125, 1e-9);
  EXPECT_NEAR(idle_of(zero_bubble_h1(2, 8)) / 24, 1 / 24., 1e-9);
}

// With fewer micro-batches than fill the pipeline. No table can be shorter than the bounds, except
// where `slots` exceeds them: worker w begins after w forwards and has six actions for each
// micro-batch, and a micro-batch passes through all stages twice.
TEST(PipelineSchedules, ZbVTakesFewSlotsForFewMicroBatches) {
  struct Case {
    int workers, micro_batches, slots;
  };
  for (const Case& c : {Case{2, 1, 9}, Case{2, 2, 13}, Case{3, 1, 13}, Case{3, 2, 16},
                        Case{3, 3, 20}, Case{3, 4, 26}, Case{4, 1, 17}, Case{4, 2, 19},
                        Case{4, 3, 23}, Case{4, 4, 27}, Case{4, 5, 33}, Case{4, 6, 39}}) {
    const Table table = zero_bubble_v(c.workers, c.micro_batches);
    EXPECT_EQ(replay(table).end, c.slots) << c.workers << ' ' << c.micro_batches;
    EXPECT_GE(c.slots, std::max(c.workers - 1 + 6 * c.micro_batches, 4 * c.workers + 1));
  }
  // Never longer than the beginning of the table for enough micro-batches.
  for (int workers = 2; workers <= 8; ++workers) {
    for (int micro_batches = 1; micro_batches < 2 * workers - 1; ++micro_batches) {
      Table beginning = zero_bubble_v(workers, 2 * workers - 1);
      beginning.micro_batches = micro_batches;
      for (auto& actions : beginning.workers) {
        std::erase_if(actions, [&](const Action& a) { return a.micro_batch >= micro_batches; });
      }
      EXPECT_LE(replay(zero_bubble_v(workers, micro_batches)).end, replay(beginning).end)
          << workers << ' ' << micro_batches;
    }
  }
}

TEST(PipelineSchedules, HoldNoMoreActivationsThanTheyPromise) {
  for (int p = 1; p <= 8; ++p) {
    for (const int m : {1, p, p + 1, 2 * p, 3 * p + 1}) {
      EXPECT_THAT(check(gpipe(p, m)).peak_activations, Each(m));
      const auto held = check(one_forward_one_backward(p, m)).peak_activations;
      for (int w = 0; w < p; ++w) EXPECT_EQ(held[static_cast<std::size_t>(w)], std::min(m, p - w));
      EXPECT_THAT(check(zero_bubble_h1(p, m)).peak_activations, Each(Le(p)));
      EXPECT_THAT(check(zero_bubble_v(p, m)).peak_activations, Each(Le(2 * p)));
    }
  }
}

TEST(PipelineSchedules, RefuseNonsense) {
  EXPECT_THROW(gpipe(0, 4), ConfigError);
  EXPECT_THROW(zero_bubble_v(2, 0), ConfigError);
  EXPECT_THROW(interleaved(2, 0, 4), ConfigError);
  try {
    schedule_of("zbh1", 2, 4);
    FAIL();
  } catch (const ConfigError& error) {
    EXPECT_THAT(error.what(), HasSubstr("got 'zbh1'; did you mean 'zb-h1'?"));
  }
}

}  // namespace
}  // namespace lockstep::pipeline
