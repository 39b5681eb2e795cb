#include <lockstep/report/profile_table.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include <lockstep/report/json_report.h>
#include <tests/report/sample_run.h>

namespace lockstep::report {
namespace {

std::vector<ProfiledAction> sample_profile() {
  return {{.name = "data", .calls = 4690, .seconds = 0.0469},
          {.name = "backward", .calls = 4690, .seconds = 9.85},
          {.name = "checkpoint", .calls = 0, .seconds = 0},
          {.name = "other", .calls = 1, .seconds = 2.5}};
}

TEST(ProfileTable, BeginsWithWhatTookLongest) {
  EXPECT_EQ(table_text(sample_profile()),
            "action             calls       mean       total   share\n"
            "backward           4,690     2.1 ms      9.85 s   79.5%\n"
            "other                  1     2.50 s      2.50 s   20.2%\n"
            "data               4,690      10 us      0.05 s    0.4%\n"
            "checkpoint             0       0 us      0.00 s    0.0%\n");
}

TEST(ProfileTable, ShowsMeansInTheUnitThatFits) {
  struct Case {
    double seconds;
    const char* mean;
  };
  const Case cases[] = {{0.000999, "999 us"}, {0.0009996, "1.0 ms"}, {0.0012, "1.2 ms"},
                        {0.9994, "999.4 ms"}, {0.9996, "1.00 s"},    {12, "12.0 s"}};
  for (const Case& each : cases) {
    const ProfiledAction action{.name = "data", .calls = 2, .seconds = 2 * each.seconds};
    const std::string line = table_text(std::vector{action});
    EXPECT_THAT(line, testing::HasSubstr("        2  " +
                                         std::string(9 - std::string(each.mean).size(), ' ') +
                                         each.mean + "  "));
  }
}

TEST(ProfileTable, IsShownWhereThereIsAProfile) {
  RunReport report = testing_support::sample_report(1);
  std::ostringstream out;
  ProfileTable(out).on_run_end(report);
  EXPECT_EQ(out.str(), "");
  EXPECT_FALSE(nlohmann::json::parse(to_json(report)).contains("profile"));
  report.profile = sample_profile();
  ProfileTable(out).on_run_end(report);
  EXPECT_EQ(out.str(), "\n" + table_text(sample_profile()));
  const auto json = nlohmann::json::parse(to_json(report));
  EXPECT_EQ(json["profile"].size(), 4U);
  EXPECT_EQ(json["profile"][1]["action"], "backward");
  EXPECT_EQ(json["profile"][1]["calls"], 4690);
  EXPECT_EQ(json["profile"][1]["seconds"], 9.85);
}

}  // namespace
}  // namespace lockstep::report
