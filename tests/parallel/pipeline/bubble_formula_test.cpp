#include <lockstep/parallel/pipeline/schedule/bubble_formula.h>

#include <gtest/gtest.h>

#include <lockstep/core/error.h>
#include <lockstep/parallel/pipeline/schedule/replay.h>
#include <lockstep/parallel/pipeline/schedule/schedules.h>

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
  EXPECT_DOUBLE_EQ(bubble_formula("1f1b", 4, 8)->bubble, 3.0 / 11);
  EXPECT_DOUBLE_EQ(bubble_formula("interleaved", 4, 8, 2)->bubble, 3.0 / 19);
  EXPECT_DOUBLE_EQ(bubble_formula("zb-h1", 4, 8)->bubble, 3.0 / 27);
  EXPECT_DOUBLE_EQ(bubble_formula("zbv", 4, 8)->bubble, 3.0 / 51);
}

TEST(PipelineBubbleFormula, IsNotThereWhereNoneHolds) {
  EXPECT_FALSE(bubble_formula("mine", 4, 8));
  EXPECT_FALSE(bubble_formula("interleaved", 4, 9));
  EXPECT_FALSE(bubble_formula("zb-h1", 4, 3));
  EXPECT_FALSE(bubble_formula("zbv", 4, 6));
  EXPECT_THROW(bubble_formula("1f1b", 0, 8), ConfigError);
}

}  // namespace
}  // namespace lockstep::pipeline
