#include <lockstep/report/run_record.h>

#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <lockstep/core/cpu.h>
#include <lockstep/core/error.h>
#include <lockstep/core/file.h>
#include <tests/report/sample_run.h>
#include <tests/support/captured_log.h>
#include <tests/support/temporary_directory.h>

namespace lockstep::testing_support {
namespace {

using nlohmann::json;

class RunRecordTest : public ::testing::Test {
 protected:
  json written() const { return json::parse(read_text(folder_ / "run.json")); }
  RunRecord record() const {
    return RunRecord(folder_.path(),
                     {.versions = {{"lockstep", "0.1"}}, .command = "lockstep train mnist"});
  }
  static RunInfo resumed_info() {
    RunInfo info = sample_info();
    info.resumed_from = "checkpoints/step-00000469";
    return info;
  }

  TemporaryDirectory folder_;
};

TEST_F(RunRecordTest, IsThereFromTheBeginningOn) {
  RunRecord run = record();
  run.on_run_begin(sample_info());
  json now = written();
  EXPECT_EQ(now["state"], "running");
  EXPECT_EQ(now["recipe"], "mnist");
  EXPECT_EQ(now["versions"]["lockstep"], "0.1");
  EXPECT_EQ(now["command"], "lockstep train mnist");
  EXPECT_THAT(now["started"].get<std::string>(), ::testing::MatchesRegex("20..-..-..T..:..:..Z"));
  EXPECT_TRUE(now["epochs"].empty());
  run.on_epoch_end(sample_epoch(1));
  run.on_epoch_end(sample_epoch(2));
  now = written();
  EXPECT_EQ(now["state"], "running");
  EXPECT_EQ(now["epochs"].size(), 2U);
  run.on_run_end(sample_report(2));
  now = written();
  EXPECT_EQ(now["state"], "complete");
  EXPECT_EQ(now["epochs"].size(), 2U);
  EXPECT_EQ(now["seconds_total"], 24.06);
  EXPECT_FALSE(now.contains("error"));
}

// The advice about a run divides its host's processors among these ranks.
TEST_F(RunRecordTest, KnowsItsShareOfTheHost) {
  RunRecord run(folder_.path(), {.local_ranks = 3, .processors = 7});
  run.on_run_begin(sample_info());
  EXPECT_EQ(written()["local_ranks"], 3);
  EXPECT_EQ(written()["usable_processors"], 7);
  EXPECT_EQ(written()["host"], host_name());
  EXPECT_EQ(written()["processor"], cpu_model_name());
}

// A program of its own need not know about hosts.
TEST_F(RunRecordTest, HasOneRankOnTheHostUnlessTold) {
  RunRecord run(folder_.path());
  run.on_run_begin(sample_info());
  const json now = written();
  EXPECT_EQ(now["local_ranks"], 1);
  EXPECT_EQ(now["usable_processors"], 0) << "not known";
  EXPECT_EQ(now["command"], "");
  EXPECT_TRUE(now["versions"].empty());
}

// Otherwise, later readers would take the old trace for this run's.
// A program of its own need not know whether it resumes a run, or make the folder.
TEST_F(RunRecordTest, FollowsTheRun) {
  const std::filesystem::path folder = folder_ / "runs/first";
  const auto epochs = [&] { return json::parse(read_text(folder / "run.json"))["epochs"].size(); };
  RunRecord first(folder, {.local_ranks = 0});
  first.on_run_begin(sample_info());
  first.on_epoch_end(sample_epoch(1));
  EXPECT_EQ(epochs(), 1U);
  EXPECT_TRUE(json::parse(read_text(folder / "run.json"))["local_ranks"].is_null());
  RunInfo resumed = resumed_info();
  resumed.first_epoch = 2;
  RunRecord(folder).on_run_begin(resumed);
  EXPECT_EQ(epochs(), 1U) << "the run goes on";
  RunRecord(folder).on_run_begin(sample_info());
  EXPECT_EQ(epochs(), 0U) << "a new run";
}

TEST_F(RunRecordTest, RemovesTheTraceOfAnEarlierRun) {
  folder_.write("trace.json", "{}");
  record().on_run_begin(resumed_info());
  EXPECT_TRUE(std::filesystem::exists(folder_ / "trace.json"));
  record().on_run_begin(sample_info());
  EXPECT_FALSE(std::filesystem::exists(folder_ / "trace.json"));
}

TEST_F(RunRecordTest, SaysWhyARunFailed) {
  RunRecord run = record();
  run.on_exception(Error("too early"));  // before anything has begun
  EXPECT_FALSE(std::filesystem::exists(folder_ / "run.json"));
  run.on_run_begin(sample_info());
  run.on_epoch_end(sample_epoch(1));
  run.on_exception(Error("rank 1 died\nbacktrace"));
  EXPECT_EQ(written()["state"], "failed");
  EXPECT_EQ(written()["error"], "rank 1 died");
  EXPECT_EQ(written()["epochs"].size(), 1U);
}

TEST_F(RunRecordTest, TellsAnInterruptedRunFromACompleteOne) {
  RunRecord run = record();
  run.on_run_begin(sample_info());
  RunReport report = sample_report(1);
  report.interrupted = true;
  report.saved_in = "run/checkpoints/step-00000003";
  run.on_run_end(report);
  EXPECT_EQ(written()["state"], "interrupted");
  EXPECT_EQ(written()["interrupted"], true);
  EXPECT_EQ(written()["saved_in"], "run/checkpoints/step-00000003");
  run.on_run_end(sample_report(1));
  EXPECT_EQ(written()["state"], "complete");
  EXPECT_FALSE(written().contains("interrupted") || written().contains("saved_in"));
}

// The launcher outlives ranks that were killed.
TEST_F(RunRecordTest, IsClosedByAnotherProcessOnlyWhileItSaysThatTheRunIsRunning) {
  close_record(folder_.path(), "failed", "no file");
  EXPECT_FALSE(std::filesystem::exists(folder_ / "run.json"));
  RunRecord run = record();
  run.on_run_begin(sample_info());
  run.on_epoch_end(sample_epoch(1));
  close_record(folder_.path(), "interrupted", "killed at https://secret@host");
  json now = written();
  EXPECT_EQ(now["state"], "interrupted");
  EXPECT_EQ(now["error"], "killed at https://***@host");
  EXPECT_EQ(now["epochs"].size(), 1U);
  EXPECT_EQ(now["recipe"], "mnist");
  close_record(folder_.path(), "failed", "later");
  EXPECT_EQ(written(), now);
  for (const char* other : {"{", "[]", R"({"state": 7})", R"({"recipe": "mnist"})"}) {
    folder_.write("run.json", other);
    close_record(folder_.path(), "failed", "later");
    EXPECT_EQ(read_text(folder_ / "run.json"), other);
  }
}

TEST_F(RunRecordTest, HasNoCredentials) {
  RunRecord run(folder_.path(), {.command = "lockstep train --mlflow-uri=http://ada:secret@host"});
  run.on_run_begin(sample_info());
  run.on_exception(Error("no answer from https://secret@host/?access_token=secret timeout"));
  EXPECT_EQ(written()["command"], "lockstep train --mlflow-uri=http://***@host");
  EXPECT_EQ(written()["error"], "no answer from https://***@host/?access_token=*** timeout");
  EXPECT_THAT(read_text(folder_ / "run.json"), ::testing::Not(::testing::HasSubstr("secret")));
}

TEST_F(RunRecordTest, KeepsTheEpochsThatAResumedRunHadBefore) {
  RunRecord first = record();
  first.on_run_begin(sample_info());
  for (int epoch = 1; epoch <= 3; ++epoch) first.on_epoch_end(sample_epoch(epoch));
  // The run resumed from a checkpoint after epoch 2.
  RunInfo info = resumed_info();
  info.first_epoch = 3;
  RunRecord second = record();
  second.on_run_begin(info);
  EpochReport again = sample_epoch(3);
  again.train_loss = 7;
  second.on_epoch_end(again);
  const json now = written();
  ASSERT_EQ(now["epochs"].size(), 3U);
  EXPECT_EQ(now["epochs"][1]["epoch"], 2);
  EXPECT_EQ(now["epochs"][2]["train_loss"], 7.0);
  ASSERT_EQ(now["commands"].size(), 2U);
  EXPECT_EQ(now["commands"][0]["command"], "lockstep train mnist");
  EXPECT_EQ(now["commands"][0]["first_epoch"], 1);
  EXPECT_EQ(now["commands"][0]["last_epoch"], 2) << "the third was trained again";
  EXPECT_EQ(now["commands"][1]["started"], now["started"]);
  EXPECT_EQ(now["commands"][1]["first_epoch"], 3);
  EXPECT_EQ(now["commands"][1]["last_epoch"], 3);

  RunRecord anew = record();
  anew.on_run_begin(sample_info());
  EXPECT_TRUE(written()["epochs"].empty());
  EXPECT_EQ(written()["commands"].size(), 1U);
}

// A command whose epochs were all trained again is still one of the run.
TEST_F(RunRecordTest, HasEveryCommandOfTheRun) {
  folder_.write("run.json", R"({"command": "lockstep train mnist --lr 1", "started": "yesterday",
                                "epochs": []})");  // of an earlier version, killed in its epoch 1
  for (const std::int64_t first_epoch : {1, 2, 2}) {
    RunInfo info = resumed_info();
    info.first_epoch = first_epoch;
    info.first_step = 5;
    RunRecord run = record();
    run.on_run_begin(info);
    run.on_epoch_end(sample_epoch(first_epoch));
  }
  const json commands = written()["commands"];
  ASSERT_EQ(commands.size(), 4U);
  EXPECT_EQ(commands[0], json({{"command", "lockstep train mnist --lr 1"},
                               {"started", "yesterday"},
                               {"first_epoch", 1},
                               {"first_step", 0},
                               {"last_epoch", nullptr}}));
  EXPECT_EQ(commands[1]["first_step"], 5);
  EXPECT_EQ(commands[1]["last_epoch"], 1);
  EXPECT_TRUE(commands[2]["last_epoch"].is_null()) << "its epoch 2 was trained again";
  EXPECT_EQ(commands[3]["last_epoch"], 2);
}

// The check of a complete run is none of its commands, and its time and memory are not the run's.
TEST_F(RunRecordTest, StaysAsItWasIfTheRunWasCompleteBefore) {
  RunRecord first = record();
  first.on_run_begin(sample_info());
  first.on_epoch_end(sample_epoch(1));
  first.on_run_end(sample_report(1));
  const std::string before = read_text(folder_ / "run.json");
  RunReport check = sample_report(0);
  check.info = resumed_info();
  check.info.first_epoch = 2;
  check.info.already_complete = check.already_complete = true;
  check.seconds_total = 0.5;
  {
    RunRecord again = record();
    again.on_run_begin(check.info);
    EXPECT_EQ(read_text(folder_ / "run.json"), before) << "it begins";
    again.on_run_end(check);
    EXPECT_EQ(read_text(folder_ / "run.json"), before) << "it ends";
    again.on_exception(Error("the disk is full"));
    EXPECT_EQ(read_text(folder_ / "run.json"), before) << "the check fails";
  }
  // Killed after its last checkpoint.
  json killed = json::parse(before);
  killed["state"] = "interrupted";
  killed["error"] = "killed";
  killed["validation"] = nullptr;
  folder_.write("run.json", killed.dump());
  RunRecord later = record();
  later.on_run_begin(check.info);
  EXPECT_EQ(written(), killed);
  later.on_run_end(check);
  EXPECT_EQ(written(), json::parse(before));
  // Lost.
  std::filesystem::remove(folder_ / "run.json");
  later.on_run_end(check);
  EXPECT_EQ(written()["state"], "complete");
  EXPECT_EQ(written()["already_complete"], true);
}

TEST_F(RunRecordTest, HasTheTimeAndTheMemoryOfAllCommands) {
  // A record of an earlier version does not have the times of its commands.
  folder_.write("run.json", R"({"command": "train", "started": "yesterday", "epochs": [],
                                "seconds_total": 8.5, "peak_rss_bytes": 400000000})");
  RunReport report = sample_report(1);
  report.info = resumed_info();
  for (const double seconds : {24.0, 16.0}) {
    RunRecord run = record();
    run.on_run_begin(report.info);
    report.seconds_total = seconds;
    run.on_run_end(report);
  }
  const json now = written();
  EXPECT_EQ(now["commands"][0]["seconds"], 8.5);
  EXPECT_EQ(now["commands"][1]["seconds"], 24.0);
  EXPECT_EQ(now["commands"][2]["seconds"], 16.0);
  EXPECT_EQ(now["seconds_total"], 48.5);
  EXPECT_EQ(now["peak_rss_bytes"], 400'000'000);
  report.peak_rss_bytes = 500'000'000;
  RunRecord run = record();
  run.on_run_begin(report.info);
  EXPECT_EQ(written()["seconds_total"], 48.5) << "it has just begun";
  run.on_run_end(report);
  EXPECT_EQ(written()["peak_rss_bytes"], 500'000'000);
  RunRecord killed = record();
  killed.on_run_begin(report.info);
  killed.on_epoch_end(sample_epoch(1));
  EXPECT_GT(written()["seconds_total"], 64.5) << "the time up to its last epoch counts";
}

// A command that has not evaluated yet knows no unit.
TEST_F(RunRecordTest, KeepsTheUnitsOfItsValues) {
  RunRecord first = record();
  first.on_run_begin(sample_info());
  EpochReport epoch = sample_epoch(1);
  epoch.test->values.push_back({.name = "psnr", .value = 31});
  epoch.steps_per_epoch = 500;
  first.on_epoch_end(epoch);
  EXPECT_EQ(written()["fractions"], json::array({"accuracy"}));
  RunInfo info = resumed_info();
  info.first_epoch = 2;
  RunRecord second = record();
  second.on_run_begin(info);
  EXPECT_EQ(written()["fractions"], json::array({"accuracy"}));
  const std::vector<EpochReport> epochs = recorded_epochs(folder_.path(), 2);
  ASSERT_EQ(epochs.size(), 1U);
  ASSERT_EQ(epochs[0].test->values.size(), 2U);
  EXPECT_EQ(epochs[0].test->values[0].unit, MetricUnit::kFraction);
  EXPECT_EQ(epochs[0].test->values[1].unit, MetricUnit::kNumber);
  EXPECT_EQ(epochs[0].steps_per_epoch, 500) << "the command made only a part of it";
}

TEST_F(RunRecordTest, GivesBackItsEpochs) {
  RunRecord run = record();
  run.on_run_begin(sample_info());
  EpochReport second = sample_epoch(2);
  second.train_loss = std::nan("");
  second.test->values.push_back({.name = "psnr", .value = std::nan("")});
  second.test->tables = {{.name = "confusion", .rows = {{1}}}};
  EpochReport third = sample_epoch(3);
  third.test.reset();
  for (const EpochReport& epoch : {sample_epoch(1), second, third, sample_epoch(4)}) {
    run.on_epoch_end(epoch);
  }
  const std::vector<EpochReport> epochs = recorded_epochs(folder_.path(), 4);
  ASSERT_EQ(epochs.size(), 3U);
  EXPECT_EQ(epochs[0].epoch, 1);
  EXPECT_EQ(epochs[0].steps, 469);
  EXPECT_EQ(epochs[0].seconds, 2);
  EXPECT_EQ(epochs[0].train_loss, 0.25);
  EXPECT_EQ(epochs[0].images_per_second, 30000);
  const PhaseSeconds& phases = epochs[0].phases;
  EXPECT_THAT((std::vector<double>{phases.data, phases.forward, phases.backward,
                                   phases.communication, phases.optimizer}),
              ::testing::ElementsAre(0.1, 0.5, 1, 0.2, 0.1));
  ASSERT_TRUE(epochs[0].test && epochs[1].test);
  EXPECT_EQ(epochs[0].test->value_of("loss"), 0.0512);
  EXPECT_EQ(epochs[0].test->accuracy(), 0.9842);
  EXPECT_TRUE(std::isnan(epochs[1].train_loss));
  ASSERT_EQ(epochs[1].test->values.size(), 2U) << "a table is no value";
  EXPECT_TRUE(std::isnan(epochs[1].test->values[1].value));
  EXPECT_FALSE(epochs[2].test);
  EXPECT_TRUE(recorded_epochs(folder_ / "nowhere", 4).empty());
  folder_.write("run.json", R"({"epochs": [{"epoch": 1}]})");
  EXPECT_TRUE(recorded_epochs(folder_.path(), 4).empty());
}

TEST_F(RunRecordTest, GoesOnWithoutARecordThatCanBeRead) {
  folder_.write("run.json", "{");
  RunInfo info = resumed_info();
  info.first_epoch = 3;
  RunRecord run = record();
  run.on_run_begin(info);
  EXPECT_TRUE(written()["epochs"].empty());
}

TEST_F(RunRecordTest, KeepsNoEpochsOfARecordThatIsDamaged) {
  folder_.write("run.json", R"({"epochs": [{"epoch": 1}, {"train_loss": 7}]})");
  RunInfo info = resumed_info();
  info.first_epoch = 3;
  RunRecord run = record();
  run.on_run_begin(info);
  EXPECT_TRUE(written()["epochs"].empty());
}

// The run's own error is the one that its user must see.
TEST_F(RunRecordTest, WarnsIfItCannotSayWhyARunFailed) {
  RunRecord run = record();
  run.on_run_begin(sample_info());
  std::filesystem::remove_all(folder_.path());
  const CapturedLog log;
  run.on_exception(Error("rank 1 died"));
  EXPECT_THAT(log.lines(), ::testing::ElementsAre(::testing::HasSubstr(folder_.path().string())));
}

TEST(CommandLine, IsWhatThisProgramWasStartedWith) {
  EXPECT_THAT(command_line(), ::testing::HasSubstr("tests_report"));
  const std::string whole = command_line();
  const std::string first = whole.substr(0, whole.find(' '));
  EXPECT_EQ(command_line("not a word of it"), whole);
  EXPECT_LT(command_line(first).size(), whole.size());
}

// Runs itself in a child with such words.
TEST(CommandLine, QuotesTheWordsThatAShellWouldChange) {
  constexpr const char* kPlace = "LOCKSTEP_TEST_COMMAND_LINE";
  if (const char* const place = std::getenv(kPlace)) {
    std::ofstream(place) << command_line();
    return;
  }
  const TemporaryDirectory folder;
  const std::string words =
      "--gtest_filter=CommandLine.QuotesTheWordsThatAShellWouldChange --a=b_c,d:e/f+1% x@y "
      "'two words' 'it'\\''s' '' '$HOME' 'a;b' 'http://***@host'";
  const std::string given =
      words.substr(0, words.find("'http")) + "http://ada:secret@host >/dev/null 2>&1";
  const std::string program = std::filesystem::read_symlink("/proc/self/exe").string();
  const std::string command =
      str(kPlace, "='", (folder / "line").string(), "' '", program, "' ", given);
  ASSERT_EQ(std::system(command.c_str()), 0) << command;
  EXPECT_THAT(read_text(folder / "line"), ::testing::EndsWith(" " + words));
}

}  // namespace
}  // namespace lockstep::testing_support
