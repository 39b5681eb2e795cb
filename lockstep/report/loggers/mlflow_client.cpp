#include <lockstep/report/loggers/mlflow_client.h>

#include <string_view>
#include <utility>

#include <nlohmann/json.hpp>

#include <lockstep/core/credentials.h>
#include <lockstep/core/encoding/json_text.h>
#include <lockstep/core/error.h>
#include <lockstep/formats/logged_text.h>

namespace lockstep::report {
namespace {

using MlflowJson = nlohmann::json;

constexpr formats::NumberWords kMlflowNumberWords{"\"NaN\"", "\"Infinity\"", "\"-Infinity\""};
constexpr long kHttpOk = 200;
constexpr long kHttpBadRequest = 400;
constexpr long kHttpNotFound = 404;
constexpr std::size_t kMostWordsOfServer = 300;

MlflowServer checked(MlflowServer server) {
  server = with_credentials_apart(std::move(server));
  check_mlflow_uri("MlflowClient: tracking_uri", server.tracking_uri);
  while (server.tracking_uri.ends_with('/')) server.tracking_uri.pop_back();
  return server;
}

bool is_passing(long status) { return status == 408 || status == 429 || status >= 500; }

// The server's reason in one line: the message in its JSON, or the beginning of its answer.
std::string server_words(const HttpAnswer& answer) {
  const MlflowJson json = MlflowJson::parse(answer.text, nullptr, false);
  std::string text = answer.text;
  if (json.is_object() && json.contains("message") && json["message"].is_string()) {
    text = json["message"].get<std::string>();
  }
  for (char& letter : text) {
    if (static_cast<unsigned char>(letter) < ' ') letter = ' ';
  }
  // A password that is cut before its "@" could not be found any more.
  return without_credentials(text).substr(0, kMostWordsOfServer);
}

[[noreturn]] void throw_refusal(const std::string& url, const HttpAnswer& answer) {
  const std::string text = without_credentials(
      str(word_without_credentials(url), " answered ", answer.status, ": ", server_words(answer)));
  if (is_passing(answer.status)) throw CommError(text);
  throw DataError(text);
}

// The text at `path` ("/run/info/run_id") in an answer.
std::string text_in(const std::string& url, const HttpAnswer& answer, const std::string& path) {
  if (answer.status != kHttpOk) throw_refusal(url, answer);
  const MlflowJson json = MlflowJson::parse(answer.text, nullptr, false);
  const MlflowJson::json_pointer place(path);
  if (json.is_discarded() || !json.contains(place) || !json[place].is_string()) {
    throw DataError(str(url, " answered without ", path,
                        ", so it is no MLflow server: ", server_words(answer)));
  }
  return json[place].get<std::string>();
}

// A list of {"key": ..., "value": ...} objects.
template <class Text>
void append_texts(std::string& json, const std::vector<Text>& texts) {
  const char* before = "";
  for (const Text& text : texts) {
    json.append(before).append("{\"key\":").append(formats::json_string(mlflow_key(text.key)));
    json.append(",\"value\":").append(formats::json_string(text.value)).append("}");
    before = ",";
  }
}

}  // namespace

struct MlflowClient::Call {
  std::chrono::milliseconds timeout;
  const std::atomic<bool>& cancelled;
};

void check_mlflow_uri(const std::string& what, const std::string& uri) {
  // Otherwise a part of a password would be taken for the port, and shown if there is no answer.
  if (address_parts(uri).address.find('@') != std::string::npos) {
    throw ConfigError(str(what,
                          " has an '@' in its path, or a password with a '/', a '?' or a '#': "
                          "write these characters as %40, %2F, %3F and %23, got '",
                          word_without_credentials(uri), "'"));
  }
  for (const std::string_view scheme : {"http://", "https://"}) {
    if (uri.starts_with(scheme) && uri.size() > scheme.size()) return;
  }
  throw ConfigError(
      str(what, " must be the address of an MLflow server, http://HOST:PORT or https://, got '",
          word_without_credentials(uri), "'"));
}

MlflowServer with_credentials_apart(MlflowServer server) {
  AddressParts parts = address_parts(server.tracking_uri);
  server.tracking_uri = std::move(parts.address);
  HttpCredentials& own = server.credentials;
  if (!own.username.empty() || parts.username.empty()) return server;
  own.username = std::move(parts.username);
  if (!parts.password.empty()) own.password = std::move(parts.password);
  return server;
}

std::string mlflow_key(std::string_view name) {
  std::string key(name);
  for (char& letter : key) {
    const bool is_kept = formats::is_ascii_alphanumeric(letter) ||
                         std::string_view("_-. :/").find(letter) != std::string_view::npos;
    if (!is_kept) letter = '_';
  }
  return key;
}

std::string log_batch_json(const MlflowBatch& batch, const std::string& run_id) {
  std::string json = "{";
  if (!run_id.empty()) json.append("\"run_id\":").append(formats::json_string(run_id)).append(",");
  json += "\"metrics\":[";
  const char* before = "";
  for (const MlflowMetric& metric : batch.metrics) {
    json.append(before)
        .append("{\"key\":")
        .append(formats::json_string(mlflow_key(metric.key)))
        .append(",\"value\":");
    formats::append_number(json, metric.value, kMlflowNumberWords);
    json += ",\"timestamp\":" + std::to_string(metric.time_ms);
    json += ",\"step\":" + std::to_string(metric.step) + '}';
    before = ",";
  }
  json += "],\"params\":[";
  append_texts(json, batch.parameters);
  if (!batch.tags.empty()) {
    json += "],\"tags\":[";
    append_texts(json, batch.tags);
  }
  return json + "]}";
}

std::string update_run_json(bool success, std::int64_t end_time_ms, const std::string& run_id) {
  MlflowJson body{{"status", success ? "FINISHED" : "FAILED"}, {"end_time", end_time_ms}};
  if (!run_id.empty()) body["run_id"] = run_id;
  return json_text(body);
}

MlflowClient::MlflowClient(MlflowServer server, std::string run_name, std::int64_t start_time_ms)
    : server_(checked(std::move(server))),
      run_name_(std::move(run_name)),
      start_time_ms_(start_time_ms),
      http_(server_.credentials) {}

void MlflowClient::send(const MlflowBatch& batch, std::chrono::milliseconds timeout,
                        const std::atomic<bool>& cancelled) {
  begin_run({timeout, cancelled});
  const std::string to = url("runs/log-batch");
  const HttpAnswer answer = http_.post(to, log_batch_json(batch, run_id_), timeout, cancelled);
  if (answer.status != kHttpOk) throw_refusal(to, answer);
}

void MlflowClient::end_run(bool success, std::int64_t end_time_ms,
                           std::chrono::milliseconds timeout, const std::atomic<bool>& cancelled) {
  begin_run({timeout, cancelled});
  const std::string to = url("runs/update");
  const HttpAnswer answer =
      http_.post(to, update_run_json(success, end_time_ms, run_id_), timeout, cancelled);
  if (answer.status != kHttpOk) throw_refusal(to, answer);
}

void MlflowClient::begin_run(const Call& call) {
  if (!run_id_.empty()) return;
  const std::string experiment_id = find_experiment(call);
  const std::string to = url("runs/create");
  const MlflowJson body{
      {"experiment_id", experiment_id},
      {"run_name", run_name_},
      {"start_time", start_time_ms_},
      {"tags", MlflowJson::array({{{"key", "mlflow.source.name"}, {"value", "lockstep"}}})}};
  run_id_ = text_in(to, http_.post(to, json_text(body), call.timeout, call.cancelled),
                    "/run/info/run_id");
}

std::string MlflowClient::find_experiment(const Call& call) {
  const std::string by_name =
      url("experiments/get-by-name?experiment_name=") + percent_encoded(server_.experiment);
  const auto ask = [&] { return http_.get(by_name, call.timeout, call.cancelled); };
  HttpAnswer answer = ask();
  if (answer.status == kHttpNotFound) {
    const std::string to = url("experiments/create");
    const HttpAnswer created =
        http_.post(to, "{\"name\":" + formats::json_string(server_.experiment) + "}", call.timeout,
                   call.cancelled);
    // Another run may have created it meanwhile.
    if (created.status != kHttpBadRequest) return text_in(to, created, "/experiment_id");
    answer = ask();
  }
  return text_in(by_name, answer, "/experiment/experiment_id");
}

std::string MlflowClient::url(const std::string& path) const {
  return server_.tracking_uri + "/api/2.0/mlflow/" + path;
}

}  // namespace lockstep::report
