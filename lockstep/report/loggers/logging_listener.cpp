#include <lockstep/report/loggers/logging_listener.h>

#include <algorithm>
#include <exception>
#include <string>
#include <utility>
#include <vector>

#include <lockstep/core/error.h>
#include <lockstep/core/log.h>

namespace lockstep {
namespace {

using Values = std::vector<NamedValue>;

const std::string kValidation = "validation/";

void add_phases(Values& values, const PhaseSeconds& phases) {
  values.push_back({"phases/data_seconds", phases.data});
  values.push_back({"phases/forward_seconds", phases.forward});
  values.push_back({"phases/backward_seconds", phases.backward});
  values.push_back({"phases/communication_seconds", phases.communication});
  values.push_back({"phases/optimizer_seconds", phases.optimizer});
}

// The results of an evaluation, under names that live in `names` until they have been logged.
void add_evaluation(Values& values, const Evaluation& test, std::vector<std::string>& names) {
  if (test.has_loss) values.push_back({"validation/loss", test.loss});
  names.reserve(test.values.size());  // moving a short string would invalidate views of it
  for (const MetricValue& each : test.values) {
    values.push_back({names.emplace_back(kValidation + each.name), each.value});
  }
}

}  // namespace

LoggingListener::LoggingListener(std::vector<std::unique_ptr<Logger>> loggers,
                                 std::vector<HyperParameter> more)
    : loggers_(std::move(loggers)), more_(std::move(more)) {}

std::unique_ptr<LoggingListener> LoggingListener::opened_by(
    std::function<std::vector<std::unique_ptr<Logger>>()> open, std::vector<HyperParameter> more) {
  auto listener =
      std::make_unique<LoggingListener>(std::vector<std::unique_ptr<Logger>>(), std::move(more));
  listener->open_ = std::move(open);
  return listener;
}

void LoggingListener::on_run_begin(const RunInfo& info) {
  steps_per_epoch_ = info.steps_per_epoch;
  if (info.already_complete) return;
  if (open_) loggers_ = std::exchange(open_, nullptr)();
  std::vector<HyperParameter> parameters = hyper_parameters_of(info);
  parameters.insert(parameters.end(), more_.begin(), more_.end());
  for (const auto& logger : loggers_) logger->log_hyper_parameters(parameters);
}

void LoggingListener::on_step(const StepReport& report) {
  step_ = (report.epoch - 1) * report.steps_per_epoch + report.step;
  const NamedValue values[] = {{"train/loss", report.loss},
                               {"train/learning_rate", report.learning_rate},
                               {"train/momentum", report.momentum.value_or(0)}};
  log(step_, std::span(values).first(report.momentum ? 3 : 2));
}

void LoggingListener::on_histograms(const HistogramReport& report) {
  step_ = (report.epoch - 1) * report.steps_per_epoch + report.step;
  const LogMoment moment = moment_at(step_);
  for (const auto& logger : loggers_) {
    for (const RunHistogram& each : report.histograms) {
      logger->log_histogram(moment, each.name, each.histogram);
    }
  }
}

void LoggingListener::on_evaluation(const EvaluationReport& report) {
  step_ = (report.epoch - 1) * report.steps_per_epoch + report.step;
  Values values;
  std::vector<std::string> names;
  add_evaluation(values, report.test, names);
  log(step_, values);
  log_tables(step_, report.test);
}

bool LoggingListener::takes_pictures() const {
  return std::ranges::any_of(loggers_, [](const auto& logger) { return logger->takes_images(); });
}

void LoggingListener::on_picture(const PictureReport& report) {
  if (step_ == 0) step_ = report.epoch * report.steps_per_epoch;  // the run had no steps left
  const RunPicture& picture = report.picture;
  const LoggedImage image = {.rgb = picture.rgb,
                             .width = static_cast<int>(picture.width),
                             .height = static_cast<int>(picture.height)};
  const LogMoment moment = moment_at(step_);
  for (const auto& logger : loggers_) logger->log_image(moment, "images/" + picture.name, image);
}

void LoggingListener::on_epoch_end(const EpochReport& report) {
  if (step_ == 0) step_ = report.epoch * steps_per_epoch_;  // the run had no steps left
  Values values{{"epoch", static_cast<double>(report.epoch)},
                {"train/epoch_loss", report.train_loss},
                {"train/images_per_second", report.images_per_second},
                {"train/seconds", report.seconds},
                {"memory/rss_bytes", static_cast<double>(report.rss_bytes)}};
  add_phases(values, report.phases);
  std::vector<std::string> names;
  if (report.test) add_evaluation(values, *report.test, names);
  log(step_, values);
  if (report.test) log_tables(step_, *report.test);
  for (const auto& logger : loggers_) logger->flush();
}

void LoggingListener::on_run_end(const RunReport& report) {
  // A run that was already complete has logged all this before, under its own name.
  if (!report.already_complete) {
    const NamedValue values[] = {
        {"memory/peak_rss_bytes", static_cast<double>(report.peak_rss_bytes)},
        {"run/seconds_total", report.seconds_total},
        {"run/seconds_to_first_step", report.seconds_to_first_step}};
    log(step_, values);
  }
  finish(report.stop_signal == 0);
}

void LoggingListener::on_exception(const std::exception&) noexcept {
  try {
    finish(false);
  } catch (const std::exception& failure) {
    log_warning("the logs of the run could not be ended: ", first_line(failure));
  }
}

void LoggingListener::log(std::int64_t step, std::span<const NamedValue> values) {
  const LogMoment moment = moment_at(step);
  for (const auto& logger : loggers_) logger->log_scalars(moment, values);
}

void LoggingListener::log_tables(std::int64_t step, const Evaluation& test) {
  const LogMoment moment = moment_at(step);
  for (const MetricTable& each : test.tables) {
    const std::string name = kValidation + each.name;
    const LoggedTable table = {.labels = each.labels, .rows = each.rows};
    for (const auto& logger : loggers_) logger->log_table(moment, name, table);
  }
}

// Ends all loggers, even after one fails: a full disk must not leave a run open on a server.
void LoggingListener::finish(bool success) {
  if (std::exchange(finished_, true)) return;
  std::exception_ptr failure;
  for (const auto& logger : loggers_) {
    try {
      logger->finish(success);
    } catch (...) {
      if (!failure) failure = std::current_exception();
    }
  }
  if (failure) std::rethrow_exception(failure);
}

std::vector<HyperParameter> hyper_parameters_of(const RunInfo& info) {
  std::vector<HyperParameter> all;
  const auto text = [&](const char* name, const std::string& value) {
    if (!value.empty()) all.push_back({name, value});
  };
  const auto number = [&](const char* name, std::int64_t value) { all.push_back({name, value}); };
  text("recipe", info.recipe);
  text("dataset", info.dataset);
  text("strategy", info.strategy);
  text("backend", info.backend);
  text("loader", info.loader);
  text("precision", info.precision);
  text("device", info.device);
  text("dp_loss", info.dp_loss);
  text("schedule_of_pipeline", info.schedule);
  all.push_back({"fused_kernels", info.fused_kernels});
  number("world_size", info.world_size);
  number("threads_per_rank", info.threads_per_rank);
  number("global_batch", info.global_batch);
  number("accumulate_grad_batches", info.accumulate_grad_batches);
  number("max_epochs", info.max_epochs);
  number("steps_per_epoch", info.steps_per_epoch);
  number("parameters", info.parameters);
  if (!info.dp_loss.empty()) number("devices", info.devices);
  if (info.stages > 0) {
    number("stages", info.stages);
    number("micro_batches", info.micro_batches);
    all.push_back({"recompute", info.recompute});
  }
  for (const auto& [name, value] : info.recipe_options) text(name.c_str(), value);
  for (const auto& [name, value] : info.provenance) {
    if (!info.recipe_options.contains(name)) text(name.c_str(), value);
  }
  text("weights", info.weights);
  text("resumed_from", info.resumed_from);
  return all;
}

}  // namespace lockstep
