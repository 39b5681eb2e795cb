// How the report compares the speeds of different numbers of ranks.
#include <lockstep/report/html/scaling.h>

#include <cstdint>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <lockstep/core/error.h>
#include <lockstep/report/html/table_rows.h>
#include <tests/support/messages.h>
#include <tests/support/temporary_directory.h>
#include <tests/support/well_formed.h>

namespace lockstep::testing_support {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

// The best of several runs counts, whatever their order, and a strategy's own rate of one rank.
TEST(Scaling, TakesTheBestRateOfEachNumberOfRanks) {
  const auto rate = [](const char* strategy, int ranks, double speed) {
    return html::RankRate{
        .strategy = strategy, .work = "w", .ranks = ranks, .images_per_second = speed};
  };
  const std::vector<html::ScalingCurve> curves = html::scaling_curves(
      {rate("single", 1, 100), rate("ddp", 1, 80), rate("ddp", 1, 90), rate("ddp", 2, 180),
       rate("ddp", 2, 150), rate("ddp", 4, 0), rate("zero1", 2, 100), rate("zero1", 4, 150)});
  ASSERT_EQ(curves.size(), 2U);
  ASSERT_EQ(curves[0].rates.size(), 2U);
  EXPECT_EQ(curves[0].rates[0].images_per_second, 90);
  EXPECT_DOUBLE_EQ(curves[0].speedup(1), 2);
  EXPECT_EQ(curves[1].name, "zero1: w");
  EXPECT_EQ(curves[1].rates.front().strategy, "single") << "it has no rate of one rank";
  const std::vector<html::ScalingCurve> alone =
      html::scaling_curves({rate("zero1", 2, 100), rate("zero1", 4, 150)});
  ASSERT_EQ(alone.size(), 1U);
  EXPECT_DOUBLE_EQ(alone[0].speedup(0), 2) << "as if two ranks were twice as fast as one";
  EXPECT_DOUBLE_EQ(alone[0].speedup(1), 3);
}

TEST(Scaling, ComparesEachStrategyWithItsFewestRanks) {
  const std::vector<html::RankRate> rates = {
      {.strategy = "single", .work = "w", .source = "a", .ranks = 1, .images_per_second = 100},
      {.strategy = "ddp", .work = "w", .source = "b", .ranks = 2, .images_per_second = 150},
      {.strategy = "ddp", .work = "w", .source = "c", .ranks = 2, .images_per_second = 180},
      {.strategy = "ddp", .work = "other", .source = "d", .ranks = 4, .images_per_second = 500}};
  const std::vector<html::ScalingCurve> curves = html::scaling_curves(rates);
  ASSERT_EQ(curves.size(), 1U);
  EXPECT_EQ(curves[0].name, "ddp: w");
  ASSERT_EQ(curves[0].rates.size(), 2U);
  EXPECT_DOUBLE_EQ(curves[0].speedup(0), 1);
  EXPECT_DOUBLE_EQ(curves[0].speedup(1), 1.8);
  const std::string figure = html::scaling_figure(rates, {{"run", "<script>"}});
  EXPECT_EQ(malformed(figure), "");
  EXPECT_THAT(figure, Not(HasSubstr("<script")));
  EXPECT_THAT(figure, HasSubstr("<td>1.80</td><td>90.00%</td>"));
  EXPECT_EQ(html::scaling_figure({rates[0]}, {}), "");
}

TEST(Scaling, ComparesRatesOfTheSameBatch) {
  const auto rate = [](const char* strategy, int ranks, std::int64_t batch, double speed) {
    return html::RankRate{.strategy = strategy,
                          .work = "w",
                          .ranks = ranks,
                          .global_batch = batch,
                          .images_per_second = speed};
  };
  const std::vector<html::ScalingCurve> curves = html::scaling_curves(
      {rate("single", 1, 64, 100), rate("ddp", 2, 128, 190), rate("ddp", 2, 64, 150),
       rate("ddp", 4, 64, 200), rate("ddp", 4, 512, 900), rate("ddp", 2, 0, 1)});
  ASSERT_EQ(curves.size(), 2U);
  EXPECT_EQ(curves[0].name, "ddp: w, batch 64 a rank");
  ASSERT_EQ(curves[0].rates.size(), 2U);
  EXPECT_DOUBLE_EQ(curves[0].speedup(1), 1.9);
  EXPECT_EQ(curves[1].name, "ddp: w, batch 64 in all");
  ASSERT_EQ(curves[1].rates.size(), 3U);
  EXPECT_DOUBLE_EQ(curves[1].speedup(2), 2);
}

TEST(TableRates, AreNotReadFromAFileThatIsNotThere) {
  const TemporaryDirectory folder;
  const auto path = folder / "none.json";
  EXPECT_EQ(message_of<DataError>([&] { html::read_table_rates(path); }),
            "cannot read " + path.string());
}

// The rates of a damaged record may have no ranks, whether their batch is known or not.
TEST(Scaling, LeavesOutRatesOfNoRanks) {
  for (const std::int64_t batch : {0, 64}) {
    const auto rate = [&](int ranks) {
      return html::RankRate{.strategy = "ddp",
                            .work = "w",
                            .ranks = ranks,
                            .global_batch = batch,
                            .images_per_second = 100};
    };
    for (const int ranks : {-1, 0}) {
      EXPECT_TRUE(html::scaling_curves({rate(ranks), rate(1)}).empty()) << ranks;
      EXPECT_EQ(html::scaling_figure({rate(ranks), rate(1)}, {}), "") << ranks;
    }
    EXPECT_EQ(html::scaling_curves({rate(2), rate(1)}).size(), 1U);
  }
}

// The single process stands for one rank only of a strategy that was not measured with one.
TEST(Scaling, KeepsAStrategysOwnRateOfOneRank) {
  const auto rate = [](const char* strategy, const char* work, int ranks, double speed) {
    return html::RankRate{
        .strategy = strategy, .work = work, .ranks = ranks, .images_per_second = speed};
  };
  const std::vector<html::ScalingCurve> own = html::scaling_curves(
      {rate("single", "w", 1, 100), rate("ddp", "w", 1, 50), rate("ddp", "w", 2, 80)});
  ASSERT_EQ(own.size(), 1U);
  EXPECT_EQ(own[0].rates[0].strategy, "ddp");
  EXPECT_DOUBLE_EQ(own[0].speedup(1), 1.6);
  const std::vector<html::ScalingCurve> other_work =
      html::scaling_curves({rate("single", "v", 1, 100), rate("ddp", "w", 2, 80)});
  EXPECT_TRUE(other_work.empty());
  const std::vector<html::ScalingCurve> alone =
      html::scaling_curves({rate("single", "w", 1, 100), rate("single", "w", 1, 90)});
  EXPECT_TRUE(alone.empty()) << "one number of ranks is no curve";
}

// The ideal line begins at the fewest ranks of any curve, and ends at the most.
TEST(Scaling, HasAnIdealForAllOfItsCurves) {
  const auto rate = [](const char* strategy, int ranks, double speed) {
    return html::RankRate{.strategy = strategy,
                          .work = "w",
                          .source = "run",
                          .ranks = ranks,
                          .images_per_second = speed};
  };
  const std::string figure = html::scaling_figure(
      {rate("ddp", 4, 400), rate("ddp", 8, 600), rate("zero1", 2, 150), rate("zero1", 4, 240)}, {});
  for (const char* part :
       {"ideal: nothing is lost, ranks 2: 2<", "ideal: nothing is lost, ranks 8: 8<",
        "ddp: w, ranks 8: 6<", "zero1: w, ranks 4: 3.2<",
        "<td>4</td><td>400</td><td>4.00</td><td>100.00%</td>",
        "<td>8</td><td>600</td><td>6.00</td><td>75.00%</td>",
        "<td>2</td><td>150</td><td>2.00</td><td>100.00%</td>",
        "<td>4</td><td>240</td><td>3.20</td><td>80.00%</td>"}) {
    EXPECT_THAT(figure, HasSubstr(part));
  }
  EXPECT_THAT(figure, Not(HasSubstr("lost, ranks 4:")));
}

}  // namespace
}  // namespace lockstep::testing_support
