// What is sent to an MLflow server, and that a server can neither delay nor fail the training.
// mlflow_oracle.py uses a real server.
#include <lockstep/report/loggers/mlflow_logger.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <time.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <limits>
#include <optional>
#include <sstream>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include <lockstep/core/clock.h>
#include <lockstep/core/error.h>
#include <tests/report/loggers/mlflow_double.h>
#include <tests/support/captured_log.h>
#include <tests/support/messages.h>
#include <tests/support/scoped_environment.h>
#include <tests/support/temporary_directory.h>

namespace lockstep::testing_support {
namespace {

using nlohmann::json;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::SizeIs;

class MlflowLoggerTest : public testing::Test {
 protected:
  MlflowLoggerTest() {
    for (const char* name :
         {"http_proxy", "https_proxy", "all_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"}) {
      environment_.set(name, std::nullopt);
    }
  }

  report::MlflowLoggerOptions options() const {
    return {.server = {.tracking_uri = server_.url(), .experiment = "digits & more"},
            .run_name = "mnist",
            .folder = folder_.path(),
            .interval = Milliseconds(10),
            .request_timeout = Milliseconds(5000),
            .finish_timeout = Milliseconds(10'000),
            .first_pause = Milliseconds(10),
            .longest_pause = Milliseconds(20)};
  }
  // Batches that are not full wait until the run ends.
  report::MlflowLoggerOptions seldom() const {
    report::MlflowLoggerOptions changed = options();
    changed.interval = Milliseconds(60'000);
    return changed;
  }
  // The warning that is logged once, with its reason.
  std::string warning_of(const std::string& reason) const {
    return "warning: mlflow: " + reason +
           "; the training goes on, and what cannot be sent is kept in " +
           (folder_ / "mlflow_unsent.jsonl").string();
  }
  static void log(report::MlflowLogger& logger, std::int64_t step) {
    const NamedValue values[] = {{"train/loss", 1.0 / static_cast<double>(step)}};
    logger.log_scalars({.step = step, .time = 1000.5}, values);
  }
  std::vector<json> bodies_of(const std::string& path) const {
    std::vector<json> bodies;
    for (const auto& request : server_.requests()) {
      if (request.path == path) bodies.push_back(json::parse(request.body));
    }
    return bodies;
  }
  // The steps whose metrics have reached the server.
  std::vector<std::int64_t> sent_steps() const {
    std::vector<std::int64_t> steps;
    for (const json& body : bodies_of("runs/log-batch")) {
      for (const json& metric : body["metrics"]) steps.push_back(metric["step"]);
    }
    return steps;
  }
  // The bodies of the unsent requests to `path`, which are kept.
  std::vector<json> unsent(const std::string& path) const {
    std::vector<json> bodies;
    std::istringstream lines(read_text(folder_ / "mlflow_unsent.jsonl"));
    for (std::string line; std::getline(lines, line);) {
      const json request = json::parse(line);
      if (request["path"] == path) bodies.push_back(request["body"]);
    }
    return bodies;
  }
  std::vector<std::int64_t> unsent_steps() const {
    std::vector<std::int64_t> steps;
    for (const json& body : unsent("runs/log-batch")) {
      for (const json& metric : body["metrics"]) steps.push_back(metric["step"]);
    }
    return steps;
  }

  ScopedEnvironment environment_;
  MlflowDouble server_;
  TemporaryDirectory folder_;
  CapturedLog log_;
};

TEST_F(MlflowLoggerTest, SendsARunFromBeginToEnd) {
  report::MlflowLogger logger(options());
  const std::vector<HyperParameter> parameters{{"lr", 0.1}, {"net [0]", std::string("small")}};
  logger.log_hyper_parameters(parameters);
  const NamedValue values[] = {{"train/loss", 0.25},
                               {"top@5", std::numeric_limits<double>::infinity()}};
  logger.log_scalars({.step = 7, .time = 1000.5}, values);
  logger.finish(true);

  std::vector<std::string> paths;
  for (const auto& request : server_.requests()) paths.push_back(request.path);
  EXPECT_THAT(paths, ElementsAre("experiments/get-by-name?experiment_name=digits%20%26%20more",
                                 "experiments/create", "runs/create", "runs/log-batch",
                                 "runs/log-batch", "runs/update"));
  EXPECT_EQ(bodies_of("experiments/create")[0], json({{"name", "digits & more"}}));
  const json run = bodies_of("runs/create")[0];
  EXPECT_EQ(run["experiment_id"], "3");
  EXPECT_EQ(run["run_name"], "mnist");
  EXPECT_EQ(bodies_of("runs/log-batch")[0], json::parse(R"({"run_id": "r1", "metrics": [],
      "params": [{"key": "lr", "value": "0.1"}, {"key": "net _0_", "value": "small"}]})"));
  EXPECT_EQ(bodies_of("runs/log-batch")[1], json::parse(R"({"run_id": "r1",
      "metrics": [{"key": "train/loss", "value": 0.25, "timestamp": 1000500, "step": 7},
                  {"key": "top_5", "value": "Infinity", "timestamp": 1000500, "step": 7}],
      "params": []})"));
  const json end = bodies_of("runs/update")[0];
  EXPECT_EQ(end["run_id"], "r1");
  EXPECT_EQ(end["status"], "FINISHED");
  EXPECT_GE(end["end_time"].get<std::int64_t>(), run["start_time"].get<std::int64_t>());
  EXPECT_TRUE(folder_.names().empty()) << "nothing was left over";
  EXPECT_TRUE(log_.lines().empty());
  logger.finish(false);
  EXPECT_THAT(bodies_of("runs/update"), SizeIs(1)) << "a run ends once";
}

// Each kind is a batch of its own, in this order: a server may refuse one of them.
TEST_F(MlflowLoggerTest, SendsParametersThenTablesThenValues) {
  report::MlflowLogger logger(seldom());
  log(logger, 4);
  const std::vector<std::vector<double>> rows{{7}};
  logger.log_table({.step = 1, .time = 2}, "first", {.rows = rows});
  logger.log_table({.step = 1, .time = 2}, "second", {.rows = rows});
  logger.log_table({.step = 3, .time = 2}, "first", {.rows = rows});
  const std::vector<HyperParameter> parameters{{"lr", 0.1}};
  logger.log_hyper_parameters(parameters);
  logger.finish(true);
  const std::vector<json> batches = bodies_of("runs/log-batch");
  ASSERT_THAT(batches, SizeIs(3));
  EXPECT_EQ(batches[0]["params"], json::parse(R"([{"key": "lr", "value": "0.1"}])"));
  ASSERT_EQ(batches[1]["tags"].size(), 2U);
  EXPECT_EQ(batches[1]["tags"][0]["key"], "first");
  EXPECT_THAT(batches[1]["tags"][0]["value"].get<std::string>(), HasSubstr("{\"step\":3,"));
  EXPECT_EQ(batches[1]["tags"][1]["key"], "second");
  ASSERT_EQ(batches[2]["metrics"].size(), 1U);
  EXPECT_EQ(batches[2]["metrics"][0]["step"], 4);
}

// A batch of 900 values is full. It is sent before the interval ends, and so are further attempts.
TEST_F(MlflowLoggerTest, SendsFullBatchesWithoutWaitingForTheInterval) {
  const auto log_full_batch = [](report::MlflowLogger& logger) {
    for (std::int64_t step = 1; step <= 900; ++step) log(logger, step);
  };
  {
    report::MlflowLogger logger(seldom());
    log_full_batch(logger);
    ASSERT_TRUE(server_.wait_for("runs/log-batch", 1));
    logger.finish(true);
  }
  EXPECT_THAT(sent_steps(), SizeIs(900));
  EXPECT_TRUE(folder_.names().empty());
  server_.answer_with(503, "runs/log-batch");
  report::MlflowLogger logger(seldom());
  log_full_batch(logger);
  ASSERT_TRUE(server_.wait_for("runs/log-batch", 1 + 3));
  logger.finish(true);
  EXPECT_THAT(bodies_of("runs/log-batch"), SizeIs(1 + 3)) << "three attempts";
  EXPECT_THAT(unsent_steps(), SizeIs(900));
  EXPECT_EQ(bodies_of("runs/update").back()["status"], "FINISHED");
  EXPECT_THAT(log_.lines(), SizeIs(1));
}

TEST_F(MlflowLoggerTest, SendsTheLastTableOfEachNameAsATag) {
  report::MlflowLogger logger(options());
  const std::vector<std::string> labels{"cat"};
  const std::vector<std::vector<double>> first{{7}};
  const std::vector<std::vector<double>> second{{9}};
  logger.log_table({.step = 1, .time = 2}, "test/confusion@1", {.labels = labels, .rows = first});
  logger.log_table({.step = 2, .time = 3}, "test/confusion@1", {.labels = labels, .rows = second});
  logger.finish(true);
  const json tag = bodies_of("runs/log-batch").back()["tags"].back();
  EXPECT_EQ(tag, json({{"key", "test/confusion_1"},
                       {"value", "{\"step\":2,\"labels\":[\"cat\"],\"rows\":[[9]]}"}}));
}

TEST_F(MlflowLoggerTest, LeavesOutATableThatNoTagTakes) {
  report::MlflowLogger logger(options());
  const std::vector<std::vector<double>> rows(50, std::vector<double>(50, 1));
  for (std::int64_t step = 1; step <= 2; ++step) {
    logger.log_table({.step = step, .time = 2}, "test/confusion", {.rows = rows});
  }
  log(logger, 3);
  logger.finish(true);
  for (const json& body : bodies_of("runs/log-batch")) EXPECT_FALSE(body.contains("tags"));
  EXPECT_THAT(sent_steps(), ElementsAre(3));
  EXPECT_THAT(log_.lines(), ElementsAre("warning: mlflow: the table test/confusion is left out: it "
                                        "has 5131 bytes as JSON, and a tag takes 5000"));
}

TEST_F(MlflowLoggerTest, SendsATableThatJustFits) {
  report::MlflowLogger logger(options());
  const std::size_t frame = std::string(R"({"step":1,"labels":[""],"rows":[]})").size();
  for (const std::size_t bytes : {std::size_t{5000}, std::size_t{5001}}) {
    const std::vector<std::string> labels{std::string(bytes - frame, 'x')};
    logger.log_table({.step = 1, .time = 2}, std::to_string(bytes), {.labels = labels});
  }
  logger.finish(true);
  std::vector<std::string> sent;
  for (const json& body : bodies_of("runs/log-batch")) {
    for (const json& tag : body.value("tags", json::array())) sent.push_back(tag["key"]);
  }
  EXPECT_THAT(sent, ElementsAre("5000"));
  EXPECT_THAT(log_.lines(), ElementsAre(HasSubstr("the table 5001 is left out")));
}

TEST_F(MlflowLoggerTest, SaysThatARunFailed) {
  report::MlflowLogger logger(options());
  log(logger, 1);
  logger.finish(false);
  EXPECT_EQ(bodies_of("runs/update")[0]["status"], "FAILED");
}

TEST_F(MlflowLoggerTest, SendsManyValuesInBatchesOfTheAllowedSize) {
  report::MlflowLogger logger(options());
  for (std::int64_t step = 1; step <= 5000; ++step) log(logger, step);
  logger.finish(true);
  for (const json& body : bodies_of("runs/log-batch")) {
    EXPECT_LE(body["metrics"].size() + body["params"].size(), 1000U);
  }
  const std::vector<std::int64_t> steps = sent_steps();
  ASSERT_EQ(steps.size(), 5000U);
  EXPECT_TRUE(std::ranges::is_sorted(steps));
}

TEST_F(MlflowLoggerTest, TriesAgainAfterAPassingFailure) {
  server_.answer_with(503);
  report::MlflowLoggerOptions slow = options();
  slow.first_pause = slow.longest_pause = Milliseconds(400);
  report::MlflowLogger logger(slow);
  log(logger, 1);
  ASSERT_TRUE(server_.wait_for("experiments/get-by-name?experiment_name=digits%20%26%20more", 1));
  server_.answer_with(200);
  ASSERT_TRUE(server_.wait_for("runs/log-batch", 1));
  log(logger, 2);
  logger.finish(true);
  EXPECT_THAT(sent_steps(), ElementsAre(1, 2));
  EXPECT_TRUE(folder_.names().empty());
}

TEST_F(MlflowLoggerTest, KeepsWhatIsRefusedAndSaysSoOnce) {
  server_.answer_with(400);
  report::MlflowLogger logger(options());
  for (std::int64_t step = 1; step <= 3; ++step) log(logger, step);
  logger.finish(true);
  EXPECT_THAT(unsent_steps(), ElementsAre(1, 2, 3));
  ASSERT_THAT(unsent("runs/update"), SizeIs(1));
  EXPECT_EQ(unsent("runs/update")[0]["status"], "FINISHED");
  ASSERT_THAT(log_.lines(), SizeIs(1));
  EXPECT_EQ(log_.lines()[0],
            "warning: mlflow: " + server_.url() +
                "/api/2.0/mlflow/experiments/get-by-name?experiment_name=digits%20%26%20more "
                "answered 400: told to fail; the training goes on, and what cannot be sent is kept "
                "in " +
                (folder_ / "mlflow_unsent.jsonl").string());
}

TEST_F(MlflowLoggerTest, OutlivesAServerThatIsNotThere) {
  report::MlflowLoggerOptions nowhere = options();
  {
    const MlflowDouble gone;
    nowhere.server.tracking_uri = gone.url();
  }
  report::MlflowLogger logger(nowhere);
  const auto begin = Clock::now();
  for (std::int64_t step = 1; step <= 2500; ++step) log(logger, step);
  logger.finish(true);
  EXPECT_LT(seconds_since(begin), 8);
  EXPECT_THAT(unsent_steps(), SizeIs(2500));
  ASSERT_THAT(log_.lines(), SizeIs(1));
  EXPECT_THAT(log_.lines()[0], HasSubstr("no answer from " + nowhere.server.tracking_uri));
}

TEST_F(MlflowLoggerTest, DoesNotWaitLongerForASilentServerThanItShould) {
  server_.fall_silent();
  report::MlflowLoggerOptions impatient = options();
  impatient.request_timeout = Milliseconds(60'000);
  impatient.finish_timeout = Milliseconds(200);
  report::MlflowLogger logger(impatient);
  log(logger, 1);
  ASSERT_TRUE(server_.wait_for("experiments/get-by-name?experiment_name=digits%20%26%20more", 1));
  const auto begin = Clock::now();
  log(logger, 2);
  EXPECT_LT(seconds_since(begin), 5) << "a call does not wait the 60 s of a request";
  logger.finish(true);
  EXPECT_LT(seconds_since(begin), 5);
  EXPECT_THAT(unsent_steps(), ElementsAre(1, 2));
}

TEST_F(MlflowLoggerTest, IsDestroyedWithoutWaitingForTheServer) {
  server_.fall_silent();
  report::MlflowLoggerOptions patient = options();
  patient.request_timeout = Milliseconds(60'000);
  const auto begin = Clock::now();
  {
    report::MlflowLogger logger(patient);
    log(logger, 1);
    ASSERT_TRUE(server_.wait_for("experiments/get-by-name?experiment_name=digits%20%26%20more", 1));
    log(logger, 2);
  }
  EXPECT_LT(seconds_since(begin), 5);
  EXPECT_THAT(unsent_steps(), ElementsAre(1, 2));
  EXPECT_TRUE(unsent("runs/update").empty());
}

// The process ends by an error, for example. The server continues to show the run as running.
TEST_F(MlflowLoggerTest, KeepsTheRestOfARunThatDidNotFinish) {
  {
    report::MlflowLogger logger(seldom());
    log(logger, 1);
    log(logger, 2);
  }
  EXPECT_TRUE(server_.requests().empty());
  EXPECT_THAT(unsent_steps(), ElementsAre(1, 2));
  EXPECT_TRUE(unsent("runs/update").empty()) << "nothing says that the run has ended";
  EXPECT_THAT(log_.lines(),
              ElementsAre(warning_of("the run ended before the server had taken everything")));
}

TEST_F(MlflowLoggerTest, SaysNothingOfARunThatLoggedNothing) {
  {
    const report::MlflowLogger logger(seldom());
  }
  EXPECT_TRUE(server_.requests().empty());
  EXPECT_TRUE(folder_.names().empty());
  EXPECT_TRUE(log_.lines().empty());
}

// The values that fit are sent. Those of one call are either all queued or all kept.
TEST_F(MlflowLoggerTest, KeepsTheCallThatDoesNotFitTheQueue) {
  report::MlflowLoggerOptions small = seldom();
  small.capacity = 3;
  report::MlflowLogger logger(small);
  log(logger, 1);
  log(logger, 2);
  const NamedValue values[] = {{"train/loss", 0.5}, {"train/accuracy", 0.25}};
  logger.log_scalars({.step = 3, .time = 1000.5}, values);
  EXPECT_THAT(unsent_steps(), ElementsAre(3, 3));
  log(logger, 4);
  log(logger, 5);
  logger.finish(true);
  EXPECT_THAT(unsent_steps(), ElementsAre(3, 3, 5));
  EXPECT_THAT(sent_steps(), ElementsAre(1, 2, 4));
  EXPECT_THAT(log_.lines(), ElementsAre(warning_of("the server is slower than the training")));
}

TEST_F(MlflowLoggerTest, KeepsWhatExceedsTheQueue) {
  server_.fall_silent();
  report::MlflowLoggerOptions small = options();
  small.request_timeout = Milliseconds(60'000);
  small.finish_timeout = Milliseconds(100);
  small.capacity = 50;
  report::MlflowLogger logger(small);
  log(logger, 1);
  ASSERT_TRUE(server_.wait_for("experiments/get-by-name?experiment_name=digits%20%26%20more", 1));
  for (std::int64_t step = 2; step <= 200; ++step) log(logger, step);
  logger.finish(true);
  std::vector<std::int64_t> steps = unsent_steps();
  std::ranges::sort(steps);
  ASSERT_EQ(steps.size(), 200U) << "none is lost, none is there twice";
  for (std::size_t i = 0; i < steps.size(); ++i)
    EXPECT_EQ(steps[i], static_cast<std::int64_t>(i + 1));
}

// The network fails during the run. The batches from that time are kept, and later ones are sent,
// as is the end of the run.
TEST_F(MlflowLoggerTest, GoesOnAfterAnOutage) {
  report::MlflowLogger logger(options());
  log(logger, 1);
  ASSERT_TRUE(server_.wait_for("runs/log-batch", 1));
  server_.answer_with(503);
  log(logger, 2);
  ASSERT_TRUE(server_.wait_for("runs/log-batch", 4)) << "three attempts";
  server_.answer_with(200);
  log(logger, 3);
  ASSERT_TRUE(server_.wait_for("runs/log-batch", 5));
  logger.finish(true);
  EXPECT_THAT(unsent_steps(), ElementsAre(2));
  EXPECT_EQ(bodies_of("runs/log-batch").back()["metrics"][0]["step"], 3);
  EXPECT_EQ(bodies_of("runs/update").back()["status"], "FINISHED");
  EXPECT_THAT(log_.lines(), SizeIs(1));
}

// Otherwise the server, which knows the run, would show it as running for ever.
TEST_F(MlflowLoggerTest, EndsTheRunAlsoBehindABatchThatFailed) {
  report::MlflowLogger logger(options());
  log(logger, 1);
  ASSERT_TRUE(server_.wait_for("runs/log-batch", 1));
  server_.answer_with(503, "runs/log-batch");
  log(logger, 2);
  logger.finish(true);
  EXPECT_THAT(unsent_steps(), ElementsAre(2));
  EXPECT_EQ(bodies_of("runs/update").back()["status"], "FINISHED");
  EXPECT_TRUE(unsent("runs/update").empty());
}

// The server rejects the parameter, for example because its text is too long.
TEST_F(MlflowLoggerTest, LosesNoValuesToAHyperParameterThatIsRefused) {
  server_.answer_with(400, "runs/log-batch");
  report::MlflowLogger logger(options());
  const std::vector<HyperParameter> parameters{{"note", std::string(10'000, 'x')}};
  logger.log_hyper_parameters(parameters);
  ASSERT_TRUE(server_.wait_for("runs/log-batch", 1));
  server_.answer_with(200);
  log(logger, 1);
  logger.finish(true);
  EXPECT_EQ(bodies_of("runs/log-batch").back()["metrics"].size(), 1U);
  ASSERT_THAT(unsent("runs/log-batch"), SizeIs(1));
  EXPECT_EQ(unsent("runs/log-batch")[0]["params"].size(), 1U);
}

TEST_F(MlflowLoggerTest, SaysOnceThatValuesAreLost) {
  report::MlflowLoggerOptions full = options();
  full.folder = "/dev/null/run";
  server_.answer_with(400);
  report::MlflowLogger logger(full);
  log(logger, 1);
  ASSERT_TRUE(server_.wait_for("experiments/get-by-name?experiment_name=digits%20%26%20more", 1));
  log(logger, 2);
  logger.finish(true);
  ASSERT_THAT(log_.lines(), SizeIs(2));
  EXPECT_THAT(log_.lines()[1], HasSubstr("values are lost, because they could be neither sent nor "
                                         "kept: cannot create the folder /dev/null/run"));
}

// Half of this queue is zero values. A thread that waited for half a queue would never wait.
TEST_F(MlflowLoggerTest, WaitsWithAQueueOfOneValue) {
  server_.answer_with(503);
  report::MlflowLoggerOptions tiny = options();
  tiny.capacity = 1;
  tiny.first_pause = tiny.longest_pause = Milliseconds(300);
  report::MlflowLogger logger(tiny);
  log(logger, 1);
  ASSERT_TRUE(server_.wait_for("experiments/get-by-name?experiment_name=digits%20%26%20more", 1));
  timespec before{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &before);
  ASSERT_TRUE(server_.wait_for("experiments/get-by-name?experiment_name=digits%20%26%20more", 2));
  timespec after{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &after);
  const double used = static_cast<double>(after.tv_sec - before.tv_sec) +
                      1e-9 * static_cast<double>(after.tv_nsec - before.tv_nsec);
  EXPECT_LT(used, 0.15) << "of the pause of 0.3 s";
  logger.finish(true);
}

TEST_F(MlflowLoggerTest, RefusesOptionsThatCannotBe) {
  report::MlflowLoggerOptions none = options();
  none.capacity = 0;
  EXPECT_EQ(message_of<ConfigError>([&] { report::MlflowLogger{none}; }),
            "MlflowLogger: capacity must be at least 1, got 0");
  report::MlflowLoggerOptions endless = options();
  endless.request_timeout = Milliseconds(0);
  EXPECT_EQ(message_of<ConfigError>([&] { report::MlflowLogger{endless}; }),
            "MlflowLogger: request_timeout must be at least 1, got 0");
}

TEST_F(MlflowLoggerTest, ProvesWhoItIs) {
  report::MlflowLoggerOptions with_password = options();
  with_password.server.credentials = {.username = "ada", .password = "secret"};
  report::MlflowLogger(with_password).finish(true);
  EXPECT_THAT(server_.requests()[0].head, HasSubstr("Authorization: Basic YWRhOnNlY3JldA=="));
  report::MlflowLoggerOptions with_token = options();
  with_token.server.credentials = {.token = "t0ken"};
  report::MlflowLogger(with_token).finish(true);
  EXPECT_THAT(server_.requests().back().head,
              ::testing::AllOf(HasSubstr("Authorization: Bearer t0ken"),
                               HasSubstr("Content-Type: application/json"),
                               HasSubstr("User-Agent: lockstep")));
}

// The address of the double with the user's part.
std::string with_user(const std::string& url, const std::string& user) {
  return "http://" + user + "@" + url.substr(std::string("http://").size());
}

TEST_F(MlflowLoggerTest, TakesCredentialsOutOfTheAddress) {
  report::MlflowLoggerOptions given = options();
  given.server.tracking_uri = with_user(server_.url(), "ada:s%65cret");
  report::MlflowLogger logger(given);
  EXPECT_EQ(logger.place(), server_.url());
  logger.finish(true);
  EXPECT_THAT(server_.requests()[0].head, HasSubstr("Authorization: Basic YWRhOnNlY3JldA=="));
  given.server.credentials = {.username = "", .password = "secret"};  // only a name in the address
  given.server.tracking_uri = with_user(server_.url(), "ada");
  report::MlflowLogger(given).finish(true);
  EXPECT_THAT(server_.requests().back().head, HasSubstr("Authorization: Basic YWRhOnNlY3JldA=="));
  given.server.credentials = {.username = "ada", .password = "secret"};
  given.server.tracking_uri = with_user(server_.url(), "eve:hidden");
  report::MlflowLogger(given).finish(true);
  EXPECT_THAT(server_.requests().back().head, HasSubstr("Authorization: Basic YWRhOnNlY3JldA=="));
}

TEST_F(MlflowLoggerTest, ShowsAndKeepsNoCredentials) {
  for (const bool answers : {true, false}) {
    report::MlflowLoggerOptions given = options();
    given.server.tracking_uri =
        with_user(answers ? server_.url() : "http://127.0.0.1:9", "ada:secret");
    server_.answer_with(400);
    report::MlflowLogger logger(given);
    log(logger, 1);
    logger.finish(true);
  }
  EXPECT_EQ(log_.lines().size(), 2U);
  for (const std::string& line : log_.lines()) {
    EXPECT_THAT(line, ::testing::Not(HasSubstr("secret")));
    EXPECT_THAT(line, HasSubstr("http://127.0.0.1:"));
  }
  EXPECT_THAT(read_text(folder_ / "mlflow_unsent.jsonl"), ::testing::Not(HasSubstr("secret")));
  // libcurl quotes an address of a proxy that it does not understand.
  environment_.set("http_proxy", "socks9://ada:secret@127.0.0.1:9");
  report::HttpClient client;
  const std::atomic<bool> cancelled = false;
  EXPECT_THAT(message_of<CommError>([&] {
                client.get("http://ada:secret@192.0.2.1/", Milliseconds(1000), cancelled);
              }),
              ::testing::AllOf(HasSubstr("no answer from http://***@192.0.2.1/: "),
                               ::testing::Not(HasSubstr("secret"))));
  for (const char* wrong :
       {"ftp://ada:secret@host", "ada:secret@host", "http://ada:12/secret@host"}) {
    EXPECT_THAT(message_of<ConfigError>([&] { report::check_mlflow_uri("uri", wrong); }),
                ::testing::AllOf(HasSubstr("got '"), ::testing::Not(HasSubstr("secret"))));
  }
  EXPECT_THAT(message_of<ConfigError>(
                  [&] { report::check_mlflow_uri("uri", "http://ada:12/secret@host"); }),
              ::testing::StartsWith("uri has an '@' in its path, or a password with a '/', a '?' "
                                    "or a '#': write these characters as %40, %2F, %3F and %23, "
                                    "got '"));
}

TEST_F(MlflowLoggerTest, RefusesOtherKindsOfAddresses) {
  for (const std::string uri : {"", "mlruns", "file:///tmp/mlruns", "sqlite:///x.db", "http://"}) {
    report::MlflowLoggerOptions wrong = options();
    wrong.server.tracking_uri = uri;
    EXPECT_EQ(message_of<ConfigError>([&] { report::MlflowLogger{wrong}; }),
              "MlflowClient: tracking_uri must be the address of an MLflow server, "
              "http://HOST:PORT or https://, got '" +
                  uri + "'");
  }
}

TEST_F(MlflowLoggerTest, CostsLessThanFiveMicrosecondsAScalar) {
  report::MlflowLogger logger(options());
  const auto thread_seconds = [] {
    timespec time{};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
  };
  constexpr int kCalls = 2000;
  std::int64_t step = 0;
  double least = 1;
  for (int trial = 0; trial < 7; ++trial) {
    const double begin = thread_seconds();
    for (int call = 0; call < kCalls; ++call) {
      const NamedValue values[] = {{"train/loss", 0.5}, {"train/learning_rate", 0.1}};
      logger.log_scalars(moment_at(++step), values);
    }
    least = std::min(least, (thread_seconds() - begin) / (2 * kCalls));
  }
  std::printf("%-12s %5.2f us a scalar\n", "mlflow", least * 1e6);
  EXPECT_LT(least, 5e-6);
  logger.finish(true);
}

}  // namespace
}  // namespace lockstep::testing_support
