// MLflow's REST interface, version 2.0, as far as a run needs it.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <lockstep/report/loggers/http_client.h>

namespace lockstep {

/// Where runs go to.
struct MlflowServer {
  std::string tracking_uri{};           ///< http://HOST:PORT or https://...
  std::string experiment = "lockstep";  ///< created where there is none of that name
  HttpCredentials credentials{};
};

/// ConfigError, with `what` before it, unless `uri` begins with http:// or https://. MLflow's other
/// kinds of address are folders and databases, which only its own client writes.
void check_mlflow_uri(const std::string& what, const std::string& uri);

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

/// A text of the run, of which the last one of each key is kept.
struct MlflowTag {
  static constexpr std::size_t kMostBytes = 5000;  ///< of the value, which every server takes

  std::string key{};
  std::string value{};
};

/// What one request may hold: 1000 metrics, 100 parameters and 100 tags, at most 1000 things
/// together.
struct MlflowBatch {
  static constexpr std::size_t kMostMetrics = 900;
  static constexpr std::size_t kMostParameters = 100;
  static constexpr std::size_t kMostTags = 100;

  std::vector<MlflowMetric> metrics{};
  std::vector<MlflowParameter> parameters{};
  std::vector<MlflowTag> tags{};

  bool empty() const { return metrics.empty() && parameters.empty() && tags.empty(); }
};

/// `name` as a key of MLflow, which has letters, digits and "_-. :/" only; others become "_".
std::string mlflow_key(std::string_view name);

/// The body of runs/log-batch, with names as mlflow_key() makes them; without `run_id` where that
/// is empty. Numbers that are not finite are the words NaN, Infinity and -Infinity, as MLflow's own
/// client sends them.
std::string log_batch_json(const MlflowBatch& batch, const std::string& run_id);

/// The body of runs/update that ends a run; without `run_id` where that is empty.
std::string update_run_json(bool success, std::int64_t end_time_ms, const std::string& run_id);

/// A run on a server. The first call of send() or end_run() creates it, and its experiment where
/// need be; so does the next one if that failed. For one thread at a time.
///
/// CommError when no answer came within `timeout` or the server is not able to answer now (408,
/// 429, 5xx): worth another try. DataError, with the server's words, when it refuses: not worth
/// one.
class MlflowClient {
 public:
  /// ConfigError for an address that cannot be, and where the module for HTTP is missing.
  MlflowClient(MlflowServer server, std::string run_name, std::int64_t start_time_ms);

  void send(const MlflowBatch& batch, std::chrono::milliseconds timeout,
            const std::atomic<bool>& cancelled);
  void end_run(bool success, std::int64_t end_time_ms, std::chrono::milliseconds timeout,
               const std::atomic<bool>& cancelled);

  /// Empty until the server has given it.
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

}  // namespace lockstep
