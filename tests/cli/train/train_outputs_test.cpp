// Where `lockstep train` writes: its folder, and what loggers take from options and environment.
#include <lockstep/cli/train/train_outputs.h>

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <variant>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <lockstep/cli/flag_names.h>
#include <lockstep/cli/train/train_loggers.h>
#include <lockstep/core/error.h>
#include <tests/support/messages.h>
#include <tests/support/scoped_environment.h>
#include <tests/support/temporary_directory.h>

namespace lockstep::cli {
namespace {

class TrainOutputs : public ::testing::Test {
 protected:
  TrainOutputs() {
    for (const char* name :
         {"RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT",
          "SLURM_PROCID", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "WANDB_PROJECT",
          "MLFLOW_TRACKING_URI", "MLFLOW_EXPERIMENT_NAME", "MLFLOW_TRACKING_USERNAME",
          "MLFLOW_TRACKING_PASSWORD", "MLFLOW_TRACKING_TOKEN"}) {
      environment_.set(name, std::nullopt);
    }
    arguments_.recipe = "mnist";
  }
  std::string refusal() const {
    return testing_support::message_of<ConfigError>([&] { resolve(arguments_); });
  }
  std::string in_folder(const std::string& name) const { return (folder_ / name).string(); }

  testing_support::TemporaryDirectory folder_;
  testing_support::ScopedEnvironment environment_;
  TrainArguments arguments_;
};

TEST_F(TrainOutputs, AreNoneByDefault) {
  const TrainSettings settings = resolve(arguments_);
  EXPECT_TRUE(settings.out.empty());
  EXPECT_TRUE(settings.json.empty());
  EXPECT_FALSE(settings.out_lock);
  EXPECT_FALSE(settings.resumes);
  EXPECT_FALSE(settings.trainer.resume);
  EXPECT_TRUE(settings.loggers.empty());
  EXPECT_TRUE(settings.trainer.trace.file.empty());
}

TEST_F(TrainOutputs, HaveDefaultsOfLoggers) {
  arguments_.logger = "csv,wandb";
  arguments_.out = in_folder("run");
  const TrainSettings settings = resolve(arguments_);
  EXPECT_THAT(settings.loggers, testing::ElementsAre("csv", "wandb"));
  const LoggerSetup usual;
  EXPECT_EQ(settings.logger_setup.run_name, "mnist");
  EXPECT_EQ(settings.logger_setup.directory, folder_ / "run") << "that of the run";
  EXPECT_EQ(settings.logger_setup.project, "lockstep");
  EXPECT_EQ(settings.logger_setup.mlflow.experiment, usual.mlflow.experiment);
  EXPECT_EQ(settings.logger_setup.mlflow.tracking_uri, "");
  EXPECT_EQ(settings.logger_setup.mlflow.credentials.username, "");
}

// Every variable has a value of its own, so that none can take the place of another.
TEST_F(TrainOutputs, TakeWhatTheEnvironmentSaysOfLoggers) {
  environment_.set("WANDB_PROJECT", "digits");
  environment_.set("MLFLOW_TRACKING_URI", "http://127.0.0.1:9");
  environment_.set("MLFLOW_EXPERIMENT_NAME", "trials");
  environment_.set("MLFLOW_TRACKING_USERNAME", "ada");
  environment_.set("MLFLOW_TRACKING_PASSWORD", "secret");
  environment_.set("MLFLOW_TRACKING_TOKEN", "t0ken");
  arguments_.logger = "mlflow,wandb";
  arguments_.out = in_folder("run");
  arguments_.log_dir = in_folder("logs");
  const LoggerSetup setup = resolve(arguments_).logger_setup;
  EXPECT_EQ(setup.directory, folder_ / "logs") << "wins over that of the run";
  EXPECT_TRUE(std::filesystem::is_directory(folder_ / "logs"));
  EXPECT_EQ(setup.project, "digits");
  EXPECT_EQ(setup.mlflow.tracking_uri, "http://127.0.0.1:9");
  EXPECT_EQ(setup.mlflow.experiment, "trials");
  EXPECT_EQ(setup.mlflow.credentials.username, "ada");
  EXPECT_EQ(setup.mlflow.credentials.password, "secret");
  EXPECT_EQ(setup.mlflow.credentials.token, "t0ken");
  arguments_.mlflow_uri = "https://host";
  EXPECT_EQ(resolve(arguments_).logger_setup.mlflow.tracking_uri, "https://host")
      << "the option wins over the variable";
  arguments_.mlflow_uri.reset();
  environment_.set("MLFLOW_TRACKING_URI", "");
  EXPECT_THAT(refusal(), testing::HasSubstr("must be the address of an MLflow server")) << "empty";
}

// Numbers and flags are logged as such, and clipping only if there is any.
TEST_F(TrainOutputs, TellLoggersOfTheSettings) {
  const auto logged = [&] {
    std::map<std::string, HyperParameter> by_name;
    for (const HyperParameter& each : logged_settings(resolve(arguments_))) {
      by_name.emplace(each.name, each);
    }
    return by_name;
  };
  arguments_.seed = 24;
  arguments_.optimizer.lr = 0.25;
  arguments_.optimizer.nesterov = true;
  arguments_.max_epochs = 6;
  auto usual = logged();
  EXPECT_EQ(std::get<std::int64_t>(usual.at("seed").value), 24);
  EXPECT_EQ(std::get<double>(usual.at("lr").value), 0.25);
  EXPECT_EQ(std::get<bool>(usual.at("nesterov").value), true);
  EXPECT_EQ(std::get<std::string>(usual.at("optimizer").value), "sgd");
  EXPECT_EQ(std::get<std::string>(usual.at("schedule").value), "cosine to 0 over 6 epochs");
  EXPECT_NE(std::get<std::string>(usual.at("command").value), "");
  EXPECT_FALSE(usual.contains("gradient_clip_norm") || usual.contains("gradient_clip_value"));
  arguments_.optimizer.nesterov = false;
  arguments_.limits.gradient_clip_norm = 1.5;
  auto clipped = logged();
  EXPECT_EQ(std::get<bool>(clipped.at("nesterov").value), false);
  EXPECT_EQ(std::get<double>(clipped.at("gradient_clip_norm").value), 1.5);
  EXPECT_FALSE(clipped.contains("gradient_clip_value"));
  arguments_.limits.gradient_clip_norm.reset();
  arguments_.limits.gradient_clip_val = 2.5;
  arguments_.limits.gradient_clip_algorithm = "value";
  clipped = logged();
  EXPECT_EQ(std::get<double>(clipped.at("gradient_clip_value").value), 2.5);
  EXPECT_FALSE(clipped.contains("gradient_clip_norm"));
}

TEST_F(TrainOutputs, AreLockedWhileTheSettingsLive) {
  arguments_.out = in_folder("run");
  arguments_.json = in_folder("report.json");
  {
    const TrainSettings settings = resolve(arguments_);
    EXPECT_EQ(settings.json, folder_ / "report.json");
    ASSERT_TRUE(settings.out_lock);
    EXPECT_THAT(refusal(), testing::StartsWith("train: --out " + in_folder("run") + " is in use"));
    arguments_.overwrite = true;
    EXPECT_THAT(refusal(), testing::HasSubstr(" is in use by process "));
    arguments_.out = in_folder("other");
    EXPECT_EQ(refusal(), "nothing was thrown") << "a folder of its own";
    arguments_.out = in_folder("run");
  }
  EXPECT_EQ(refusal(), "nothing was thrown") << "the first run has ended";
  EXPECT_EQ(refusal(), "nothing was thrown") << "a refusal or a run leaves no lock";
}

TEST_F(TrainOutputs, HaveATimeForTheLastCheckpoint) {
  EXPECT_EQ(resolve(arguments_).shutdown_timeout, std::chrono::seconds(60));
  EXPECT_FALSE(resolve(arguments_).saves());
  arguments_.shutdown_timeout_seconds = 1.5;
  EXPECT_EQ(refusal(), "train: --shutdown-timeout needs --out DIR, where an interrupted run saves");
  arguments_.out = in_folder("run");
  EXPECT_EQ(resolve(arguments_).shutdown_timeout, std::chrono::milliseconds(1500));
  EXPECT_TRUE(resolve(arguments_).saves());
  arguments_.limits.fast_dev_run = 1;
  EXPECT_FALSE(resolve(arguments_).saves()) << "a trial keeps nothing";
  EXPECT_EQ(resolve(arguments_).trainer.fast_dev_run, 1);
}

// What the user wrote may have been meant for another option.
TEST_F(TrainOutputs, RefuseAValueOfResume) {
  arguments_.out = in_folder("run");
  for (const std::string text : {"", "yes", "false", "Auto", "run"}) {
    arguments_.resume = text;
    EXPECT_EQ(refusal(), "train: --resume takes no value or the value auto, got '" + text +
                             "'; the folder of the run is the value of --out");
  }
  EXPECT_FALSE(std::filesystem::exists(folder_ / "run"));
}

// Whoever holds the lock knows that no other process trains here.
TEST_F(TrainOutputs, CloseTheRecordOfARunThatWasKilled) {
  folder_.write("run/run.json", R"({"state": "running"})");
  arguments_.out = in_folder("run");
  resolve(arguments_);
  const auto record = testing_support::read_text(folder_ / "run/run.json");
  EXPECT_THAT(record, testing::HasSubstr(R"("state": "interrupted")"));
  EXPECT_THAT(record, testing::HasSubstr(
                          "the process was killed before it could record the end of the run"));
}

TEST_F(TrainOutputs, KeepACheckpointUnlessToldOtherwise) {
  arguments_.out = in_folder("run");
  arguments_.resume = kResumeFlag;
  EXPECT_EQ(
      testing_support::message_of<CheckpointError>([&] { resolve(arguments_); }),
      "there is no checkpoint in " + in_folder("run/checkpoints") +
          " to resume from; to start a new run, remove TrainerOptions::resume or set it to auto");
  EXPECT_FALSE(std::filesystem::exists(folder_ / "run")) << "nothing is made for nothing";
  arguments_.resume = "auto";
  EXPECT_FALSE(resolve(arguments_).resumes);
  EXPECT_EQ(resolve(arguments_).trainer.resume.mode(), Resume::kAuto);
  folder_.write("run/checkpoint.safetensors", "a checkpoint");
  EXPECT_TRUE(resolve(arguments_).resumes);
  arguments_.resume = kResumeFlag;
  EXPECT_TRUE(resolve(arguments_).resumes);
  EXPECT_EQ(resolve(arguments_).trainer.resume.mode(), Resume::kYes);
  arguments_.resume.reset();
  EXPECT_EQ(with_flags(refusal()), in_folder("run/checkpoints") +
                                       " already holds a checkpoint; set --resume to continue that "
                                       "run, --overwrite to replace it, or another --out");
  arguments_.overwrite = true;
  EXPECT_FALSE(resolve(arguments_).resumes);
  EXPECT_TRUE(resolve(arguments_).trainer.overwrite);
  EXPECT_EQ(testing_support::read_text(folder_ / "run/checkpoint.safetensors"), "a checkpoint")
      << "until the run writes its own";
}

// Other ranks of a launcher create no folder and need none.
TEST_F(TrainOutputs, BelongToTheFirstRankOnly) {
  environment_.set("WORLD_SIZE", "2");
  environment_.set("LOCAL_WORLD_SIZE", "2");
  environment_.set("MASTER_ADDR", "127.0.0.1");
  environment_.set("MASTER_PORT", "29500");
  arguments_.out = in_folder("run");
  arguments_.logger = "csv";
  arguments_.log_dir = in_folder("logs");
  arguments_.json = in_folder("new/report.json");
  arguments_.resume = "auto";
  for (const char* rank : {"1", "0"}) {
    environment_.set("RANK", rank);
    environment_.set("LOCAL_RANK", rank);
    const bool is_first = std::string(rank) == "0";
    const TrainSettings settings = resolve(arguments_);
    EXPECT_EQ(settings.speaks(), is_first);
    EXPECT_EQ(settings.out_lock != nullptr, is_first);
    for (const char* name : {"run", "logs", "new"}) {
      EXPECT_EQ(std::filesystem::exists(folder_ / name), is_first) << name << ", rank " << rank;
    }
    EXPECT_FALSE(settings.resumes) << "there is no checkpoint";
  }
  folder_.write("run/checkpoint.safetensors", "a checkpoint");
  const auto resumes_on = [&](const char* rank, const char* resume) {
    environment_.set("RANK", rank);
    environment_.set("LOCAL_RANK", rank);
    arguments_.resume = resume;
    return resolve(arguments_).resumes;
  };
  EXPECT_TRUE(resumes_on("0", "auto"));
  EXPECT_FALSE(resumes_on("1", "auto")) << "only the first rank has looked";
  EXPECT_TRUE(resumes_on("0", kResumeFlag));
  EXPECT_TRUE(resumes_on("1", kResumeFlag)) << "as it is told";
}

}  // namespace
}  // namespace lockstep::cli
