#include <lockstep/report/loggers/mlflow_logger.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <utility>
#include <variant>

#include <lockstep/core/credentials.h>
#include <lockstep/core/error.h>
#include <lockstep/core/log.h>
#include <lockstep/core/options.h>
#include <lockstep/formats/logged_text.h>
#include <lockstep/report/loggers/run_folder.h>

namespace lockstep::report {
namespace {

constexpr int kAttemptsOfBatch = 3;

std::int64_t milliseconds_of(double seconds) { return std::llround(seconds * 1000); }

std::string parameter_text(const HyperParameter& parameter) {
  const auto* text = std::get_if<std::string>(&parameter.value);
  return text != nullptr ? *text : formats::json_value(parameter);
}

MlflowLoggerOptions checked_logger_options(MlflowLoggerOptions options) {
  const OptionCheck check("MlflowLogger");
  check.at_least("capacity", static_cast<double>(options.capacity), 1);
  // To libcurl, 0 means no timeout.
  check.at_least("request_timeout", static_cast<double>(options.request_timeout.count()), 1);
  options.server = with_credentials_apart(std::move(options.server));
  return options;
}

template <class Metrics>
void append_metrics(Metrics& to, const LogMoment& moment, std::span<const NamedValue> values) {
  const std::int64_t time = milliseconds_of(moment.time);
  for (const auto& [name, value] : values) {
    to.push_back({.key = std::string(name), .value = value, .time_ms = time, .step = moment.step});
  }
}

template <class T>
std::vector<T> take_front(std::deque<T>& from, std::size_t most) {
  const auto end = from.begin() + static_cast<std::ptrdiff_t>(std::min(most, from.size()));
  std::vector<T> taken(std::make_move_iterator(from.begin()), std::make_move_iterator(end));
  from.erase(from.begin(), end);
  return taken;
}

}  // namespace

MlflowLogger::MlflowLogger(MlflowLoggerOptions options)
    : options_(checked_logger_options(std::move(options))),
      client_(options_.server, options_.run_name, milliseconds_of(moment_at(0).time)),
      thread_([this] { run(); }) {}

MlflowLogger::~MlflowLogger() {
  if (!thread_.joinable()) return;
  abandoned_ = true;
  cancelled_ = true;
  end(false);
  thread_.join();
}

std::string MlflowLogger::place() const {
  return word_without_credentials(options_.server.tracking_uri);
}

void MlflowLogger::log_hyper_parameters(std::span<const HyperParameter> parameters) {
  const std::scoped_lock lock(mutex_);
  for (const HyperParameter& parameter : parameters) {
    parameters_.push_back({.key = parameter.name, .value = parameter_text(parameter)});
  }
}

void MlflowLogger::log_scalars(const LogMoment& moment, std::span<const NamedValue> values) {
  std::size_t before = 0;
  std::size_t after = 0;
  bool full = false;
  {
    const std::scoped_lock lock(mutex_);
    before = metrics_.size();
    full = before + values.size() > options_.capacity;
    if (!full) append_metrics(metrics_, moment, values);
    after = metrics_.size();
  }
  const auto reached = [&](std::size_t count) { return before < count && after >= count; };
  if (reached(MlflowBatch::kMostMetrics) || reached(half_of_queue())) wake_.notify_one();
  if (!full) return;
  MlflowBatch batch;
  append_metrics(batch.metrics, moment, values);
  tell_once("the server is slower than the training");
  keep(batch);
}

void MlflowLogger::log_table(const LogMoment& moment, std::string_view name,
                             const LoggedTable& table) {
  std::string value = "{\"step\":" + std::to_string(moment.step) + ',';
  value += formats::json_value(table).substr(1);
  if (value.size() > MlflowTag::kMostBytes) {
    if (std::exchange(told_of_table_, true)) return;
    log_warning("mlflow: the table ", name, " is left out: it has ", value.size(),
                " bytes as JSON, and a tag takes ", MlflowTag::kMostBytes);
    return;
  }
  const std::scoped_lock lock(mutex_);
  const auto same = std::ranges::find(tags_, name, &MlflowTag::key);
  if (same != tags_.end()) {  // not yet sent, and now obsolete
    same->value = std::move(value);
  } else {
    tags_.push_back({.key = std::string(name), .value = std::move(value)});
  }
}

void MlflowLogger::finish(bool success) {
  if (!thread_.joinable()) return;
  end(success);
  {
    std::unique_lock lock(mutex_);
    if (!done_.wait_for(lock, options_.finish_timeout, [this] { return is_done_; })) {
      cancelled_ = true;
    }
  }
  thread_.join();
}

void MlflowLogger::end(bool success) {
  const std::scoped_lock lock(mutex_);
  ended_ = success;
  wake_.notify_one();
}

bool MlflowLogger::has_ended() {
  const std::scoped_lock lock(mutex_);
  return ended_.has_value();
}

void MlflowLogger::run() {
  MlflowBatch batch;
  int attempts = 0;
  for (;;) {
    wait_for_work(!batch.empty());
    // Read before the queue is examined: nothing is queued after the end.
    const bool ended = has_ended();
    if (batch.empty()) {
      batch = take_batch();
      attempts = 0;
    }
    if (!batch.empty()) {
      try_to_send(batch, attempts);
    } else if (ended) {
      break;
    }
  }
  end_run();
  const std::scoped_lock lock(mutex_);
  is_done_ = true;
  done_.notify_all();
}

// Returns once a batch should be sent, or stored because too much is queued behind it.
void MlflowLogger::wait_for_work(bool has_batch) {
  std::unique_lock lock(mutex_);
  const auto interval_end = Clock::now() + options_.interval;
  const auto until = has_batch ? next_attempt_ : std::max(interval_end, next_attempt_);
  const std::size_t many = failures_ > 0 || has_batch ? half_of_queue() : MlflowBatch::kMostMetrics;
  wake_.wait_until(lock, until, [&] { return ended_.has_value() || metrics_.size() >= many; });
}

MlflowBatch MlflowLogger::take_batch() {
  const std::scoped_lock lock(mutex_);
  if (!parameters_.empty()) {
    return {.parameters = take_front(parameters_, MlflowBatch::kMostParameters)};
  }
  if (!tags_.empty()) return {.tags = take_front(tags_, MlflowBatch::kMostTags)};
  return {.metrics = take_front(metrics_, MlflowBatch::kMostMetrics)};
}

std::size_t MlflowLogger::half_of_queue() const {
  return std::max<std::size_t>(options_.capacity / 2, 1);
}

// Whether a batch goes to the file without another attempt: the server has just failed, and either
// the queue is filling up or no caller will wait for the batch.
bool MlflowLogger::must_keep() {
  if (cancelled_) return true;
  if (failures_ == 0 || Clock::now() >= next_attempt_) return false;
  const std::scoped_lock lock(mutex_);
  return ended_.has_value() || metrics_.size() >= half_of_queue();
}

void MlflowLogger::try_to_send(MlflowBatch& batch, int& attempts) {
  if (must_keep()) {
    tell_once("the run ended before the server had taken everything");
    keep(batch);
    batch = {};
    return;
  }
  try {
    client_.send(batch, options_.request_timeout, cancelled_);
    failures_ = 0;
    batch = {};
  } catch (const CommError& error) {
    tell_once(error.what());
    const Milliseconds pause = options_.first_pause * (std::int64_t{1} << std::min(failures_, 16));
    next_attempt_ = Clock::now() + std::min(pause, options_.longest_pause);
    ++failures_;
    if (++attempts < kAttemptsOfBatch && !has_ended()) return;
    keep(batch);
    batch = {};
  } catch (const std::exception& error) {
    tell_once(error.what());
    keep(batch);
    batch = {};
  }
}

// Also attempted after failures: otherwise the server would show an existing run as running
// forever.
void MlflowLogger::end_run() {
  if (abandoned_) return;
  bool success = false;
  {
    const std::scoped_lock lock(mutex_);
    success = ended_.value_or(false);
  }
  const std::int64_t time = milliseconds_of(moment_at(0).time);
  const bool is_hopeless = cancelled_ || (failures_ > 0 && client_.run_id().empty());
  try {
    if (!is_hopeless) {
      client_.end_run(success, time, options_.request_timeout, cancelled_);
      return;
    }
    tell_once("the run ended before the server had taken everything");
  } catch (const std::exception& error) {
    tell_once(error.what());
  }
  keep_request("runs/update", update_run_json(success, time, ""));
}

void MlflowLogger::keep(const MlflowBatch& batch) {
  keep_request("runs/log-batch", log_batch_json(batch, ""));
}

void MlflowLogger::keep_request(const std::string& path_of_request, const std::string& body) {
  const std::scoped_lock lock(unsent_mutex_);
  const std::filesystem::path path = options_.folder / "mlflow_unsent.jsonl";
  try {
    if (!unsent_) {
      make_folder(options_.folder);
      unsent_.emplace(path, AppendMode::kContinue);
    }
    unsent_->append("{\"path\":\"" + path_of_request + "\",\"body\":" + body + "}\n");
  } catch (const std::exception& error) {
    if (std::exchange(told_of_loss_, true)) return;
    log_warning("mlflow: values are lost, because they could be neither sent nor kept: ",
                error.what());
  }
}

void MlflowLogger::tell_once(const std::string& reason) {
  {
    const std::scoped_lock lock(unsent_mutex_);
    if (std::exchange(told_, true)) return;
  }
  log_warning("mlflow: ", reason, "; the training goes on, and what cannot be sent is kept in ",
              (options_.folder / "mlflow_unsent.jsonl").string());
}

}  // namespace lockstep::report
