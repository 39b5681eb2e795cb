#include <lockstep/cli/train/train_outputs.h>

#include <algorithm>
#include <chrono>

#include <lockstep/bench/word_list.h>
#include <lockstep/core/environment.h>
#include <lockstep/core/error.h>
#include <lockstep/core/file.h>
#include <lockstep/core/options.h>
#include <lockstep/report/json_report.h>
#include <lockstep/report/loggers/mlflow_client.h>
#include <lockstep/report/run_place.h>
#include <lockstep/report/run_record.h>
#include <lockstep/train/checkpoints/checkpoint_folder.h>

namespace lockstep::cli {
namespace {

// The value of --resume; absent: the option is not given.
Resume parse_resume(const std::optional<std::string>& text) {
  if (!text) return Resume::kNo;
  if (*text == kResumeFlag) return Resume::kYes;
  if (*text == "auto") return Resume::kAuto;
  throw ConfigError(lockstep::str("train: --resume takes no value or the value auto, got '", *text,
                                  "'; the folder of the run is the value of --out"));
}

// Resolves --resume and --overwrite.
void resolve_resume(const TrainArguments& arguments, TrainSettings& settings) {
  settings.trainer.resume = parse_resume(arguments.resume);
  settings.trainer.overwrite = arguments.overwrite;
  if (!settings.trainer.resume) return;
  if (settings.out.empty())
    throw ConfigError("train: --resume needs --out DIR, the folder of the run to resume");
  if (arguments.overwrite) throw ConfigError("train: --resume and --overwrite cannot be combined");
  if (settings.trainer.fast_dev_run > 0)
    throw ConfigError(
        "train: --resume cannot be combined with --fast-dev-run, which keeps no checkpoints; "
        "remove one of them");
}

bool decides_to_resume(const TrainSettings& settings) {
  const TrainerOptions& trainer = settings.trainer;
  return train::decide_resume(trainer.checkpoints, trainer.resume, trainer.overwrite);
}

// Locks --out, so that its contents do not change, and decides whether the run resumes.
void claim_out(TrainSettings& settings) {
  if (settings.out.empty()) return;
  make_writable_directory(settings.out);
  settings.out_lock = std::make_shared<const FileLock>(
      settings.out / report::kRunLock, lockstep::str("train: --out ", settings.out.string()));
  // Nobody else holds the lock, so a run that is said to be running here was killed.
  close_record(settings.out, "interrupted", report::kEndedUnnoticed);
  settings.resumes = decides_to_resume(settings);
}

// Resolves --shutdown-timeout.
void resolve_shutdown(const TrainArguments& arguments, TrainSettings& settings) {
  const double seconds = arguments.shutdown_timeout_seconds.value_or(kShutdownTimeout);
  OptionCheck("train").in_range("--shutdown-timeout", seconds, 0.1, 1e6);
  if (arguments.shutdown_timeout_seconds && settings.out.empty()) {
    throw ConfigError("train: --shutdown-timeout needs --out DIR, where an interrupted run saves");
  }
  settings.shutdown_timeout = std::chrono::milliseconds(static_cast<std::int64_t>(seconds * 1000));
}

// Resolves --logger, --log-dir and --mlflow-uri.
void resolve_loggers(const TrainArguments& arguments, TrainSettings& settings) {
  if (arguments.logger) settings.loggers = bench::words_of(*arguments.logger);
  check_loggers("train: --logger", settings.loggers);
  const bool to_mlflow = std::ranges::find(settings.loggers, "mlflow") != settings.loggers.end();
  if (arguments.log_dir && settings.loggers.empty()) {
    throw ConfigError("train: --log-dir has no effect without --logger");
  }
  if (arguments.mlflow_uri && !to_mlflow) {
    throw ConfigError("train: --mlflow-uri has no effect without --logger mlflow");
  }
  if (settings.loggers.empty()) return;
  LoggerSetup& setup = settings.logger_setup;
  setup.run_name = settings.recipe->name;
  setup.directory = arguments.log_dir.value_or(settings.out.string());
  setup.project = environment_string("WANDB_PROJECT").value_or(setup.project);
  MlflowServer& mlflow = setup.mlflow;
  mlflow.tracking_uri =
      arguments.mlflow_uri.value_or(environment_string("MLFLOW_TRACKING_URI").value_or(""));
  mlflow.experiment = environment_string("MLFLOW_EXPERIMENT_NAME").value_or(mlflow.experiment);
  mlflow.credentials = {.username = environment_string("MLFLOW_TRACKING_USERNAME").value_or(""),
                        .password = environment_string("MLFLOW_TRACKING_PASSWORD").value_or(""),
                        .token = environment_string("MLFLOW_TRACKING_TOKEN").value_or("")};
  if (to_mlflow) {
    report::check_mlflow_uri(
        "train: --mlflow-uri (or MLFLOW_TRACKING_URI), which --logger mlflow needs,",
        mlflow.tracking_uri);
  }
  if (setup.directory.empty()) {
    throw ConfigError(
        "train: --logger needs a folder to write to: give --log-dir DIR or --out DIR");
  }
}

// Sets the path of the trace, and refuses histograms without loggers.
void resolve_report_files(TrainSettings& settings) {
  TrainerOptions& trainer = settings.trainer;
  if (trainer.log_histograms_every_n_steps > 0 && settings.loggers.empty()) {
    throw ConfigError("train: --log-histograms-every-n-steps has no effect without --logger");
  }
  if (trainer.log_histograms_every_n_steps > 0 && settings.has_pipeline &&
      settings.world_size > 1) {
    throw ConfigError(lockstep::str(
        "train: --log-histograms-every-n-steps looks at the whole model on rank 0, but --strategy ",
        settings.strategy,
        " divides it among the ranks; use --strategy ddp, or a pipeline in one "
        "process"));
  }
  if (!trainer.trace.file.empty()) {
    if (settings.out.empty()) {
      throw ConfigError(
          lockstep::str("train: --trace needs --out DIR, where ", kTraceFile, " is written"));
    }
    trainer.trace.file = settings.out / kTraceFile;
  }
  if (trainer.profiler.kind != Profiler::kTrace) return;
  if (settings.out.empty()) {
    throw ConfigError("train: --profiler trace needs --out DIR, where operations.json is written");
  }
  trainer.profiler.trace_file = settings.out / "operations.json";
}

}  // namespace

void resolve_outputs(const TrainArguments& arguments, TrainSettings& settings) {
  if (arguments.out) settings.out = *arguments.out;
  if (arguments.json) settings.json = *arguments.json;
  settings.trainer.checkpoints = resolve_checkpoints(arguments.checkpoints, settings.out);
  resolve_shutdown(arguments, settings);
  resolve_resume(arguments, settings);
  resolve_loggers(arguments, settings);
  resolve_report_files(settings);
  settings.resumes = settings.trainer.resume.mode() == Resume::kYes;
  if (!settings.speaks()) return;
  if (settings.resumes) decides_to_resume(settings);  // creates nothing if it cannot resume
  // Checked before the training, whose results would otherwise be lost. A trial keeps nothing, so
  // it does not claim --out.
  if (settings.trainer.fast_dev_run == 0) claim_out(settings);
  if (!settings.json.empty()) report::JsonReport(settings.json).on_run_begin({});
  if (!settings.loggers.empty()) make_writable_directory(settings.logger_setup.directory);
}

}  // namespace lockstep::cli
