// The folder of an offline run that the logger for Weights & Biases writes.
#include <lockstep/report/loggers/wandb_logger.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <locale>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <tests/report/loggers/logged_samples.h>
#include <tests/support/temporary_directory.h>
#include <tests/support/wandb_records.h>

namespace lockstep::testing_support {
namespace {

namespace fs = std::filesystem;
using ::testing::MatchesRegex;

TEST(WandbLogger, JoinsTheValuesOfAStepInOneRow) {
  const TemporaryDirectory logs;
  report::WandbLogger logger(
      {.directory = logs.path(), .run = {.date_time = "20261124_183000", .id = "abc"}});
  const fs::path file = logs / "wandb/offline-run-20261124_183000-abc/run-abc.wandb";
  const auto size_after = [&](std::int64_t step, const std::string& name) {
    log(logger, step, {{name, 1}});
    return fs::file_size(file);
  };
  const std::uintmax_t begin = fs::file_size(file);
  EXPECT_EQ(size_after(1, "a"), begin) << "the row waits for more values";
  EXPECT_EQ(size_after(1, "b"), begin);
  EXPECT_GT(size_after(2, "a"), begin);
  const std::string content = read_text(file);
  const std::size_t row = content.find("_step");
  EXPECT_NE(row, std::string::npos);
  EXPECT_EQ(content.find("_step", row + 1), std::string::npos) << "one row";
}

TEST(WandbLogger, KeepsTheLastValueOfANameInAStep) {
  const TemporaryDirectory logs;
  report::WandbLogger logger(
      {.directory = logs.path(), .run = {.date_time = "20261124_183000", .id = "abc"}});
  log(logger, 1, {{"a", 0.140625}, {"b", 0.265625}, {"a", 0.390625}});
  log(logger, 1, {{"b", 0.515625}});
  logger.finish(true);
  const std::string content =
      read_text(logs / "wandb/offline-run-20261124_183000-abc/run-abc.wandb");
  for (const char* last : {"0.390625", "0.515625"}) {
    EXPECT_NE(content.find(last), std::string::npos) << last;
  }
  for (const char* first : {"0.140625", "0.265625"}) {
    EXPECT_EQ(content.find(first), std::string::npos) << first;
  }
}

TEST(WandbLogger, WritesTheHistogramsOfAStepBesideItsNumbers) {
  const TemporaryDirectory logs;
  report::WandbLogger logger(
      {.directory = logs.path(), .run = {.date_time = "20261124_183000", .id = "abc"}});
  const fs::path folder = logs / "wandb/offline-run-20261124_183000-abc";
  EXPECT_EQ(logger.place(), folder.string());
  log(logger, 1, {{"a", 0.140625}});
  for (const double count : {5.0, 9.0}) {
    logger.log_histogram({.step = 1, .time = 3}, "weights",
                         Histogram{.edges = {-1, 0, 1}, .counts = {7, count}});
  }
  logger.log_histogram({.step = 2, .time = 4}, "later", Histogram{.edges = {0, 1}, .counts = {3}});
  logger.finish(true);
  const std::vector<std::string> records = wandb_records(read_text(folder / "run-abc.wandb"));
  ASSERT_EQ(records.size(), 8U) << "header, run, two rows, summary, exit, final and footer";
  const auto has = [&](std::size_t record, const char* text) {
    return records[record].find(text) != std::string::npos;
  };
  EXPECT_TRUE(has(2, R"({"_type":"histogram","values":[7,9],"bins":[-1,0,1]})"));
  EXPECT_TRUE(has(2, "0.140625"));
  EXPECT_FALSE(has(2, "[7,5]")) << "the last one of a name counts";
  EXPECT_TRUE(has(3, R"({"_type":"histogram","values":[3],"bins":[0,1]})"));
  EXPECT_FALSE(has(3, "weights") || has(3, "0.140625")) << "they belong to the step before";
  EXPECT_TRUE(has(4, "0.140625"));
  EXPECT_FALSE(has(4, "histogram"));
}

TEST(WandbLogger, HasNoRowAndNoSummaryOfNothing) {
  const TemporaryDirectory logs;
  report::WandbLogger logger(
      {.directory = logs.path(), .run = {.date_time = "20261124_183000", .id = "abc"}});
  logger.finish(true);
  const std::string file = (logs / "wandb/offline-run-20261124_183000-abc/run-abc.wandb").string();
  EXPECT_EQ(wandb_records(read_text(file)).size(), 5U) << "header, run, exit, final and footer";
}

TEST(WandbLogger, KeepsTheHarmlessCharactersOfAName) {
  const TemporaryDirectory logs;
  report::WandbLogger logger(
      {.directory = logs.path(), .run = {.date_time = "20261124_183000", .id = "abc"}});
  const std::vector<std::uint8_t> pixels(12, 9);
  logger.log_image({.step = 7, .time = 2}, "Az09_-/b.c", {.rgb = pixels, .width = 2, .height = 2});
  logger.finish(true);
  const fs::path folder = logs / "wandb/offline-run-20261124_183000-abc/files/media/images/Az09_-";
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(folder)) {
    names.push_back(entry.path().filename().string());
  }
  ASSERT_THAT(names, ::testing::ElementsAre(MatchesRegex("b_c_7_[0-9a-f]+\\.png")));
  const std::vector<std::string> records =
      wandb_records(read_text(logs / "wandb/offline-run-20261124_183000-abc/run-abc.wandb"));
  ASSERT_GE(records.size(), 4U) << "header, run, the list of files, and the row";
  EXPECT_TRUE(records[2].ends_with("media/images/Az09_-/" + names[0])) << "to be uploaded";
  EXPECT_NE(records[3].find("\"_type\":\"image-file\""), std::string::npos);
}

// A program may set a locale that groups digits, which JSON does not allow.
TEST(WandbLogger, DescribesImagesInEveryLocale) {
  struct Grouping : std::numpunct<char> {
    char do_thousands_sep() const override { return '.'; }
    std::string do_grouping() const override { return "\1"; }
  };
  const TemporaryDirectory logs;
  const std::vector<std::uint8_t> pixels(3 * 12 * 10, 9);
  const std::locale before = std::locale::global(std::locale(std::locale::classic(), new Grouping));
  report::WandbLogger logger(
      {.directory = logs.path(), .run = {.date_time = "20261124_183000", .id = "abc"}});
  logger.log_image({.step = 12, .time = 2}, "x", {.rgb = pixels, .width = 12, .height = 10});
  logger.finish(true);
  std::locale::global(before);
  const std::string content =
      read_text(logs / "wandb/offline-run-20261124_183000-abc/run-abc.wandb");
  const std::size_t begin = content.find("{\"_type\":\"image-file\"");
  ASSERT_NE(begin, std::string::npos);
  const auto image =
      nlohmann::json::parse(content.substr(begin, content.find('}', begin) + 1 - begin));
  EXPECT_EQ(image["width"], 12);
  EXPECT_EQ(image["height"], 10);
  EXPECT_THAT(image["path"].get<std::string>(), MatchesRegex("media/images/x_12_[0-9a-f]+\\.png"));
  EXPECT_EQ(image["size"], fs::file_size(logs / ("wandb/offline-run-20261124_183000-abc/files/" +
                                                 image["path"].get<std::string>())));
}

TEST(WandbLogger, KeepsATableInAFileAndTheLastOneInTheSummary) {
  const TemporaryDirectory logs;
  report::WandbLogger logger(
      {.directory = logs.path(), .run = {.date_time = "20261124_183000", .id = "abc"}});
  log_table(logger, 3, {});
  log_table(logger, 4, AwkwardTable().table);
  logger.finish(true);
  const std::string folder = "wandb/offline-run-20261124_183000-abc/";
  const std::string content = read_text(logs / (folder + "run-abc.wandb"));
  std::vector<nlohmann::json> records;
  for (std::size_t at = 0;
       (at = content.find("{\"_type\":\"table-file\"", at)) != std::string::npos; ++at) {
    records.push_back(nlohmann::json::parse(content.substr(at, content.find('}', at) + 1 - at)));
  }
  ASSERT_EQ(records.size(), 3U) << "two rows and the summary";
  EXPECT_EQ(records[2], records[1]);
  const nlohmann::json& record = records[1];
  EXPECT_EQ(record["ncols"], 4);
  EXPECT_EQ(record["nrows"], 3);
  const std::string path = record["path"];
  EXPECT_THAT(path, MatchesRegex("media/table/test/confusion_4_[0-9a-f]+\\.table\\.json"));
  const std::string file = read_text(logs / (folder + "files/" + path));
  EXPECT_EQ(record["size"], file.size());
  EXPECT_TRUE(path.find(record["sha256"].get<std::string>().substr(0, 20)) != std::string::npos);
  EXPECT_EQ(nlohmann::json::parse(file), nlohmann::json::parse(R"({
      "columns": ["test/confusion", "cat", "a|b, \"<i>\"", "2"],
      "data": [["cat", 7, 0.5, null], ["a|b, \"<i>\"", null, 100000.0, -2], ["2", null, null, null]]})"));
}

TEST(WandbLogger, GivesAnImageOfSlashesAName) {
  const TemporaryDirectory logs;
  report::WandbLogger logger(
      {.directory = logs.path(), .run = {.date_time = "20261124_183000", .id = "abc"}});
  const std::vector<std::uint8_t> pixels(12, 9);
  logger.log_image({.step = 1, .time = 2}, "//", {.rgb = pixels, .width = 2, .height = 2});
  logger.finish(true);
  const fs::path images = logs / "wandb/offline-run-20261124_183000-abc/files/media/images";
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(images)) {
    names.push_back(entry.path().filename().string());
  }
  EXPECT_THAT(names, ::testing::ElementsAre(MatchesRegex("unnamed_1_[0-9a-f]+\\.png")));
}

TEST(WandbLogger, KeepsImagesInsideOfItsFolder) {
  const TemporaryDirectory logs;
  report::WandbLogger logger(
      {.directory = logs.path(), .run = {.date_time = "20261124_183000", .id = "abc"}});
  const std::vector<std::uint8_t> pixels(12, 9);
  logger.log_image({.step = 1, .time = 2}, "/../../x y", {.rgb = pixels, .width = 2, .height = 2});
  logger.finish(true);
  std::vector<std::string> files;
  for (const auto& entry : fs::recursive_directory_iterator(logs.path())) {
    if (entry.is_regular_file()) files.push_back(fs::relative(entry.path(), logs.path()).string());
  }
  std::ranges::sort(files);
  ASSERT_EQ(files.size(), 2U);
  EXPECT_THAT(files[0], MatchesRegex("wandb/offline-run-20261124_183000-abc/files/media/images/"
                                     "__/__/x_y_1_[0-9a-f]+\\.png"));
}

TEST(WandbLogger, SaysWhetherTheRunSucceeded) {
  for (const bool success : {false, true}) {
    const TemporaryDirectory logs;
    report::WandbLogger logger(
        {.directory = logs.path(), .run = {.date_time = "20261124_183000", .id = "abc"}});
    log(logger, 1, {{"a", 1}});
    logger.finish(success);
    const std::vector<std::string> records =
        wandb_records(read_text(logs / "wandb/offline-run-20261124_183000-abc/run-abc.wandb"));
    ASSERT_EQ(records.size(), 7U) << "header, run, row, summary, exit, final and footer";
    const std::string code = {'\x92', '\x01', '\x04', '\x08', success ? '\0' : '\1', '\x10'};
    EXPECT_NE(records[4].find(code), std::string::npos) << "exit { code, runtime }";
  }
}

// The summary has the last value of every name, also of those that later steps do not have.
TEST(WandbLogger, SummarizesTheLastValuesAtTheEndOfAnEpoch) {
  const TemporaryDirectory logs;
  report::WandbLogger logger(
      {.directory = logs.path(), .run = {.date_time = "20261124_183000", .id = "abc"}});
  const std::string file = (logs / "wandb/offline-run-20261124_183000-abc/run-abc.wandb").string();
  const std::size_t begin = wandb_records(read_text(file)).size();
  logger.flush();
  EXPECT_EQ(wandb_records(read_text(file)).size(), begin) << "there is nothing to summarize";
  log(logger, 1, {{"a", 0.140625}, {"b", 0.265625}});
  log(logger, 2, {{"a", 0.390625}});
  logger.flush();
  const std::string summary = wandb_records(read_text(file)).back();
  EXPECT_NE(summary.find("0.390625"), std::string::npos);
  EXPECT_NE(summary.find("0.265625"), std::string::npos);
  EXPECT_EQ(summary.find("0.140625"), std::string::npos);
}

}  // namespace
}  // namespace lockstep::testing_support
