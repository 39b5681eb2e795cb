#include <lockstep/trace/chrome_trace.h>

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include <lockstep/core/error.h>
#include <lockstep/core/file.h>
#include <tests/support/temporary_directory.h>

namespace lockstep {
namespace {

using nlohmann::json;
using std::chrono::microseconds;

TEST(ChromeTrace, HoldsTheSpansOfAllRanks) {
  const testing_support::TemporaryDirectory folder;
  const auto path = folder.path() / "trace.json";
  const Clock::time_point start{};
  const std::vector<Span> spans = {
      {"backward", "compute", start + microseconds(5), start + microseconds(9), "main", {{"bytes", "12"}}},
      {"say \"hi\"\n", "communication", start + microseconds(6), start + microseconds(7), "bucket 0"},
      {"forward", "compute", start + microseconds(1), start + microseconds(2), "main"}};
  write_chrome_trace(path, {chrome_events(0, spans), chrome_events(1, {spans[0]})});

  const MappedFile file(path);
  const auto trace = json::parse(std::string(reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size()));
  std::vector<json> complete;
  std::map<std::pair<int, int>, std::string> tracks;
  for (const auto& event : trace.at("traceEvents")) {
    if (event.at("ph") == "X") complete.push_back(event);
    if (event.at("name") == "thread_name") {
      tracks[{event.at("pid"), event.at("tid")}] = event.at("args").at("name");
    }
  }
  ASSERT_EQ(complete.size(), 4U);
  EXPECT_EQ(complete[0].at("name"), "backward");
  EXPECT_EQ(complete[0].at("ts"), 5.0);
  EXPECT_EQ(complete[0].at("dur"), 4.0);
  EXPECT_EQ(complete[0].at("args").at("bytes"), "12");
  EXPECT_EQ(complete[1].at("name"), "say \"hi\"\n");
  EXPECT_EQ(complete[2].at("tid"), complete[0].at("tid"));  // one row for one name
  EXPECT_EQ(complete[3].at("pid"), 1);
  const std::map<std::pair<int, int>, std::string> expected = {
      {{0, 0}, "main"}, {{0, 1}, "bucket 0"}, {{1, 0}, "main"}};
  EXPECT_EQ(tracks, expected);
}

TEST(ChromeTrace, SaysWhereItCannotWrite) {
  EXPECT_THROW(write_chrome_trace("/dev/null/trace.json", {chrome_events(0, {})}), Error);
}

}  // namespace
}  // namespace lockstep
