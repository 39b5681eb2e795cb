// Sends scalars and hyper-parameters to an MLflow server without delaying the training.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <deque>
#include <filesystem>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <thread>

#include <lockstep/core/append_file.h>
#include <lockstep/core/clock.h>
#include <lockstep/report/loggers/logger.h>
#include <lockstep/report/loggers/mlflow_client.h>

namespace lockstep::report {

struct MlflowLoggerOptions {
  MlflowServer server{};
  std::string run_name{};
  std::filesystem::path folder{};  ///< gets mlflow_unsent.jsonl if something cannot be sent
  Milliseconds interval{1000};     ///< between batches
  Milliseconds request_timeout{10'000};
  Milliseconds finish_timeout{10'000};  ///< how long finish() waits for the last batches
  Milliseconds first_pause{1000};       ///< after a failure; doubled after each further one
  Milliseconds longest_pause{60'000};
  std::size_t capacity = 100'000;  ///< maximum number of metrics that wait to be sent
};

/// Queues logged values; a background thread sends them in batches every second. A call costs less
/// than a microsecond per value and never waits for the server.
///
/// A server that is slow, is down or refuses requests never fails the training: a batch is tried
/// three times, with growing pauses, and then stored in FOLDER/mlflow_unsent.jsonl, with a line for
/// each request: {"path": "runs/log-batch", "body": {...}}. Values that exceed the queue's capacity
/// and the end of the run ("runs/update") are stored the same way. The log warns once. Histograms
/// and images are not supported.
///
/// The last table logged under each name becomes a tag of the run:
/// {"step":469,"labels":[...],"rows":[...]}. MLflow's alternative, an artifact, may be stored
/// outside the server. A table of more than MlflowTag::kMostBytes is dropped, and the log warns
/// once.
///
/// Hyper-parameters and tags are sent in separate batches: a server that refuses one of them, for
/// example because its text is too long, refuses the whole batch.
///
/// finish() waits until everything is sent, but no longer than `finish_timeout` plus a second. The
/// destructor does not wait for a server: remaining values go to the file, and without finish() the
/// server continues to show the run as running.
class MlflowLogger final : public Logger {
 public:
  /// Throws ConfigError if an option or address is invalid or the HTTP module is missing. Does not
  /// check whether the server answers.
  explicit MlflowLogger(MlflowLoggerOptions options);
  ~MlflowLogger() override;
  MlflowLogger(const MlflowLogger&) = delete;
  MlflowLogger& operator=(const MlflowLogger&) = delete;

  std::string place() const override;
  void log_hyper_parameters(std::span<const HyperParameter> parameters) override;
  void log_scalars(const LogMoment& moment, std::span<const NamedValue> values) override;
  void log_table(const LogMoment& moment, std::string_view name, const LoggedTable& table) override;
  void finish(bool success) override;

 private:
  // Runs on the background thread.
  void run();
  void wait_for_work(bool has_batch);
  MlflowBatch take_batch();
  bool must_keep();
  void try_to_send(MlflowBatch& batch, int& attempts);
  void end_run();

  void end(bool success);
  std::size_t half_of_queue() const;
  void keep(const MlflowBatch& batch);
  void keep_request(const std::string& path_of_request, const std::string& body);
  void tell_once(const std::string& reason);
  bool has_ended();

  const MlflowLoggerOptions options_;
  MlflowClient client_;

  std::mutex mutex_;  // guards the members below
  std::condition_variable wake_;
  std::condition_variable done_;
  std::deque<MlflowMetric> metrics_;
  std::deque<MlflowParameter> parameters_;
  std::deque<MlflowTag> tags_;
  std::optional<bool> ended_;  // set by finish(): whether the run succeeded
  bool is_done_ = false;

  std::atomic<bool> cancelled_{false};  // ends a request in progress
  std::atomic<bool> abandoned_{false};  // destroyed without finish()
  int failures_ = 0;                    // consecutive; used by the thread only
  Clock::time_point next_attempt_{};    // used by the thread only
  bool told_of_table_ = false;          // used by the caller only

  std::mutex unsent_mutex_;  // guards the members below
  std::optional<AppendFile> unsent_;
  bool told_ = false;
  bool told_of_loss_ = false;

  std::thread thread_;
};

}  // namespace lockstep::report
