// The parts of MLflow's REST interface, version 2.0, that a run needs.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <lockstep/report/loggers/http_client.h>
#include <lockstep/report/loggers/mlflow_server.h>

namespace lockstep::report {

/// Throws a ConfigError that begins with `what` unless `uri` begins with http:// or https://.
/// MLflow's other kinds of address are folders and databases, which only its own client can write.
void check_mlflow_uri(const std::string& what, const std::string& uri);

/// Moves a user and a password in the address to the credentials, whose own username wins. The
/// address may then be shown.
MlflowServer with_credentials_apart(MlflowServer server);

struct MlflowMetric {
  std::string key{};
  double value = 0;
  std::int64_t time_ms = 0;  ///< since 1970
  std::int64_t step = 0;
};

struct MlflowParameter {
  std::string key{};
  std::string value{};
};

/// A text of the run; only the last one for each key is kept.
struct MlflowTag {
  static constexpr std::size_t kMostBytes = 5000;  ///< longest value that every server accepts

  std::string key{};
  std::string value{};
};

/// The contents of one request. Servers accept at most 1000 metrics, 100 parameters and 100 tags,
/// and at most 1000 entries in total.
struct MlflowBatch {
  static constexpr std::size_t kMostMetrics = 900;
  static constexpr std::size_t kMostParameters = 100;
  static constexpr std::size_t kMostTags = 100;

  std::vector<MlflowMetric> metrics{};
  std::vector<MlflowParameter> parameters{};
  std::vector<MlflowTag> tags{};

  bool empty() const { return metrics.empty() && parameters.empty() && tags.empty(); }
};

/// `name` as an MLflow key, which allows letters, digits and "_-. :/"; others become "_".
std::string mlflow_key(std::string_view name);

/// The body of runs/log-batch, with names converted by mlflow_key(); an empty `run_id` is left out.
/// Non-finite numbers are the words NaN, Infinity and -Infinity, as in MLflow's own client.
std::string log_batch_json(const MlflowBatch& batch, const std::string& run_id);

/// The body of runs/update that ends a run; an empty `run_id` is left out.
std::string update_run_json(bool success, std::int64_t end_time_ms, const std::string& run_id);

/// A run on a server. The first call of send() or end_run() creates it, and its experiment if
/// necessary; after a failure the next call retries. Use it from one thread at a time.
///
/// send() and end_run() throw CommError if no answer came within `timeout` or the server is
/// temporarily unable to answer (408, 429, 5xx): retry. They throw DataError, with the server's
/// message, if it refuses: do not retry.
class MlflowClient {
 public:
  /// Throws ConfigError if the address is invalid or the HTTP module is missing.
  MlflowClient(MlflowServer server, std::string run_name, std::int64_t start_time_ms);

  void send(const MlflowBatch& batch, std::chrono::milliseconds timeout,
            const std::atomic<bool>& cancelled);
  void end_run(bool success, std::int64_t end_time_ms, std::chrono::milliseconds timeout,
               const std::atomic<bool>& cancelled);

  /// Empty until the server has assigned it.
  const std::string& run_id() const { return run_id_; }

 private:
  struct Call;
  void begin_run(const Call& call);
  std::string find_experiment(const Call& call);
  std::string url(const std::string& path) const;

  MlflowServer server_;
  std::string run_name_;
  std::int64_t start_time_ms_;
  HttpClient http_;
  std::string run_id_;
};

}  // namespace lockstep::report
