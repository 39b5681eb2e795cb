// Runs of a Trainer with loggers: the contents of their files after a run and after a failure.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <filesystem>
#include <memory>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include <lockstep/core/error.h>
#include <lockstep/report/loggers/logger_table.h>
#include <lockstep/report/loggers/logging_listener.h>
#include <lockstep/train/task/standard_metrics.h>
#include <tests/support/temporary_directory.h>
#include <tests/support/wandb_records.h>
#include <tests/train/trainer/trainer_runs.h>

namespace lockstep::testing_support {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

std::unique_ptr<LoggingListener> file_loggers(const fs::path& directory) {
  return std::make_unique<LoggingListener>(
      make_loggers({"wandb", "jsonl"}, {.directory = directory, .run_name = "digits"}));
}

// The contents of the only file below `directory` whose name ends with `ending`.
std::string only_file(const fs::path& directory, const std::string& ending) {
  std::vector<fs::path> found;
  for (const auto& entry : fs::recursive_directory_iterator(directory)) {
    if (entry.path().string().ends_with(ending)) found.push_back(entry.path());
  }
  EXPECT_EQ(found.size(), 1U) << ending;
  return found.empty() ? "" : read_text(found[0]);
}

std::vector<nlohmann::json> json_lines(const fs::path& directory) {
  std::vector<nlohmann::json> lines;
  std::istringstream text(only_file(directory, "metrics.jsonl"));
  for (std::string line; std::getline(text, line);) lines.push_back(nlohmann::json::parse(line));
  return lines;
}

// The file must end with the records exit, final and footer. Returns the exit code, which is below
// 128.
int exit_code_of(const fs::path& directory) {
  const std::vector<std::string> records = wandb_records(only_file(directory, ".wandb"));
  if (records.size() < 3) return -1;
  const auto behind_number = [&](std::size_t from_end) {
    return records[records.size() - from_end].substr(2);
  };
  EXPECT_EQ(behind_number(1), std::string("\xB2\x01\x00", 3)) << "footer";
  EXPECT_EQ(behind_number(2), std::string("\xA2\x01\x00", 3)) << "final";
  const std::string exit = behind_number(3);
  EXPECT_EQ(exit.substr(0, 4), "\x92\x01\x04\x08") << "exit { exit_code, runtime }";
  return exit.size() < 5 ? -1 : exit[4];
}

TEST(TrainerLoggers, SayThatARunThrewInStepThree) {
  const TemporaryDirectory logs;
  train::CountingListener failing;
  failing.steps_until_failure = 2;
  TrainerOptions one = train::options(1);
  one.listeners = {file_loggers(logs.path()), &failing};
  EXPECT_THROW(train::train(one), Error);
  EXPECT_EQ(exit_code_of(logs.path()), 1);
  const std::vector<nlohmann::json> lines = json_lines(logs.path());
  ASSERT_EQ(lines.size(), 3U) << "a line for each step that was reported, and no end";
  EXPECT_EQ(lines.back()["step"], 3);
  EXPECT_TRUE(lines.back().contains("train/loss"));
}

TEST(TrainerLoggers, SayThatARunNeverBegan) {
  const TemporaryDirectory logs;
  TrainerOptions one = train::options(1);
  one.listeners = {file_loggers(logs.path())};
  const ProcessGroup group = train::group_of_one();
  Loader loader = train::train_loader(group);
  ClassificationTask task(MnistNet(), ClassificationLoss::kNegativeLogLikelihood);
  Trainer trainer(one, make_strategy("single", group));
  EXPECT_THROW(trainer.fit(task, loader,
                           []() -> std::unique_ptr<Loader> { throw DataError("no test images"); }),
               DataError);
  EXPECT_EQ(exit_code_of(logs.path()), 1);
  EXPECT_TRUE(json_lines(logs.path()).empty());
}

// The loss fails in the third step of every rank, as with bad data that all of them read.
class FailingTask final : public ClassificationTask {
 public:
  using ClassificationTask::ClassificationTask;
  torch::Tensor loss(const torch::Tensor& output, const torch::Tensor& labels) const override {
    if (++steps_ == 3) throw Error("the loss failed");
    return ClassificationTask::loss(output, labels);
  }

 private:
  mutable std::atomic<int> steps_{0};
};

TEST(TrainerLoggers, AreToldNothingOnOtherRanks) {
  const TemporaryDirectory logs;
  const auto folder_of = [&](int rank) { return logs.path() / std::to_string(rank); };
  const auto errors = run_group(2, "shm", [&](ProcessGroup group) {
    at::set_num_threads(1);
    TrainerOptions one = train::options(1);
    one.listeners = {file_loggers(folder_of(group.rank()))};
    Loader loader = train::train_loader(group);
    FailingTask task(MnistNet(), ClassificationLoss::kNegativeLogLikelihood);
    Trainer trainer(one, make_strategy("ddp", group));
    trainer.fit(task, loader, [&] { return train::test_loader(group); });
  });
  for (const std::string& error : errors) EXPECT_THAT(error, HasSubstr("the loss failed"));
  EXPECT_EQ(exit_code_of(folder_of(0)), 1);
  EXPECT_EQ(wandb_records(only_file(folder_of(1), ".wandb")).size(), 2U) << "header and run";
  EXPECT_TRUE(json_lines(folder_of(1)).empty());
}

TEST(TrainerLoggers, GetTheTablesOfAnEvaluation) {
  const TemporaryDirectory logs;
  TrainerOptions one = train::options(1);
  one.listeners = {file_loggers(logs.path())};
  const ProcessGroup group = train::group_of_one();
  Loader loader = train::train_loader(group);
  ClassificationTask task(MnistNet(), ClassificationLoss::kNegativeLogLikelihood);
  task.add_metric(std::make_shared<ConfusionMatrix>(10));
  Trainer trainer(one, make_strategy("single", group));
  const RunReport report = trainer.fit(task, loader, [&] { return train::test_loader(group); });
  EXPECT_EQ(exit_code_of(logs.path()), 0);
  ASSERT_TRUE(report.test);
  ASSERT_EQ(report.test->tables.size(), 1U);
  int tables = 0;
  for (const nlohmann::json& line : json_lines(logs.path())) {
    const auto table = line.find("validation/confusion");
    if (table == line.end()) continue;
    ++tables;
    EXPECT_EQ(line["step"], 6);
    EXPECT_EQ((*table)["rows"].get<std::vector<std::vector<double>>>(),
              report.test->tables[0].rows);
  }
  EXPECT_EQ(tables, 1);
  const auto file = nlohmann::json::parse(only_file(logs.path(), ".table.json"));
  EXPECT_EQ(file["columns"].size(), 11U);
  EXPECT_EQ(file["data"].size(), 10U);
}

}  // namespace
}  // namespace lockstep::testing_support
