// Bubbles by the papers' formulas and by replays.
#include <lockstep/parallel/pipeline/schedule/bubble_formula.h>

#include <gtest/gtest.h>

#include <utility>

#include <lockstep/core/error.h>
#include <lockstep/parallel/pipeline/schedule/replay.h>
#include <lockstep/parallel/pipeline/schedule/schedules.h>
#include <lockstep/parallel/pipeline/schedule/table.h>
#include <tests/support/messages.h>

namespace lockstep::pipeline {
namespace {

// Every formula must agree with the replay of the schedule's table.
TEST(PipelineBubbleFormula, IsWhatTheReplayGives) {
  for (const char* name : {"gpipe", "1f1b", "interleaved", "zb-h1", "zbv"}) {
    int formulas = 0;
    for (int workers = 1; workers <= 8; ++workers) {
      for (int micro_batches = 1; micro_batches <= 32; ++micro_batches) {
        for (const int each : {1, 2, 3}) {
          const auto formula = bubble_formula(name, workers, micro_batches, each);
          if (!formula) continue;
          ++formulas;
          const Table table = schedule_of(name, workers, micro_batches, each);
          EXPECT_NEAR(replay(table).bubble(), formula->bubble, 1e-12)
              << name << ' ' << workers << ' ' << micro_batches << ' ' << each;
        }
      }
    }
    EXPECT_GT(formulas, 100) << name;
  }
}

TEST(PipelineBubbleFormula, SaysWhatItIs) {
  EXPECT_EQ(bubble_formula("1f1b", 4, 8)->text, "(p - 1) / (m + p - 1)");
  EXPECT_EQ(bubble_formula("gpipe", 4, 8)->text, "(p - 1) / (m + p - 1)");
  EXPECT_EQ(bubble_formula("interleaved", 4, 8, 2)->text, "(p - 1) / (v m + p - 1)");
  EXPECT_EQ(bubble_formula("zb-h1", 4, 8)->text, "(p - 1) / (3 m + p - 1)");
  EXPECT_EQ(bubble_formula("zbv", 4, 8)->text, "(p - 1) / (6 m + p - 1)");
  EXPECT_DOUBLE_EQ(bubble_formula("1f1b", 4, 8)->bubble, 3.0 / 11);
  EXPECT_DOUBLE_EQ(bubble_formula("interleaved", 4, 8, 2)->bubble, 3.0 / 19);
  EXPECT_DOUBLE_EQ(bubble_formula("zb-h1", 4, 8)->bubble, 3.0 / 27);
  EXPECT_DOUBLE_EQ(bubble_formula("zbv", 4, 8)->bubble, 3.0 / 51);
}

TEST(PipelineBubbleFormula, IsNotThereWhereNoneHolds) {
  EXPECT_FALSE(bubble_formula("mine", 4, 8));
  EXPECT_FALSE(bubble_formula("interleaved", 4, 9));
  EXPECT_FALSE(bubble_formula("zb-h1", 4, 3));
  EXPECT_TRUE(bubble_formula("zb-h1", 4, 4));
  EXPECT_FALSE(bubble_formula("zbv", 4, 6));
  EXPECT_TRUE(bubble_formula("zbv", 4, 7));
  EXPECT_THROW(bubble_formula("1f1b", 0, 8), ConfigError);
  EXPECT_THROW(bubble_formula("1f1b", 4, 0), ConfigError);
  EXPECT_THROW(bubble_formula("1f1b", 4, 8, 0), ConfigError);
}

TEST(PipelineReplay, HasTheUnitCostsOfThePapers) {
  const std::pair<const char*, double> costs[] = {
      {"0F0", 1},      {"0B0", 2},      {"0I0", 1},      {"0W0", 1},         {"0SEND_F0", 0},
      {"1RECV_F0", 0}, {"1SEND_B0", 0}, {"0RECV_B0", 0}, {"0REDUCE_GRAD", 0}};
  for (const auto& [name, cost] : costs) EXPECT_EQ(unit_cost(action_of(name)), cost) << name;
}

// Stage 1's forward takes three times as long as stage 0's, so that the bubbles differ.
TEST(PipelineReplay, BeginsEachActionWhenWhatItNeedsHasEnded) {
  const Table table = table_of("0F0,0B0\n1F0,1B0\n", "mine");
  const Timeline timeline = replay(table, [](const Action& action) {
    return action == action_of("1F0") ? 3 : unit_cost(action);
  });
  ASSERT_EQ(timeline.workers.size(), 2U);
  EXPECT_EQ(timeline.workers[0][0].end, 1);
  EXPECT_EQ(timeline.workers[1][0].begin, 1);
  EXPECT_EQ(timeline.workers[1][0].end, 4);
  EXPECT_EQ(timeline.workers[1][1].end, 6);
  EXPECT_EQ(timeline.workers[0][1].begin, 6);
  EXPECT_EQ(timeline.end, 8);
  EXPECT_DOUBLE_EQ(timeline.bubble(), 0.5);
  EXPECT_DOUBLE_EQ(timeline.bubble_of(0), 1 - 3.0 / 8);
  EXPECT_DOUBLE_EQ(timeline.bubble_of(1), 1 - 5.0 / 8);
}

// A message takes half a second and a reduction four. Both are part of the bubble.
TEST(PipelineReplay, WaitsForMessagesAndReductions) {
  const Table table = with_messages(with_reductions(table_of("0F0,0B0\n1F0,1B0\n", "mine")));
  const Timeline timeline = replay(table, [](const Action& action) {
    if (action.kind == Kind::kReduce) return 4.0;
    return is_message(action.kind) ? 0.5 : unit_cost(action);
  });
  EXPECT_EQ(timeline.workers[1][0].begin, 1.5) << "the receive follows the send";
  EXPECT_EQ(timeline.workers[1][1].begin, 2);
  EXPECT_EQ(timeline.end, 12);
  EXPECT_DOUBLE_EQ(timeline.bubble(), 1 - 6.0 / 24);
  const Costs measured = costs_of(timeline);
  EXPECT_EQ(measured(action_of("0F0")), 1);
  EXPECT_EQ(measured(action_of("1B0")), 2);
  EXPECT_EQ(measured(action_of("0REDUCE_GRAD")), 4);
  EXPECT_EQ(measured(action_of("1RECV_F0")), 0) << "most of it is a wait";
  EXPECT_EQ(measured(action_of("0F1")), 0) << "was not measured";
}

TEST(PipelineReplay, HasNoBubbleWithoutActions) {
  Timeline timeline;
  EXPECT_EQ(timeline.bubble(), 0);
  timeline.workers.resize(1);
  EXPECT_EQ(timeline.bubble(), 0);
  EXPECT_EQ(timeline.bubble_of(0), 0);
  EXPECT_EQ(replay(Table{}).end, 0);
}

TEST(PipelineReplay, NamesAnActionThatIsMissing) {
  const Table table = table_of("0F0,0B0\n1B0\n", "mine");
  EXPECT_EQ(testing_support::message_of<ConfigError>([&] { replay(table); }),
            "table mine does not come to its end: worker 0 at 0B0 for 1B0; worker 1 at 1B0 for "
            "1F0, which nobody does");
}

}  // namespace
}  // namespace lockstep::pipeline
