// `lockstep train --logger`: what is logged where, and which options are rejected.
#include <algorithm>
#include <filesystem>
#include <sstream>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <tests/cli/program_run.h>
#include <tests/cli/train_command.h>
#include <tests/support/temporary_directory.h>

namespace lockstep::testing_support {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

// The runs' folders below `logs`, in order of their start.
std::vector<fs::path> run_folders(const fs::path& logs) {
  std::vector<fs::path> folders;
  for (const auto& entry : fs::directory_iterator(logs)) {
    if (entry.path().filename().string().starts_with("mnist-")) folders.push_back(entry.path());
  }
  std::ranges::sort(folders, {},
                    [](const fs::path& folder) { return fs::last_write_time(folder); });
  return folders;
}

// The steps with a logged loss.
std::vector<std::int64_t> logged_steps(const fs::path& folder) {
  std::vector<std::int64_t> steps;
  std::istringstream lines(read_text(folder / "metrics.jsonl"));
  for (std::string line; std::getline(lines, line);) {
    const auto values = nlohmann::json::parse(line);
    if (values.contains("train/loss")) steps.push_back(values["step"]);
  }
  return steps;
}

TEST_F(TrainCommand, LogsARunForEveryTool) {
  const std::string logs = in_scratch("logs");
  const auto result =
      execute({"mnist", "--nproc-per-node", "2", "--max-epochs", "2", "--batch-size", "32",
               "--seed", "7", "--logger", "csv,jsonl,tensorboard,wandb", "--log-dir", logs});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const std::vector<fs::path> runs = run_folders(logs);
  ASSERT_EQ(runs.size(), 1U);
  EXPECT_EQ(logged_steps(runs[0]), (std::vector<std::int64_t>{1, 2, 3, 4}));
  EXPECT_THAT(read_text(runs[0] / "metrics.csv"),
              HasSubstr("step,time,train/loss,train/learning_rate,epoch,train/epoch_loss"));
  const auto parameters = nlohmann::json::parse(read_text(runs[0] / "hyper_parameters.json"));
  EXPECT_EQ(parameters["recipe"], "mnist");
  EXPECT_EQ(parameters["world_size"], 2);
  EXPECT_EQ(parameters["global_batch"], 32);
  EXPECT_EQ(parameters["seed"], 7);
  EXPECT_EQ(parameters["optimizer"], "sgd");
  EXPECT_TRUE(parameters["lr"].is_number());
  EXPECT_EQ(parameters["nesterov"], false);
  EXPECT_EQ(parameters["model"], "MnistNet");
  EXPECT_THAT(parameters["command"].get<std::string>(),
              HasSubstr(" train mnist --nproc-per-node 2"));
  int others = 0;
  for (const auto& entry : fs::recursive_directory_iterator(logs)) {
    const std::string name = entry.path().filename().string();
    others += name.starts_with("events.out.tfevents.") || name.ends_with(".wandb") ? 1 : 0;
  }
  EXPECT_EQ(others, 2);
  EXPECT_THAT(result.err,
              HasSubstr("note: logger csv: " + (runs[0] / "metrics.csv").string() + "\n"));
}

TEST_F(TrainCommand, TellsOfTheModelTheTimeAndTheValues) {
  const std::string out = in_scratch("run"), json = in_scratch("report.json");
  const auto result = train({"mnist",
                             "--batch-size",
                             "16",
                             "--max-epochs",
                             "2",
                             "--schedule",
                             "one-cycle",
                             "--cycle-momentum",
                             "--model-summary",
                             "-1",
                             "--profiler",
                             "trace",
                             "--trace-steps",
                             "2",
                             "--log-histograms-every-n-steps",
                             "4",
                             "--logger",
                             "jsonl",
                             "--no-fused-kernels",
                             "--out",
                             out,
                             "--json",
                             json});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("\nconv2       Conv2d          5,020  16 x 20 x 8 x 8\n"));
  EXPECT_THAT(result.out, HasSubstr("\n21,840 trainable parameters, 0 frozen;"));
  EXPECT_THAT(result.out, HasSubstr("\naction"));
  const auto profile = nlohmann::json::parse(read_text(json)).at("profile");
  EXPECT_EQ(profile.at(0).at("action"), "data");
  EXPECT_EQ(profile.at(0).at("calls"), 8);
  const auto trace = nlohmann::json::parse(read_text(fs::path(out) / "operations.json"));
  EXPECT_FALSE(trace.at("traceEvents").empty());
  EXPECT_EQ(result.error_lines(), 0) << result.err;
  std::vector<double> momenta;
  std::vector<std::int64_t> steps_of_histograms;
  std::istringstream lines(read_text(run_folders(out).at(0) / "metrics.jsonl"));
  for (std::string line; std::getline(lines, line);) {
    const auto values = nlohmann::json::parse(line);
    if (values.contains("train/momentum")) momenta.push_back(values["train/momentum"]);
    if (values.contains("gradients/fc2.bias")) steps_of_histograms.push_back(values["step"]);
  }
  ASSERT_EQ(momenta.size(), 8U);
  EXPECT_EQ(momenta[0], 0.95);
  EXPECT_NEAR(*std::ranges::min_element(momenta), 0.85, 0.01);
  EXPECT_EQ(steps_of_histograms, (std::vector<std::int64_t>{4, 8}));
}

TEST_F(TrainCommand, LogsAResumedRunWhereItGoesOn) {
  const std::string out = in_scratch("out");
  const std::vector<std::string> words{
      "mnist", "--batch-size", "32", "--max-epochs", "2", "--out", out, "--logger", "jsonl"};
  auto first = words;
  first.insert(first.end(), {"--max-steps", "3"});
  ASSERT_EQ(train(first).exit_code, 0);
  auto second = words;
  second.push_back("--resume");
  const auto result = train(second);
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const std::vector<fs::path> runs = run_folders(out);
  ASSERT_EQ(runs.size(), 2U) << "each run has its own folder in --out";
  std::vector<std::int64_t> steps = logged_steps(runs[0]);
  for (const std::int64_t step : logged_steps(runs[1])) steps.push_back(step);
  EXPECT_EQ(steps, (std::vector<std::int64_t>{1, 2, 3, 4}));
  const auto third = train(second);
  ASSERT_EQ(third.exit_code, 0) << third.err;
  EXPECT_THAT(third.out, HasSubstr("the run is complete"));
  EXPECT_EQ(third.err, "") << "no logger is opened";
  EXPECT_EQ(run_folders(out).size(), 2U) << "a complete run has nothing to log";
}

TEST_F(TrainCommand, LogsNothingUnlessItIsAsked) {
  const std::string out = in_scratch("out");
  ASSERT_EQ(train({"mnist", "--max-steps", "1", "--out", out}).exit_code, 0);
  EXPECT_TRUE(run_folders(out).empty());
  EXPECT_FALSE(fs::exists(fs::path(out) / "wandb"));
}

// Training continues, and unsent values are kept.
TEST_F(TrainCommand, OutlivesAnMlflowServerThatIsNotThere) {
  const std::string logs = in_scratch("logs");
  const auto result = train({"mnist", "--max-steps", "2", "--logger", "mlflow", "--log-dir", logs,
                             "--mlflow-uri", "http://127.0.0.1:9"},
                            {{"no_proxy", "127.0.0.1"}});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.err, HasSubstr("warning: mlflow: no answer from http://127.0.0.1:9"));
  const std::vector<fs::path> runs = run_folders(logs);
  ASSERT_EQ(runs.size(), 1U);
  EXPECT_THAT(read_text(runs[0] / "mlflow_unsent.jsonl"), HasSubstr("\"train/loss\""));
}

TEST_F(TrainCommand, RefusesLoggersThatCannotBe) {
  struct Case {
    std::vector<std::string> words;
    std::string text;
  };
  const std::string logs = in_scratch("logs");
  const std::vector<Case> cases{
      {{"--logger", "csv,tensorbord", "--log-dir", logs},
       "train: --logger: expected one or more of csv, jsonl, tensorboard, wandb, mlflow; got "
       "'tensorbord'"},
      {{"--logger", "csv,", "--log-dir", logs}, "got ''"},
      {{"--logger", "csv,csv", "--log-dir", logs}, "train: --logger names csv twice"},
      {{"--logger", "csv"},
       "train: --logger needs a folder to write to: give --log-dir DIR or --out DIR"},
      {{"--log-dir", logs}, "train: --log-dir has no effect without --logger"},
      {{"--logger", "csv", "--log-dir", logs, "--mlflow-uri", "http://127.0.0.1:9"},
       "train: --mlflow-uri has no effect without --logger mlflow"},
      {{"--logger", "mlflow", "--log-dir", logs},
       "train: --mlflow-uri (or MLFLOW_TRACKING_URI), which --logger mlflow needs, must be the "
       "address of an MLflow server, http://HOST:PORT or https://, got ''"},
      {{"--logger", "csv", "--log-dir", "/dev/null/logs"},
       "cannot create the folder /dev/null/logs: Not a directory"}};
  for (const Case& each : cases) {
    std::vector<std::string> words{"mnist", "--max-steps", "1"};
    words.insert(words.end(), each.words.begin(), each.words.end());
    expect_one_error(train(words), 2, each.text, each.text);
  }
  EXPECT_FALSE(fs::exists(logs));
}

}  // namespace
}  // namespace lockstep::testing_support
