// Loggers that write files: their contents, which must be readable at once, and the errors on a
// full disk.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <limits>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include <lockstep/core/error.h>
#include <lockstep/formats/png.h>
#include <lockstep/report/loggers/csv_logger.h>
#include <lockstep/report/loggers/jsonl_logger.h>
#include <lockstep/report/loggers/logger_table.h>
#include <lockstep/report/loggers/run_folder.h>
#include <lockstep/report/loggers/tensorboard_logger.h>
#include <tests/report/loggers/logged_samples.h>
#include <tests/support/file_size_limit.h>
#include <tests/support/messages.h>
#include <tests/support/temporary_directory.h>
#include <tests/support/wandb_records.h>

namespace lockstep::testing_support {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::MatchesRegex;

constexpr double kLogInfinity = std::numeric_limits<double>::infinity();

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find('\n', at), text.size());
    lines.push_back(text.substr(at, end - at));
    at = end + 1;
  }
  return lines;
}

TEST(CsvLogger, WritesARowForEachCall) {
  const TemporaryDirectory folder;
  report::CsvLogger logger(folder.path());
  log(logger, 1, {{"loss", 0.5}, {"lr", 0.1}});
  EXPECT_EQ(read_text(folder / "metrics.csv"), "step,time,loss,lr\n1,1001.500,0.5,0.1\n");
  log(logger, 2, {{"lr", 0.05}});
  log(logger, 3, {{"lr", kLogInfinity}, {"loss", kLogNan}});
  EXPECT_EQ(read_text(folder / "metrics.csv"),
            "step,time,loss,lr\n1,1001.500,0.5,0.1\n2,1002.500,,0.05\n3,1003.500,nan,inf\n");
}

TEST(CsvLogger, AddsColumnsToAllRows) {
  const TemporaryDirectory folder;
  report::CsvLogger logger(folder.path());
  log(logger, 1, {{"loss", 0.5}});
  log(logger, 2, {{"loss", 0.25}, {"test, of \"all\"", 1}, {"b", -2}});
  log(logger, 3, {{"b", 3}});
  EXPECT_THAT(lines_of(read_text(folder / "metrics.csv")),
              ElementsAre("step,time,loss,\"test, of \"\"all\"\"\",b", "1,1001.500,0.5,,",
                          "2,1002.500,0.25,1,-2", "3,1003.500,,,3"));
  EXPECT_THAT(folder.names(), ElementsAre("metrics.csv"));
}

TEST(CsvLogger, WritesTheLastValueOfANameThatComesTwice) {
  const TemporaryDirectory folder;
  report::CsvLogger logger(folder.path());
  log(logger, 1, {{"a", 1}, {"b", 2}, {"a", 3}});
  EXPECT_EQ(read_text(folder / "metrics.csv"), "step,time,a,b\n1,1001.500,3,2\n");
}

// The header's line feed is inside of quotes and ends no row.
TEST(CsvLogger, AddsColumnsBesideNamesOfSeveralLines) {
  const TemporaryDirectory folder;
  report::CsvLogger logger(folder.path());
  log(logger, 1, {{"a\nb", 1}});
  log(logger, 2, {{"c\rd", 2}, {"e\"f", 3}});
  log(logger, 3, {{"a\nb", -kLogInfinity}});
  EXPECT_EQ(read_text(folder / "metrics.csv"),
            "step,time,\"a\nb\",\"c\rd\",\"e\"\"f\"\n1,1001.500,1,,\n2,1002.500,,2,3\n"
            "3,1003.500,-inf,,\n");
}

TEST(CsvLogger, WritesTablesNumberByNumber) {
  const TemporaryDirectory folder;
  report::CsvLogger logger(folder.path());
  EXPECT_TRUE(folder.names().empty()) << "a run without tables has no file for them";
  const std::vector<std::vector<double>> rows{{1}};
  log_table(logger, 1, {.rows = rows});
  log_table(logger, 2, AwkwardTable().table);
  EXPECT_THAT(lines_of(read_text(folder / "tables.csv")),
              ElementsAre("step,time,name,row,column,value", "1,1001.500,test/confusion,0,0,1",
                          "2,1002.500,test/confusion,cat,cat,7",
                          "2,1002.500,test/confusion,cat,\"a|b, \"\"<i>\"\"\",0.5",
                          "2,1002.500,test/confusion,\"a|b, \"\"<i>\"\"\",cat,nan",
                          "2,1002.500,test/confusion,\"a|b, \"\"<i>\"\"\","
                          "\"a|b, \"\"<i>\"\"\",1e+05",
                          "2,1002.500,test/confusion,\"a|b, \"\"<i>\"\"\",2,-2"));
  EXPECT_THAT(folder.names(), ElementsAre("tables.csv"));
}

TEST(CsvLogger, WritesTheHyperParametersBeside) {
  const TemporaryDirectory folder;
  const std::vector<HyperParameter> parameters{
      {"lr", 0.1}, {"fused", false}, {"batch", std::int64_t{128}}, {"net", std::string("a \"b\"")}};
  report::CsvLogger(folder.path()).log_hyper_parameters(parameters);
  EXPECT_EQ(
      read_text(folder / "hyper_parameters.json"),
      "{\n  \"lr\": 0.1,\n  \"fused\": false,\n  \"batch\": 128,\n  \"net\": \"a \\\"b\\\"\"\n}\n");
}

TEST(CsvLogger, DoesNotTouchTheTableOfAnotherRun) {
  const TemporaryDirectory folder;
  folder.write("metrics.csv", "precious");
  EXPECT_THROW(report::CsvLogger(folder.path()), DataError);
  EXPECT_EQ(read_text(folder / "metrics.csv"), "precious");
}

TEST(CsvLogger, SaysWhichFileOfAnotherRunIsThere) {
  const TemporaryDirectory folder;
  folder.write("tables.csv", "precious");
  report::CsvLogger logger(folder.path());
  EXPECT_EQ(message_of<DataError>([&] { log_table(logger, 1, AwkwardTable().table); }),
            "cannot write " + (folder / "tables.csv").string() + ": File exists");
  EXPECT_EQ(read_text(folder / "tables.csv"), "precious");
  log(logger, 1, {{"a", 1}});
  const std::string path = (folder / "metrics.csv").string();
  EXPECT_EQ(message_of<DataError>([&] { report::CsvLogger again(folder.path()); }),
            "cannot write " + path + ": it exists; every run needs a folder of its own");
}

// Names may have any bytes, and a file of UTF-8 that its readers understand keeps them apart.
TEST(Loggers, KeepNamesThatAreNoTextApart) {
  const TemporaryDirectory folder;
  const std::vector<std::string> labels{"caf\xE9", "caf\xE8"};
  const std::vector<std::vector<double>> rows{{7, 1}, {2, 9}};
  const auto log_all = [&](Logger& logger) {
    const HyperParameter parameters[] = {{"data", std::string("/photos\xE9")}};
    logger.log_hyper_parameters(parameters);
    log(logger, 1, {{"caf\xE9", 0.5}, {"caf\xE8", 0.25}});
    log_table(logger, 1, {.labels = labels, .rows = rows});
    logger.finish(true);
  };
  report::CsvLogger csv(folder.path());
  log_all(csv);
  report::JsonlLogger jsonl(folder.path());
  log_all(jsonl);
  EXPECT_EQ(read_text(folder / "metrics.csv"),
            "step,time,caf\\xe9,caf\\xe8\n1,1001.500,0.5,0.25\n");
  EXPECT_THAT(read_text(folder / "tables.csv"), ::testing::HasSubstr(",caf\\xe9,caf\\xe8,1\n"));
  EXPECT_EQ(read_text(folder / "hyper_parameters.json"), "{\n  \"data\": \"/photos\\\\xe9\"\n}\n");
  std::istringstream lines(read_text(folder / "metrics.jsonl"));
  std::string line;
  std::getline(lines, line);
  EXPECT_EQ(nlohmann::json::parse(line)["caf\\xe8"], 0.25);
  std::getline(lines, line);
  EXPECT_EQ(nlohmann::json::parse(line)["test/confusion"]["labels"],
            nlohmann::json({"caf\\xe9", "caf\\xe8"}));
}

TEST(JsonlLogger, WritesAnObjectALine) {
  const TemporaryDirectory folder;
  report::JsonlLogger logger(folder.path());
  const std::vector<HyperParameter> parameters = {{"lr", 0.5}};
  logger.log_hyper_parameters(parameters);
  EXPECT_THAT(read_text(folder / "hyper_parameters.json"), ::testing::HasSubstr("\"lr\""));
  log(logger, 1, {{"loss", 0.5}, {"a\"\n", kLogNan}});
  const Histogram histogram{.edges = {-1, 0, 1}, .counts = {7, 9}};
  logger.log_histogram({.step = 2, .time = 3}, "weights", histogram);
  EXPECT_EQ(read_text(folder / "metrics.jsonl"),
            "{\"step\":1,\"time\":1001.500,\"loss\":0.5,\"a\\\"\\n\":null}\n"
            "{\"step\":2,\"time\":3.000,\"weights\":{\"edges\":[-1,0,1],\"counts\":[7,9]}}\n");
}

// Each character that JSON escapes, alone in a name, and names that need no escape.
TEST(JsonlLogger, WritesAnyName) {
  const TemporaryDirectory folder;
  report::JsonlLogger logger(folder.path());
  const std::vector<std::string> names{"a\"b",
                                       "a\\b",
                                       "a\nb",
                                       "a\tb",
                                       "a\x01b",
                                       "a\x7f"
                                       "b",
                                       "\u00e9",
                                       "a/b c~!",
                                       "",
                                       "\""};
  for (const std::string& name : names) log(logger, 1, {{name, 0.5}});
  std::istringstream lines(read_text(folder / "metrics.jsonl"));
  for (const std::string& name : names) {
    std::string line;
    std::getline(lines, line);
    const nlohmann::json json = nlohmann::json::parse(line, nullptr, false);
    ASSERT_FALSE(json.is_discarded()) << line;
    EXPECT_EQ(json.value(name, 0.0), 0.5) << line;
  }
}

TEST(JsonlLogger, WritesATableInALine) {
  const TemporaryDirectory folder;
  report::JsonlLogger logger(folder.path());
  log_table(logger, 2, AwkwardTable().table);
  log_table(logger, 3, {});
  EXPECT_EQ(read_text(folder / "metrics.jsonl"),
            "{\"step\":2,\"time\":1002.500,\"test/confusion\":{\"labels\":[\"cat\","
            "\"a|b, \\\"<i>\\\"\"],\"rows\":[[7,0.5],[null,1e+05,-2],[]]}}\n"
            "{\"step\":3,\"time\":1003.500,\"test/confusion\":{\"labels\":[],\"rows\":[]}}\n");
}

TEST(TensorBoardLogger, WritesATableAsMarkdown) {
  const TemporaryDirectory folder;
  report::TensorBoardLogger logger(folder.path(), "run");
  log_table(logger, 2, AwkwardTable().table);
  const std::string content = read_text(folder / folder.names().at(0));
  EXPECT_NE(content.find("| test/confusion | cat | a\\|b, \"&lt;i\\>\" | 2 |\n"
                         "|---|---:|---:|---:|\n"
                         "| cat | 7 | 0.5 | |\n"
                         "| a\\|b, \"&lt;i\\>\" | nan | 100000 | -2 |\n"
                         "| 2 | | | |"),
            std::string::npos)
      << content;
}

TEST(TensorBoardLogger, WritesATableOfOneLineForEachLabel) {
  const TemporaryDirectory folder;
  report::TensorBoardLogger logger(folder.path(), "run");
  const std::vector<std::string> labels{"a\nb\xFF"};
  const std::vector<std::vector<double>> rows{{1}};
  log_table(logger, 2, {.labels = labels, .rows = rows});
  const std::string content = read_text(folder / folder.names().at(0));
  EXPECT_NE(content.find("| a b\\xff | 1 |"), std::string::npos) << content;
}

TEST(TensorBoardLogger, WritesNamesAndNumbersVerbatim) {
  const TemporaryDirectory folder;
  report::TensorBoardLogger logger(folder.path(), "run");
  const std::vector<std::string> labels{"R&D", "_x_ #1"};
  const std::vector<std::vector<double>> rows{{999'999, 1e15}, {-kLogInfinity, -0.5}};
  log_table(logger, 2, {.labels = labels, .rows = rows});
  const std::string content = read_text(folder / folder.names().at(0));
  EXPECT_NE(content.find("| test/confusion | R&amp;D | \\_x\\_ \\#1 |\n|---|---:|---:|\n"
                         "| R&amp;D | 999999 | 1e+15 |\n"
                         "| \\_x\\_ \\#1 | -inf | -0.5 |"),
            std::string::npos)
      << content;
}

// A session of parameters has an end only if it has a beginning.
TEST(TensorBoardLogger, EndsTheSessionThatItBegan) {
  for (const bool begins : {false, true}) {
    const TemporaryDirectory folder;
    report::TensorBoardLogger logger(folder.path(), "run");
    const HyperParameter parameters[] = {{"lr", 0.5}};
    if (begins) logger.log_hyper_parameters(parameters);
    log(logger, 1, {{"loss", 0.5}});
    logger.finish(true);
    const std::string content = read_text(folder / folder.names().at(0));
    for (const char* tag : {"_hparams_/session_start_info", "_hparams_/session_end_info"}) {
      EXPECT_EQ(content.find(tag) != std::string::npos, begins) << tag;
    }
  }
}

TEST(TensorBoardLogger, NamesTheRunAndSaysWhetherItSucceeded) {
  for (const bool success : {false, true}) {
    const TemporaryDirectory folder;
    report::TensorBoardLogger logger(folder.path(), "the run");
    logger.log_hyper_parameters({});
    logger.finish(success);
    const std::string content = read_text(folder / folder.names().at(0));
    EXPECT_NE(content.find("\x22\x07the run"), std::string::npos) << "group_name";
    const std::string status = {'\x22', '\x0b', '\x08', success ? '\1' : '\2', '\x11'};
    EXPECT_NE(content.find(status), std::string::npos) << "session_end_info { status }";
  }
}

TEST(TensorBoardLogger, WritesImagesAndHistograms) {
  const TemporaryDirectory folder;
  report::TensorBoardLogger logger(folder.path(), "run");
  EXPECT_TRUE(logger.takes_images());
  std::vector<std::uint8_t> pixels(18);
  for (std::size_t i = 0; i < pixels.size(); ++i) pixels[i] = static_cast<std::uint8_t>(9 * i);
  logger.log_image({.step = 1, .time = 2}, "digits", {.rgb = pixels, .width = 3, .height = 2});
  logger.log_histogram({.step = 1, .time = 2}, "weights", {.edges = {0, 1}, .counts = {3}});
  const std::string content = read_text(folder / folder.names().at(0));
  for (const std::string& part :
       {std::string("digits"), detail::encode_png(pixels, 3, 2),
        std::string("\x08\x02\x10\x03\x18\x03\x22"), std::string("weights")}) {
    EXPECT_NE(content.find(part), std::string::npos) << part.size() << " bytes";
  }
}

TEST(RunFolder, HasANameOfItsOwn) {
  const report::RunName first = report::new_run_name();
  EXPECT_THAT(first.date_time, MatchesRegex("[0-9]+_[0-9]+"));
  EXPECT_EQ(first.date_time.size(), 15U);
  EXPECT_THAT(first.id, MatchesRegex("[0-9a-z]+"));
  EXPECT_EQ(first.id.size(), 8U);
  EXPECT_NE(first.id, report::new_run_name().id);
  EXPECT_EQ(report::run_folder("logs", "mnist", {.date_time = "20261124_183000", .id = "k3v9x0ab"}),
            fs::path("logs/mnist-20261124_183000-k3v9x0ab"));
}

TEST(RunFolder, NamesAFolderThatCannotBe) {
  EXPECT_EQ(message_of<DataError>([] { report::make_folder("/dev/null/run"); }),
            "cannot create the folder /dev/null/run: Not a directory");
}

TEST(LoggerTable, ListsTheKnownNames) {
  EXPECT_THAT(logger_names(), ElementsAre("csv", "jsonl", "tensorboard", "wandb", "mlflow"));
  const auto refusal = [](const std::vector<std::string>& names) {
    return message_of<ConfigError>([&] { check_loggers("--logger", names); });
  };
  EXPECT_EQ(refusal({"csv", "tensorbord"}),
            "--logger: expected one or more of csv, jsonl, tensorboard, wandb, mlflow; got "
            "'tensorbord'; did you mean 'tensorboard'?");
  EXPECT_EQ(refusal({"csv", "jsonl", "csv"}), "--logger names csv twice");
  EXPECT_EQ(refusal(logger_names()), "nothing was thrown");
}

TEST(LoggerTable, GivesEveryRunItsFolder) {
  const TemporaryDirectory logs;
  for (int run = 0; run < 2; ++run) {
    const auto loggers = make_loggers({"csv", "jsonl", "tensorboard", "wandb"},
                                      {.directory = logs.path(), .run_name = "mnist"});
    ASSERT_EQ(loggers.size(), 4U);
    for (const auto& logger : loggers) log(*logger, 1, {{"loss", 0.5}});
  }
  const std::vector<std::string> names = logs.names();
  ASSERT_EQ(names.size(), 3U) << "two runs and wandb";
  for (int run = 0; run < 2; ++run) {
    EXPECT_THAT(names[static_cast<std::size_t>(run)],
                MatchesRegex("mnist-[0-9]+_[0-9]+-[0-9a-z]+"));
    std::vector<std::string> files;
    for (const auto& entry : fs::directory_iterator(logs / names[static_cast<std::size_t>(run)])) {
      files.push_back(entry.path().filename().string());
    }
    std::ranges::sort(files);
    ASSERT_EQ(files.size(), 3U);
    EXPECT_TRUE(files[0].starts_with("events.out.tfevents."));
    EXPECT_EQ(files[1], "metrics.csv");
    EXPECT_EQ(files[2], "metrics.jsonl");
  }
  int wandb_runs = 0;
  for (const auto& entry : fs::directory_iterator(logs / "wandb")) {
    const std::string name = entry.path().filename().string();
    EXPECT_THAT(name, MatchesRegex("offline-run-[0-9]+_[0-9]+-[0-9a-z]+"));
    const std::string id = name.substr(name.rfind('-') + 1);
    EXPECT_TRUE(fs::is_regular_file(entry.path() / ("run-" + id + ".wandb")));
    ++wandb_runs;
  }
  EXPECT_EQ(wandb_runs, 2);
}

TEST(LoggerTable, SaysWhereAndUnderWhichNamesItsLoggersWrite) {
  const TemporaryDirectory logs;
  const auto loggers =
      make_loggers({"csv", "jsonl", "tensorboard", "wandb"},
                   {.directory = logs.path(), .run_name = "mnist", .project = "digits"});
  ASSERT_EQ(loggers.size(), 4U);
  const std::string name = logs.names().at(0);  // before "wandb"
  const std::string folder = (logs / name).string();
  const std::string date_time_id = name.substr(std::string("mnist-").size());
  const fs::path wandb = logs / ("wandb/offline-run-" + date_time_id);
  EXPECT_EQ(loggers[0]->place(), folder + "/metrics.csv");
  EXPECT_EQ(loggers[1]->place(), folder + "/metrics.jsonl");
  EXPECT_EQ(loggers[2]->place(), folder);
  EXPECT_EQ(loggers[3]->place(), wandb.string());
  EXPECT_FALSE(loggers[0]->takes_images() || loggers[1]->takes_images());
  EXPECT_TRUE(loggers[2]->takes_images() && loggers[3]->takes_images());
  const HyperParameter parameters[] = {{"lr", 0.5}};
  for (const auto& logger : loggers) logger->log_hyper_parameters(parameters);
  for (const auto& entry : fs::directory_iterator(folder)) {
    if (!entry.path().filename().string().starts_with("events.out.tfevents.")) continue;
    EXPECT_NE(read_text(entry.path()).find(name), std::string::npos);
  }
  const std::string id = name.substr(name.rfind('-') + 1);
  const std::vector<std::string> records =
      wandb_records(read_text(wandb / ("run-" + id + ".wandb")));
  ASSERT_EQ(records.size(), 3U) << "header, run and parameters";
  for (const std::string& part : {id, std::string("digits"), name}) {
    EXPECT_NE(records[1].find(part), std::string::npos) << part;
  }
  EXPECT_NE(records[2].find("lr"), std::string::npos);
}

TEST(LoggerTable, RefusesMlflowWithoutAnAddress) {
  const TemporaryDirectory logs;
  EXPECT_EQ(message_of<ConfigError>([&] { make_loggers({"mlflow"}, {.directory = logs.path()}); }),
            "MlflowClient: tracking_uri must be the address of an MLflow server, http://HOST:PORT "
            "or https://, got ''");
  EXPECT_TRUE(logs.names().empty());
}

// The code of docs/logging.md.
TEST(LoggingGuide, LogsFromAProgramOfOnesOwn) {
  const TemporaryDirectory here;
  const fs::path before = fs::current_path();
  fs::current_path(here.path());
  const std::int64_t step = 3;
  const double critic_loss = 0.5;
  const double generator_loss = 0.25;
  // clang-format off
  auto loggers = lockstep::make_loggers({"csv", "tensorboard"}, {.directory = "logs", .run_name = "gan"});
  for (const auto& logger : loggers) {
    logger->log_scalars(lockstep::moment_at(step), {{"critic/loss", critic_loss}, {"generator/loss", generator_loss}});
  }
  // clang-format on
  const std::string place = loggers[0]->place();
  EXPECT_THAT(read_text(place), MatchesRegex("step,time,critic/loss,generator/loss\n"
                                             "3,[0-9.]+,0.5,0.25\n"));
  fs::current_path(before);
}

// A logging process is killed at some step. Everything up to that step must be readable.
TEST(LoggersOfAKilledRun, CanBeReadUpToTheLastStep) {
  const TemporaryDirectory logs;
  int steps[2];
  ASSERT_EQ(pipe(steps), 0);
  const pid_t child = fork();
  if (child == 0) {
    close(steps[0]);
    const auto loggers = make_loggers({"csv", "jsonl", "tensorboard", "wandb"},
                                      {.directory = logs.path(), .run_name = "run"});
    for (std::int64_t step = 1;; ++step) {
      for (const auto& logger : loggers)
        log(*logger, step, {{"loss", 1.0 / static_cast<double>(step)}});
      if (write(steps[1], &step, sizeof(step)) < 0) _exit(1);
    }
  }
  close(steps[1]);
  std::int64_t logged = 0;
  while (logged < 500) {
    ASSERT_EQ(read(steps[0], &logged, sizeof(logged)), static_cast<ssize_t>(sizeof(logged)));
  }
  kill(child, SIGKILL);
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFSIGNALED(status));
  while (read(steps[0], &logged, sizeof(logged)) == static_cast<ssize_t>(sizeof(logged))) {
  }
  close(steps[0]);

  const std::string run = logs.names()[0];
  const auto rows = lines_of(read_text(logs / (run + "/metrics.csv")));
  ASSERT_GE(static_cast<std::int64_t>(rows.size()), logged + 1);
  EXPECT_TRUE(rows[static_cast<std::size_t>(logged)].starts_with(std::to_string(logged) + ","));
  const auto lines = lines_of(read_text(logs / (run + "/metrics.jsonl")));
  ASSERT_GE(static_cast<std::int64_t>(lines.size()), logged);
  EXPECT_EQ(nlohmann::json::parse(lines[static_cast<std::size_t>(logged - 1)])["step"], logged);
  for (const auto& entry : fs::recursive_directory_iterator(logs.path())) {
    const std::string name = entry.path().filename().string();
    if (name.starts_with("events.out.tfevents.")) {
      const std::string content = read_text(entry.path());
      std::int64_t events = 0;
      for (std::size_t at = 0; at + 12 <= content.size(); ++events) {
        std::uint64_t length = 0;
        std::memcpy(&length, content.data() + at, sizeof(length));
        at += 16 + length;
        if (at > content.size()) break;
      }
      EXPECT_GE(events, logged + 1);
    }
    if (name.ends_with(".wandb")) {
      // The row of the last step is still waiting for more values.
      const std::string last = std::to_string(logged - 1);
      EXPECT_NE(read_text(entry.path())
                    .find("_step\x82\x01" + std::string(1, static_cast<char>(last.size())) + last),
                std::string::npos);
    }
  }
}

TEST(LoggersOnAFullDisk, SayInOneLineWhichFileCannotBeWritten) {
  for (const std::string& name : logger_names()) {
    if (name == "mlflow") continue;  // never fails; see mlflow_logger_test.cpp
    const TemporaryDirectory logs;
    const auto loggers = make_loggers({name}, {.directory = logs.path()});
    const FileSizeLimit limit(1000);
    const std::string message = message_of<DataError>([&] {
      for (std::int64_t step = 1; step < 1000; ++step) log(*loggers[0], step, {{"loss", 0.5}});
    });
    EXPECT_TRUE(message.starts_with("cannot write " + logs.path().string())) << name << message;
    EXPECT_TRUE(message.ends_with(": File too large")) << name << message;
    EXPECT_EQ(std::count(message.begin(), message.end(), '\n'), 0);
  }
}

double thread_seconds() {
  timespec time{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

// The processor time of one call, which does not depend on other programs; the minimum of several
// trials.
TEST(LoggersTiming, AtMostFiveMicrosecondsForEachScalar) {
  for (const std::string& name : logger_names()) {
    if (name == "mlflow") continue;  // needs a server, see mlflow_logger_test.cpp
    const TemporaryDirectory logs;
    const auto loggers = make_loggers({name}, {.directory = logs.path()});
    constexpr int kCalls = 2000;
    std::int64_t step = 0;
    double least = kLogInfinity;
    for (int trial = 0; trial < 7; ++trial) {
      const double begin = thread_seconds();
      for (int call = 0; call < kCalls; ++call) {
        const NamedValue values[] = {{"train/loss", 1.0 / static_cast<double>(step + 3)},
                                     {"train/learning_rate", 0.1}};
        loggers[0]->log_scalars(moment_at(++step), values);
      }
      least = std::min(least, (thread_seconds() - begin) / (2 * kCalls));
    }
    std::printf("%-12s %5.2f us a scalar\n", name.c_str(), least * 1e6);
    EXPECT_LT(least, 5e-6) << name;
  }
}

}  // namespace
}  // namespace lockstep::testing_support
