// What MlflowClient takes for a passing failure, and what it makes of a server's words.
#include <lockstep/report/loggers/mlflow_client.h>

#include <atomic>
#include <cmath>
#include <cstddef>
#include <filesystem>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <lockstep/core/clock.h>
#include <lockstep/core/error.h>
#include <lockstep/report/loggers/http_client.h>
#include <lockstep/report/loggers/logger_table.h>
#include <lockstep/report/loggers/mlflow_logger.h>
#include <tests/report/loggers/mlflow_double.h>
#include <tests/support/captured_log.h>
#include <tests/support/messages.h>
#include <tests/support/scoped_environment.h>
#include <tests/support/temporary_directory.h>

namespace lockstep::testing_support {
namespace {

using nlohmann::json;
using ::testing::ElementsAre;
using ::testing::EndsWith;
using ::testing::HasSubstr;

class MlflowClientTest : public testing::Test {
 protected:
  MlflowClientTest() {
    for (const char* name :
         {"http_proxy", "https_proxy", "all_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"}) {
      environment_.set(name, std::nullopt);
    }
  }

  // Sends one value to the server.
  void send(const std::string& url) const {
    report::MlflowClient client({.tracking_uri = url}, "run", 0);
    client.send({.metrics = {{.key = "loss", .value = 0.5}}}, Milliseconds(5000), cancelled_);
  }

  ScopedEnvironment environment_;
  const std::atomic<bool> cancelled_{false};
};

TEST_F(MlflowClientTest, TriesAgainOnlyAfterAPassingFailure) {
  MlflowDouble server;
  for (const int status : {408, 429, 500, 502, 503}) {
    server.answer_with(status);
    EXPECT_THAT(message_of<CommError>([&] { send(server.url()); }),
                HasSubstr(" answered " + std::to_string(status) + ": told to fail"));
  }
  for (const int status : {400, 401, 403, 404, 409, 422, 499}) {
    server.answer_with(status);
    EXPECT_THAT(message_of<DataError>([&] { send(server.url()); }),
                HasSubstr(" answered " + std::to_string(status) + ": told to fail"));
  }
  server.answer_with(200);
  EXPECT_NO_THROW(send(server.url() + "//")) << "slashes at the end of an address are harmless";
}

// Two runs begin at the same time, and the other one creates the experiment.
TEST_F(MlflowClientTest, TakesTheExperimentThatAnotherRunHasCreated) {
  int asked = 0;
  std::vector<std::string> paths;
  {
    const HttpServer server(HttpHandler([&](const HttpRequest& request) {
      const std::string path = request.path.substr(request.path.find("mlflow/") + 7);
      paths.push_back(path);
      if (path.starts_with("experiments/get-by-name")) {
        return ++asked == 1 ? HttpReply{.status = 404}
                            : HttpReply{.content = R"({"experiment": {"experiment_id": "7"}})"};
      }
      if (path == "experiments/create") return HttpReply{.status = 400};
      if (path == "runs/create") {
        EXPECT_EQ(json::parse(request.body)["experiment_id"], "7");
        return HttpReply{.content = R"({"run": {"info": {"run_id": "r1"}}})"};
      }
      return HttpReply{.content = "{}"};
    }));
    send(server.url());
  }
  EXPECT_THAT(paths,
              ElementsAre("experiments/get-by-name?experiment_name=lockstep", "experiments/create",
                          "experiments/get-by-name?experiment_name=lockstep", "runs/create",
                          "runs/log-batch"));
}

TEST_F(MlflowClientTest, ShowsALineOfWhatIsNoServerOfMlflow) {
  const std::string words = "first\nsecond\t" + std::string(400, 'x');
  const HttpServer server(
      HttpHandler([&](const HttpRequest&) { return HttpReply{.content = words}; }));
  EXPECT_THAT(message_of<DataError>([&] { send(server.url()); }),
              EndsWith(" answered without /experiment/experiment_id, so it is no MLflow server: "
                       "first second " +
                       std::string(300 - 13, 'x')));
}

// The limit would fall between a password and the "@" that follows it.
TEST_F(MlflowClientTest, HidesCredentialsBeforeItCutsTheServersWords) {
  const std::string words = std::string(282, 'x') + " http://ada:secret@host";
  for (const int status : {200, 400}) {
    const HttpServer server(HttpHandler(
        [&](const HttpRequest&) { return HttpReply{.status = status, .content = words}; }));
    EXPECT_THAT(message_of<DataError>([&] { send(server.url()); }), EndsWith("x http://***@host"))
        << status;
  }
}

TEST_F(MlflowClientTest, TakesTheBeginningOfALongAnswer) {
  const HttpServer server(HttpHandler([](const HttpRequest&) {
    return HttpReply{.status = 503, .content = std::string(200'000, 'y')};
  }));
  EXPECT_THAT(message_of<CommError>([&] { send(server.url()); }),
              EndsWith(" answered 503: " + std::string(300, 'y')));
}

// The server has one connection at a time, so it serves the second client only if the first one has
// closed its connection.
TEST_F(MlflowClientTest, KeepsAConnectionAsLongAsTheClientLives) {
  const HttpServer server(HttpHandler([](const HttpRequest& request) {
    return HttpReply{.content = "got " + request.body, .keeps_open = true};
  }));
  for (int clients = 1; clients <= 2; ++clients) {
    report::HttpClient client;
    EXPECT_EQ(client.post(server.url(), "one", Milliseconds(2000), cancelled_).text, "got one");
    EXPECT_EQ(client.get(server.url(), Milliseconds(2000), cancelled_).text, "got ")
        << "nothing of the request before it";
    EXPECT_EQ(client.post(server.url(), "two", Milliseconds(2000), cancelled_).text, "got two");
    EXPECT_EQ(server.requests(), clients) << "connections";
  }
}

TEST(MlflowJson, HasWordsForWhatIsNoNumber) {
  constexpr double kInfinite = std::numeric_limits<double>::infinity();
  const report::MlflowBatch batch{.metrics = {{.key = "a b", .value = std::nan(""), .step = 1},
                                              {.key = "\"b\"", .value = kInfinite, .time_ms = 2},
                                              {.key = "c/d", .value = -kInfinite, .time_ms = 3}},
                                  .parameters = {{.key = "p", .value = "1"}, {"q", "\"2\""}},
                                  .tags = {{.key = "t", .value = "3"}, {"u", "4"}}};
  EXPECT_EQ(json::parse(report::log_batch_json(batch, "")), json::parse(R"({
      "metrics": [{"key": "a b", "value": "NaN", "timestamp": 0, "step": 1},
                  {"key": "_b_", "value": "Infinity", "timestamp": 2, "step": 0},
                  {"key": "c/d", "value": "-Infinity", "timestamp": 3, "step": 0}],
      "params": [{"key": "p", "value": "1"}, {"key": "q", "value": "\"2\""}],
      "tags": [{"key": "t", "value": "3"}, {"key": "u", "value": "4"}]})"));
  EXPECT_EQ(json::parse(report::update_run_json(false, 5, "r")),
            json::parse(R"({"status": "FAILED", "end_time": 5, "run_id": "r"})"));
  EXPECT_EQ(report::percent_encoded("az AZ/09-_.~\xc3\xa9+"), "az%20AZ%2F09-_.~%C3%A9%2B");
}

// Servers refuse more than a hundred parameters or tags in one request.
TEST_F(MlflowClientTest, GetsParametersAndTagsInPiecesOfAHundred) {
  const TemporaryDirectory folder;
  const CapturedLog log;
  MlflowDouble server;
  report::MlflowLogger logger({.server = {.tracking_uri = server.url()},
                               .run_name = "run",
                               .folder = folder.path(),
                               .interval = Milliseconds(10'000)});
  std::vector<HyperParameter> parameters;
  for (int i = 0; i < 205; ++i) parameters.push_back({std::to_string(i), std::int64_t{i}});
  logger.log_hyper_parameters(parameters);
  const std::vector<std::vector<double>> rows{{1}};
  for (int i = 0; i < 101; ++i) {
    logger.log_table({.step = 1, .time = 2}, "table " + std::to_string(i), {.rows = rows});
  }
  logger.finish(true);
  std::vector<std::size_t> sizes, tags;
  int next = 0;
  for (const HttpRequest& request : server.requests()) {
    if (request.path != "runs/log-batch") continue;
    const json body = json::parse(request.body);
    if (body.contains("tags")) tags.push_back(body["tags"].size());
    if (body["params"].empty()) continue;
    sizes.push_back(body["params"].size());
    for (const json& parameter : body["params"]) {
      EXPECT_EQ(parameter["key"], std::to_string(next++));
    }
  }
  EXPECT_THAT(sizes, ElementsAre(100U, 100U, 5U));
  EXPECT_THAT(tags, ElementsAre(100U, 1U));
  EXPECT_THAT(log.lines(), ::testing::IsEmpty());
}

TEST_F(MlflowClientTest, GetsTheNameOfTheRunAndOfTheExperiment) {
  const TemporaryDirectory logs;
  const CapturedLog log;
  MlflowDouble server;
  const LoggerSetup setup{.directory = logs.path(),
                          .run_name = "mnist",
                          .mlflow = {.tracking_uri = server.url(), .experiment = "digits"}};
  const auto sent = make_loggers({"mlflow"}, setup);
  EXPECT_EQ(sent[0]->place(), server.url());
  EXPECT_FALSE(sent[0]->takes_images());
  sent[0]->finish(true);
  EXPECT_EQ(server.requests().at(0).path, "experiments/get-by-name?experiment_name=digits");
  for (const HttpRequest& request : server.requests()) {
    if (request.path != "runs/create") continue;
    const json run = json::parse(request.body);
    EXPECT_THAT(run["run_name"].get<std::string>(),
                ::testing::MatchesRegex("mnist-[0-9]+_[0-9]+-[0-9a-z]+"));
    EXPECT_GT(run["start_time"].get<std::int64_t>(), 1'700'000'000'000) << "milliseconds";
    EXPECT_EQ(run["tags"], json::parse(R"([{"key": "mlflow.source.name", "value": "lockstep"}])"));
  }
  EXPECT_TRUE(logs.names().empty()) << "nothing was left over";
  server.answer_with(400);
  const auto kept = make_loggers({"mlflow"}, setup);
  kept[0]->finish(true);
  ASSERT_EQ(logs.names().size(), 1U);
  const std::string folder = logs.names()[0];
  EXPECT_THAT(folder, ::testing::MatchesRegex("mnist-[0-9]+_[0-9]+-[0-9a-z]+"));
  EXPECT_TRUE(std::filesystem::exists(logs / (folder + "/mlflow_unsent.jsonl")));
}

TEST(MlflowDefaults, AreSecondsAndOurOwnExperiment) {
  const report::MlflowLoggerOptions options{};
  EXPECT_EQ(options.server.experiment, "lockstep");
  EXPECT_EQ(options.interval, Milliseconds(1000));
  EXPECT_EQ(options.request_timeout, Milliseconds(10'000));
  EXPECT_EQ(options.finish_timeout, Milliseconds(10'000));
  EXPECT_EQ(options.first_pause, Milliseconds(1000));
  EXPECT_EQ(options.longest_pause, Milliseconds(60'000));
  EXPECT_EQ(options.capacity, 100'000U);
}

}  // namespace
}  // namespace lockstep::testing_support
