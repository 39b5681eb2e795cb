// Scalars and hyper-parameters to an MLflow server, without the training waiting for it.
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

namespace lockstep {

struct MlflowLoggerOptions {
  MlflowServer server{};
  std::string run_name{};
  std::filesystem::path folder{};  ///< gets mlflow_unsent.jsonl where something cannot be sent
  Milliseconds interval{1000};     ///< between batches
  Milliseconds request_timeout{10'000};
  Milliseconds finish_timeout{10'000};  ///< how long finish() waits for the last batches
  Milliseconds first_pause{1000};       ///< after a failure; doubled from one to the next
  Milliseconds longest_pause{60'000};
  std::size_t capacity = 100'000;  ///< metrics that may wait to be sent
};

/// Puts what is logged into a queue, from which a thread of its own sends a batch every second. A
/// call costs less than a microsecond for each value and never waits for the server.
///
/// A server that is slow, down or refuses never fails the training: a batch is tried three times,
/// with growing pauses, and then kept in FOLDER/mlflow_unsent.jsonl, a line for each request,
/// {"path": "runs/log-batch", "body": {...}}. So is what exceeds the queue's capacity, and the end
/// of the run ("runs/update"). The log says so once. No histograms, no images.
///
/// The last table of each name is a tag of the run, as {"step":469,"labels":[...],"rows":[...]},
/// because MLflow's other place for a table is an artifact, whose store need not be the server's. A
/// table of more than MlflowTag::kMostBytes is left out, and the log says so once.
///
/// Hyper-parameters and tags have batches of their own: a server that refuses one, such as a text
/// that is too long for it, refuses its whole batch.
///
/// finish() waits until all is sent, at most `finish_timeout` and a second. The destructor waits
/// for no server: what is left then goes to the file, and without finish() the server goes on to
/// show the run as running.
class MlflowLogger final : public Logger {
 public:
  /// ConfigError for options and an address that cannot be, and where the module for HTTP is
  /// missing. Whether the server answers is only seen later.
  explicit MlflowLogger(MlflowLoggerOptions options);
  ~MlflowLogger() override;
  MlflowLogger(const MlflowLogger&) = delete;
  MlflowLogger& operator=(const MlflowLogger&) = delete;

  std::string place() const override { return options_.server.tracking_uri; }
  void log_hyper_parameters(std::span<const HyperParameter> parameters) override;
  void log_scalars(const LogMoment& moment, std::span<const NamedValue> values) override;
  void log_table(const LogMoment& moment, std::string_view name, const LoggedTable& table) override;
  void finish(bool success) override;

 private:
  // The thread.
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

  std::mutex mutex_;  // of what follows
  std::condition_variable wake_;
  std::condition_variable done_;
  std::deque<MlflowMetric> metrics_;
  std::deque<MlflowParameter> parameters_;
  std::deque<MlflowTag> tags_;
  std::optional<bool> ended_;  // and how, once finish() is called
  bool is_done_ = false;

  std::atomic<bool> cancelled_{false};  // ends a request that is under way
  std::atomic<bool> abandoned_{false};  // destroyed without finish()
  int failures_ = 0;                    // in a row; the thread's own
  Clock::time_point next_attempt_{};    // the thread's own
  bool told_of_table_ = false;          // the caller's own

  std::mutex unsent_mutex_;  // of what follows
  std::optional<AppendFile> unsent_;
  bool told_ = false;
  bool told_of_loss_ = false;

  std::thread thread_;
};

}  // namespace lockstep
