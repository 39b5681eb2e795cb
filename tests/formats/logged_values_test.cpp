#include <lockstep/formats/logged_values.h>

#include <gtest/gtest.h>

#include <cmath>
#include <ctime>
#include <limits>
#include <numeric>
#include <string>
#include <vector>

#include <lockstep/core/error.h>
#include <lockstep/formats/logged_text.h>
#include <tests/support/messages.h>

namespace lockstep::testing_support {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

TEST(MakeHistogram, CountsByEqualBins) {
  const std::vector<float> values{0, 1, 1.5F, 2, 3, 4};
  const Histogram histogram = make_histogram(std::span<const float>(values), 4);
  EXPECT_EQ(histogram.edges, (std::vector<double>{0, 1, 2, 3, 4}));
  EXPECT_EQ(histogram.counts, (std::vector<double>{1, 2, 1, 2})) << "the greatest is in the last";
  EXPECT_EQ(histogram.sum, 11.5);
  EXPECT_EQ(histogram.sum_of_squares, 32.25);
}

TEST(MakeHistogram, LeavesOutWhatIsNotFinite) {
  const std::vector<double> values{kNan, 1, kInfinity, 3, -kInfinity};
  const Histogram histogram = make_histogram(std::span<const double>(values), 2);
  EXPECT_EQ(histogram.edges, (std::vector<double>{1, 2, 3}));
  EXPECT_EQ(histogram.counts, (std::vector<double>{1, 1}));
  const std::vector<double> nothing{kNan};
  EXPECT_TRUE(make_histogram(std::span<const double>(nothing)).edges.empty());
  EXPECT_TRUE(make_histogram(std::span<const double>()).counts.empty());
}

TEST(MakeHistogram, CountsEveryValueOfAnyRange) {
  const double most = std::numeric_limits<double>::max();
  const double least = std::numeric_limits<double>::denorm_min();
  for (const std::vector<double>& values :
       {std::vector<double>{7, 7, 7}, {0, 0}, {-most, 0, most}, {0, least}, {1e16, 1e16 + 2}}) {
    const Histogram histogram = make_histogram(std::span<const double>(values), 8);
    ASSERT_EQ(histogram.counts.size(), 8U);
    ASSERT_EQ(histogram.edges.size(), 9U);
    EXPECT_EQ(std::accumulate(histogram.counts.begin(), histogram.counts.end(), 0.0),
              static_cast<double>(values.size()));
    for (std::size_t i = 0; i < 8; ++i) EXPECT_LE(histogram.edges[i], histogram.edges[i + 1]);
    EXPECT_LE(histogram.edges.front(), values.front());
    EXPECT_GE(histogram.edges.back(), values.back());
  }
  EXPECT_EQ(message_of<ConfigError>([] { make_histogram(std::span<const double>(), 0); }),
            "make_histogram: bins must be at least 1, got 0");
}

// The range reaches half of the value to either side, and at least one half.
TEST(MakeHistogram, PutsASingleValueIntoTheMiddle) {
  struct Case {
    double value, least, greatest;
  };
  for (const Case& c : {Case{7, 3.5, 10.5}, Case{-8, -12, -4}, Case{0.25, -0.25, 0.75},
                        Case{0, -0.5, 0.5}, Case{1e17, 0.5e17, 1.5e17}}) {
    const std::vector<double> values{c.value, c.value};
    const Histogram histogram = make_histogram(std::span<const double>(values), 3);
    EXPECT_DOUBLE_EQ(histogram.edges.front(), c.least);
    EXPECT_DOUBLE_EQ(histogram.edges.back(), c.greatest);
    EXPECT_EQ(histogram.counts, (std::vector<double>{0, 2, 0})) << c.value;
    EXPECT_EQ(make_histogram(std::span<const double>(values)).counts.size(), 64U);
  }
}

TEST(MomentAt, IsNowInSecondsSince1970) {
  const LogMoment moment = moment_at(7);
  EXPECT_EQ(moment.step, 7);
  EXPECT_NEAR(moment.time, static_cast<double>(std::time(nullptr)), 60);
}

TEST(AppendNumber, GivesTheShortestTextOrAWord) {
  const auto text = [](double value) {
    std::string to = "x";
    formats::append_number(to, value, {"nan", "inf", "-inf"});
    return to;
  };
  EXPECT_EQ(text(0.1), "x0.1");
  EXPECT_EQ(text(-0.0), "x-0");
  EXPECT_EQ(text(1e-300), "x1e-300");
  EXPECT_EQ(text(kNan), "xnan");
  EXPECT_EQ(text(kInfinity), "xinf");
  EXPECT_EQ(text(-kInfinity), "x-inf");
}

TEST(AppendSeconds, WritesThreeDecimals) {
  const auto text = [](double seconds) {
    std::string to = "x";
    formats::append_seconds(to, seconds);
    return to;
  };
  EXPECT_EQ(text(0), "x0.000");
  EXPECT_EQ(text(1795545000.1236), "x1795545000.124");
  EXPECT_EQ(text(-1.5), "x-1.500");
  EXPECT_EQ(text(-std::numeric_limits<double>::max()).size(), 315U);
}

TEST(AsUtf8, ReplacesOtherBytes) {
  std::string replaced;
  EXPECT_EQ(formats::as_utf8("train/loss \xE2\x82\xAC", replaced), "train/loss \xE2\x82\xAC");
  EXPECT_EQ(replaced, "");
  EXPECT_EQ(formats::as_utf8("a\xFF\"b\xC3", replaced), "a\\xff\"b\\xc3");
}

TEST(JsonValue, WritesEachKindOfParameter) {
  EXPECT_EQ(formats::json_value({"a", true}), "true");
  EXPECT_EQ(formats::json_value({"a", std::int64_t{-3}}), "-3");
  EXPECT_EQ(formats::json_value({"a", 0.5}), "0.5");
  EXPECT_EQ(formats::json_value({"a", kInfinity}), "null");
  EXPECT_EQ(formats::json_value({"a", std::string("say \"x\"\n")}), R"("say \"x\"\n")");
  EXPECT_EQ(formats::json_string(std::string("\xFF!")), R"("\\xff!")") << "no UTF-8";
}

// Rows may differ in length, and labels may be fewer.
TEST(JsonValue, WritesATable) {
  const std::vector<std::string> labels{"a \"b\"", "\xFF"};
  const std::vector<std::vector<double>> rows{{1, 0.5, kNan}, {}, {kInfinity}};
  const LoggedTable table{.labels = labels, .rows = rows};
  EXPECT_EQ(formats::json_value(table),
            R"({"labels":["a \"b\"","\\xff"],"rows":[[1,0.5,null],[],[null]]})");
  EXPECT_EQ(formats::json_value(LoggedTable{}), R"({"labels":[],"rows":[]})");
  EXPECT_EQ(table.label(1), "\xFF");
  EXPECT_EQ(table.label(2), "2");
  EXPECT_EQ(table.width(), 3U);
  EXPECT_EQ(LoggedTable{}.width(), 0U);
}

}  // namespace
}  // namespace lockstep::testing_support
