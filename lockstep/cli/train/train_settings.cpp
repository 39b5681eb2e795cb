#include <lockstep/cli/train/train_settings.h>

#include <algorithm>
#include <charconv>

#include <lockstep/bench/word_list.h>
#include <lockstep/cli/image_options.h>
#include <lockstep/cli/launched_world.h>
#include <lockstep/cli/loader_data.h>
#include <lockstep/cli/mix_option.h>
#include <lockstep/cli/train/train_limits.h>
#include <lockstep/cli/train/train_schedule.h>
#include <lockstep/comm/call/backend_names.h>
#include <lockstep/core/environment.h>
#include <lockstep/core/error.h>
#include <lockstep/core/file.h>
#include <lockstep/core/options.h>
#include <lockstep/data/loader/loader_options.h>
#include <lockstep/optim/update_rule.h>
#include <lockstep/report/json_report.h>
#include <lockstep/train/optimization/precision.h>

namespace lockstep {
namespace {

constexpr const char* kLockFile = ".lockstep-lock";

// Takes rank and world size from the launcher that started this process, or from --nproc-per-node.
void resolve_world(const TrainArguments& arguments, TrainSettings& settings) {
  const OptionCheck check("train");
  if (arguments.nproc_per_node) {
    check.in_range("--nproc-per-node", *arguments.nproc_per_node, 1, 1024);
  }
  settings.worker = worker_environment();
  if (!settings.worker) {
    settings.world_size = arguments.nproc_per_node.value_or(1);
  } else {
    settings.world_size = settings.worker->world_size;
    check_nproc_per_node("train", arguments.nproc_per_node, *settings.worker);
  }
}

// ConfigError for options that the strategy does not support.
void refuse_foreign_options(const TrainArguments& arguments, const TrainSettings& settings) {
  const auto refuse = [](bool given, const std::string& option, const char* strategies) {
    if (!given) return;
    throw ConfigError(lockstep::str("train: ", option, " belongs to --strategy ", strategies));
  };
  if (settings.strategy != "dp") {
    refuse(arguments.devices.has_value(), "--devices", "dp");
    refuse(arguments.device_weights.has_value(), "--device-weights", "dp");
    refuse(arguments.dp_loss.has_value(), "--dp-loss", "dp");
  }
  if (!settings.has_pipeline) {
    const auto schedule = told_apart(arguments.schedule.schedules).of_pipeline;
    refuse(arguments.stages.has_value(), "--stages", "pipeline and hybrid");
    refuse(arguments.micro_batches.has_value(), "--micro-batches", "pipeline and hybrid");
    refuse(schedule.has_value(), "--schedule " + schedule.value_or(""), "pipeline and hybrid");
    refuse(arguments.recompute, "--recompute", "pipeline and hybrid");
  }
  if (settings.strategy != "ddp" && settings.strategy != "zero1") {
    refuse(arguments.sync_batchnorm, "--sync-batchnorm", "ddp and zero1");
    refuse(arguments.bucket_cap_mb.has_value(), "--bucket-cap-mb", "ddp and zero1");
  }
  if (settings.strategy != "hybrid") {
    refuse(arguments.shard_optimizer, "--shard-optimizer", "hybrid");
  }
}

// The number of workers of a pipeline. ConfigError if the recipe's model cannot be divided into its
// stages, or if the schedule does not allow their number.
int workers_of_pipeline(const TrainSettings& settings) {
  const StrategyOptions& options = settings.strategy_options;
  try {
    require_stages(*settings.recipe, options.stages);
    return workers_for(options.schedule, options.stages);
  } catch (const ConfigError& error) {
    throw ConfigError(lockstep::str("train: --strategy ", settings.strategy, ", --stages ",
                                    options.stages, ": ", error.what()));
  }
}

// Determines the number of ranks or threads of a pipeline, and the number of pipelines.
void resolve_pipeline(const TrainArguments& arguments, TrainSettings& settings) {
  const OptionCheck check("train");
  StrategyOptions& options = settings.strategy_options;
  options.micro_batches = arguments.micro_batches.value_or(options.micro_batches);
  options.recompute = arguments.recompute;
  options.shard_optimizer = arguments.shard_optimizer;
  options.timeout = settings.timeout;
  check.in_range("--micro-batches", options.micro_batches, 1, 65536);
  if (const auto schedule = told_apart(arguments.schedule.schedules).of_pipeline) {
    options.schedule = schedule_named(*schedule);
  }
  const int of_two_workers = 2 * stages_per_worker(options.schedule);
  options.stages = arguments.stages.value_or(of_two_workers);
  const int workers = workers_of_pipeline(settings);
  if (workers == 1 && options.stages > 1) {
    throw ConfigError(lockstep::str(
        "train: --stages ", options.stages, " by the schedule ", schedule_name(options.schedule),
        " are all on one worker, where nothing overlaps; give --stages ", of_two_workers));
  }
  const bool hybrid = settings.strategy == "hybrid";
  settings.data_shares = hybrid ? settings.world_size / workers : 1;
  settings.on_several_devices = !hybrid && settings.world_size == 1;
  if (settings.on_several_devices) settings.devices = workers;
  const int ranks = hybrid ? settings.data_shares * workers : workers;
  if (settings.on_several_devices || (ranks == settings.world_size && ranks > 0)) return;
  throw ConfigError(lockstep::str(
      "train: --strategy ", settings.strategy, " with --stages ", options.stages,
      " by the schedule ", schedule_name(options.schedule), " needs ",
      hybrid ? "a multiple of " : "", workers, workers == 1 ? " process" : " processes",
      hybrid ? "" : ", or one with threads", ", but there are ", settings.world_size));
}

double parse_device_weight(const std::string& word) {
  double weight = 0;
  const char* const end = word.data() + word.size();
  const auto [stop, error] = std::from_chars(word.data(), end, weight);
  if (error != std::errc() || stop != end || !(weight > 0) || weight > 1e6) {
    throw ConfigError(
        lockstep::str("train: --device-weights: expected numbers above 0 and up to 1e6, separated "
                      "by commas, such as 3,1; got '",
                      word, "'"));
  }
  return weight;
}

// Determines the number of devices of strategy dp, which is that of the weights if given.
void resolve_devices(const TrainArguments& arguments, TrainSettings& settings) {
  const OptionCheck check("train");
  if (arguments.devices) check.in_range("--devices", *arguments.devices, 1, 256);
  settings.devices = arguments.devices;
  if (!arguments.device_weights) return;
  std::vector<double>& weights = settings.strategy_options.device_weights;
  for (const std::string& word : words_of(*arguments.device_weights)) {
    weights.push_back(parse_device_weight(word));
  }
  const int count = static_cast<int>(weights.size());
  check.in_range("the number of --device-weights", count, 1, 256);
  if (arguments.devices && count != *arguments.devices) {
    throw ConfigError(lockstep::str("train: --device-weights ", *arguments.device_weights,
                                    " must have a number for each device, but --devices is ",
                                    *arguments.devices));
  }
  settings.devices = count;
}

// Determines how the ranks, and the devices of a rank, work together.
void resolve_strategy(const TrainArguments& arguments, TrainSettings& settings) {
  const OptionCheck check("train");
  settings.strategy = arguments.strategy.value_or(settings.world_size > 1 ? "ddp" : "single");
  check.one_of("--strategy", settings.strategy, strategy_names());
  const bool is_dp = settings.strategy == "dp";
  settings.has_pipeline = settings.strategy == "pipeline" || settings.strategy == "hybrid";
  if ((is_dp || settings.strategy == "single") && settings.world_size > 1) {
    throw ConfigError(lockstep::str("train: --strategy ", settings.strategy,
                                    " is for one process, but there are ", settings.world_size,
                                    "; use --strategy ddp"));
  }
  refuse_foreign_options(arguments, settings);
  settings.strategy_options.sync_batchnorm = arguments.sync_batchnorm;
  settings.strategy_options.bucket_cap_mb = arguments.bucket_cap_mb;
  if (arguments.bucket_cap_mb) check.positive("--bucket-cap-mb", *arguments.bucket_cap_mb);
  settings.data_shares = settings.world_size;
  if (settings.has_pipeline) return resolve_pipeline(arguments, settings);
  resolve_devices(arguments, settings);
  if (arguments.dp_loss) {
    check.one_of("--dp-loss", *arguments.dp_loss, {"gathered", "on-each"});
    settings.strategy_options.dp_loss = parse_dp_loss(*arguments.dp_loss);
  }
  settings.on_several_devices = is_dp;
}

// Converts values for all ranks together to each rank's share.
void resolve_shares(const TrainArguments& arguments, TrainSettings& settings) {
  const OptionCheck check("train");
  settings.global_batch = arguments.batch_size.value_or(settings.recipe->defaults.global_batch);
  check.in_range("--batch-size", static_cast<double>(settings.global_batch), 1, 1e9);
  const int workers = arguments.workers.value_or(settings.world_size);
  check.in_range("--workers", workers, 0, 1 << 20);
  check.in_range("--threads", arguments.threads, 0, 4096);
  const std::int64_t shares = settings.data_shares;
  const char* const noun = settings.has_pipeline ? "pipelines" : "ranks";
  if (settings.global_batch < shares) {
    throw ConfigError(lockstep::str("train: --batch-size ", settings.global_batch,
                                    " is smaller than the number of ", noun, ", ", shares));
  }
  if (settings.global_batch % shares != 0) {
    const std::int64_t below = settings.global_batch / shares * shares;
    throw ConfigError(lockstep::str("train: --batch-size ", settings.global_batch,
                                    " cannot be divided by ", shares, " ", noun, "; use ", below,
                                    " or ", below + shares));
  }
  settings.batch_per_rank = settings.global_batch / shares;
  if (settings.has_pipeline && settings.batch_per_rank < settings.strategy_options.micro_batches) {
    throw ConfigError(lockstep::str("train: --batch-size ", settings.global_batch,
                                    " gives each pipeline ", settings.batch_per_rank,
                                    " images, fewer than --micro-batches ",
                                    settings.strategy_options.micro_batches));
  }
  settings.workers_per_rank =
      static_cast<int>((workers + settings.world_size - 1) / settings.world_size);
  settings.threads = arguments.threads;
}

void apply(const TrainArguments& arguments, SgdOptions& sgd) {
  if (!arguments.betas.empty() || arguments.eps || arguments.amsgrad) {
    throw ConfigError("train: --betas, --eps and --amsgrad belong to --optimizer adam and adamw");
  }
  sgd.momentum = arguments.momentum.value_or(sgd.momentum);
  sgd.nesterov = sgd.nesterov || arguments.nesterov;
  OptionCheck("train").in_range("--momentum", sgd.momentum, 0, 1);
}

// Applies the options of Adam and AdamW.
template <class Adam>
void apply(const TrainArguments& arguments, Adam& adam) {
  if (arguments.momentum || arguments.nesterov) {
    throw ConfigError("train: --momentum and --nesterov belong to --optimizer sgd");
  }
  if (!arguments.betas.empty()) {
    adam.beta1 = arguments.betas.at(0);
    adam.beta2 = arguments.betas.at(1);
  }
  adam.eps = arguments.eps.value_or(adam.eps);
  adam.amsgrad = adam.amsgrad || arguments.amsgrad;
  const OptionCheck check("train");
  check.in_range("--betas", adam.beta1, 0, 1);
  check.in_range("--betas", adam.beta2, 0, 1);
  check.in_range("--eps", adam.eps, 0, 1e6);
}

// The recipe's optimizer, or another with PyTorch's defaults.
OptimizerOptions choose_optimizer(const std::optional<std::string>& name,
                                  const OptimizerOptions& of_recipe) {
  if (!name) return of_recipe;
  OptionCheck("train").one_of("--optimizer", *name, optimizer_names());
  const OptimizerOptions chosen = default_optimizer(*name);
  return chosen.index() == of_recipe.index() ? of_recipe : chosen;
}

OptimizerOptions resolve_optimizer(const TrainArguments& arguments,
                                   const OptimizerOptions& of_recipe) {
  OptimizerOptions chosen = choose_optimizer(arguments.optimizer, of_recipe);
  std::visit(
      [&](auto& options) {
        options.lr = arguments.lr.value_or(options.lr);
        options.weight_decay = arguments.weight_decay.value_or(options.weight_decay);
        const OptionCheck check("train");
        check.in_range("--lr", options.lr, 0, 1e6);
        check.in_range("--weight-decay", options.weight_decay, 0, 1e6);
        apply(arguments, options);
      },
      chosen);
  make_update_rule(chosen);  // checks the remaining values before there are ranks
  return chosen;
}

// Resolves --memory-format: the recipe's format, or another one if that makes a difference.
bool is_channels_last(const TrainArguments& arguments, const Recipe& recipe) {
  if (!arguments.memory_format) return recipe.channels_last;
  OptionCheck("train").one_of("--memory-format", *arguments.memory_format,
                              {"channels-last", "contiguous"});
  if (!recipe.channels_last) {
    throw ConfigError(lockstep::str("train: --memory-format changes nothing for ", recipe.name,
                                    ", which has no channels-last form; leave it out"));
  }
  return *arguments.memory_format == "channels-last";
}

// ConfigError if --cuda-graph is impossible, as far as that is known before the ranks meet.
void check_cuda_graph(const TrainSettings& settings) {
  if (settings.accelerator == "cpu") {
    throw ConfigError(
        "train: --cuda-graph needs a GPU, but --accelerator is cpu; leave one of them "
        "out");
  }
  if (settings.strategy != "single" && settings.strategy != "ddp") {
    throw ConfigError(
        lockstep::str("train: --cuda-graph belongs to --strategy single and ddp, got ",
                      settings.strategy, "; leave out --cuda-graph"));
  }
  const bool is_nccl = settings.backend == "auto" || settings.backend == "nccl";
  if (settings.world_size > 1 && !is_nccl) {
    throw ConfigError(
        lockstep::str("train: --cuda-graph needs --backend nccl, which a graph can "
                      "replay, got ",
                      settings.backend, "; leave out --cuda-graph"));
  }
  if (settings.trainer.detect_anomaly) {
    throw ConfigError(
        "train: --cuda-graph and --detect-anomaly exclude each other: a replayed "
        "backward pass does not check values for NaN; leave one of them out");
  }
  if (settings.trainer.schedule.cycle_momentum) {
    throw ConfigError(
        "train: --cuda-graph and --cycle-momentum exclude each other: the momentum of "
        "a replayed step is that of the recorded one; leave one of them out");
  }
}

// Resolves how LibTorch computes, especially on GPUs.
void resolve_device_modes(const TrainArguments& arguments, TrainSettings& settings) {
  const OptionCheck check("train");
  settings.channels_last = is_channels_last(arguments, *settings.recipe);
  if (arguments.matmul_precision) {
    check.one_of("--matmul-precision", *arguments.matmul_precision, matmul_precision_names());
    settings.trainer.matmul_precision = parse_matmul_precision(*arguments.matmul_precision);
  }
  settings.trainer.cudnn_benchmark = arguments.cudnn_benchmark;
  if (arguments.cudnn_benchmark && settings.accelerator == "cpu") {
    throw ConfigError(
        "train: --cudnn-benchmark changes nothing with --accelerator cpu; leave it out");
  }
  if (arguments.cudnn_benchmark && settings.trainer.deterministic) {
    throw ConfigError(
        "train: --cudnn-benchmark and --deterministic exclude each other: what is "
        "fastest differs from run to run");
  }
  settings.trainer.cuda_graph = arguments.cuda_graph;
  if (arguments.cuda_graph) check_cuda_graph(settings);
}

void resolve_optimization(const TrainArguments& arguments, TrainSettings& settings) {
  const OptionCheck check("train");
  const RecipeDefaults& defaults = settings.recipe->defaults;
  settings.trainer.max_epochs = arguments.max_epochs.value_or(defaults.max_epochs);
  check.in_range("--max-epochs", static_cast<double>(settings.trainer.max_epochs), 1, 1e9);
  resolve_limits(arguments.limits, settings.trainer);
  if (settings.trainer.ema_decay && settings.has_pipeline && settings.world_size > 1) {
    throw ConfigError(
        lockstep::str("train: --ema-decay averages the whole model on each rank, but "
                      "--strategy ",
                      settings.strategy,
                      " divides it among the ranks; use --strategy ddp or zero1, or "
                      "a pipeline in one process"));
  }
  settings.trainer.accumulate_grad_batches = arguments.accumulate_grad_batches;
  check.in_range("--accumulate-grad-batches",
                 static_cast<double>(arguments.accumulate_grad_batches), 1, 1e9);
  settings.trainer.optimizer = resolve_optimizer(arguments, defaults.optimizer);
  settings.trainer.schedule = resolve_schedule(arguments.schedule, defaults.schedule);
  const auto* const sgd = std::get_if<SgdOptions>(&settings.trainer.optimizer);
  if (settings.trainer.schedule.cycle_momentum && sgd != nullptr && sgd->momentum == 0) {
    throw ConfigError(
        "train: --cycle-momentum needs an optimizer with momentum; give --momentum "
        "above 0, or --optimizer adam or adamw");
  }
  check.one_of("--precision", arguments.precision, precision_names());
  settings.precision = parse_precision(arguments.precision);
  if (arguments.no_fused_kernels && !settings.recipe->has_fused_kernels) {
    throw ConfigError(lockstep::str("train: --no-fused-kernels changes nothing for ",
                                    settings.recipe->name,
                                    ", which has no kernels of ours; leave it out"));
  }
  settings.fused_kernels = !arguments.no_fused_kernels;
  resolve_device_modes(arguments, settings);
  settings.seed = arguments.seed;
}

// Locks --out, so that its contents do not change.
void claim_out(const TrainArguments& arguments, TrainSettings& settings) {
  if (settings.out.empty()) return;
  make_writable_directory(settings.out);
  settings.out_lock = std::make_shared<const FileLock>(
      settings.out / kLockFile, lockstep::str("train: --out ", settings.out.string()));
  if (!settings.resume && !arguments.overwrite && holds_checkpoint(settings.trainer.checkpoints)) {
    throw ConfigError(lockstep::str("train: --out ", settings.out.string(),
                                    " already holds a checkpoint; give --resume to go on with it, "
                                    "--overwrite to begin anew, or another folder"));
  }
}

// ConfigError, naming `option`, if the run reads no image files.
void require_image_files(const TrainArguments& arguments, const Recipe& recipe,
                         const char* option) {
  if (!recipe.reads_image_folder) {
    throw ConfigError(lockstep::str("train: ", option, " changes nothing for ", recipe.name,
                                    ", which reads no folder of images; leave it out"));
  }
  if (!arguments.data) {
    throw ConfigError(lockstep::str("train: ", option, " changes nothing for ", recipe.name,
                                    " without --data DIR, a folder of images; give both or leave "
                                    "it out"));
  }
}

// Resolves --max-image-pixels and --decoding.
void resolve_image_files(const TrainArguments& arguments, TrainSettings& settings) {
  if (arguments.max_image_pixels) {
    check_max_image_pixels("train", *arguments.max_image_pixels);
    require_image_files(arguments, *settings.recipe, "--max-image-pixels");
    settings.max_image_pixels = *arguments.max_image_pixels;
  }
  if (arguments.decoding) {
    settings.decoding = parse_decoding_option("train", *arguments.decoding);
    require_image_files(arguments, *settings.recipe, "--decoding");
    check_decoding("train", settings.decoding, settings.loader);
  }
}

// ConfigError if --cache or --weights contradicts other options.
void check_recipe_files(const TrainArguments& arguments, const TrainSettings& settings) {
  // A GPU or DALI's decoder decodes its own images, so a cache would never be used.
  if (settings.of_recipe.cache_bytes.value_or(0) > 0 &&
      settings.loader != LoaderEngineKind::kNative) {
    throw ConfigError(lockstep::str("train: --cache belongs to --loader native, got --loader ",
                                    arguments.loader, "; leave one of them out"));
  }
  if (arguments.resume && !settings.of_recipe.weights.empty()) {
    throw ConfigError(
        "train: --weights begins a run and --resume goes on with one; leave one of them out");
  }
}

// Resolves --logger, --log-dir and --mlflow-uri.
void resolve_loggers(const TrainArguments& arguments, TrainSettings& settings) {
  if (arguments.logger) settings.loggers = words_of(*arguments.logger);
  check_loggers("train: --logger", settings.loggers);
  const bool to_mlflow = std::ranges::find(settings.loggers, "mlflow") != settings.loggers.end();
  if (arguments.log_dir && settings.loggers.empty()) {
    throw ConfigError("train: --log-dir changes nothing without --logger");
  }
  if (arguments.mlflow_uri && !to_mlflow) {
    throw ConfigError("train: --mlflow-uri changes nothing without --logger mlflow");
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
    check_mlflow_uri("train: --mlflow-uri (or MLFLOW_TRACKING_URI), which --logger mlflow needs,",
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
    throw ConfigError("train: --log-histograms-every-n-steps changes nothing without --logger");
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

void resolve_files(const TrainArguments& arguments, TrainSettings& settings) {
  settings.data = arguments.data;
  if (arguments.out) settings.out = *arguments.out;
  if (arguments.json) settings.json = *arguments.json;
  settings.trainer.checkpoints = resolve_checkpoints(arguments.checkpoints, settings.out);
  settings.resume = arguments.resume;
  if (settings.resume && settings.out.empty())
    throw ConfigError("train: --resume needs --out DIR, the run to go on with");
  if (settings.resume && arguments.overwrite)
    throw ConfigError("train: --resume and --overwrite exclude each other");
  if (settings.resume && settings.trainer.fast_dev_run > 0)
    throw ConfigError("train: --fast-dev-run keeps nothing, so it cannot --resume");
  resolve_loggers(arguments, settings);
  resolve_report_files(settings);
  if (!settings.speaks()) return;
  if (settings.resume && !holds_checkpoint(settings.trainer.checkpoints)) {
    throw CheckpointError(lockstep::str("there is no checkpoint in ",
                                        settings.trainer.checkpoints.directory.string(),
                                        " to resume from"));
  }
  // Checked before the training, whose results would otherwise be lost. A trial keeps nothing, so
  // it does not claim --out.
  if (settings.trainer.fast_dev_run == 0) claim_out(arguments, settings);
  if (!settings.json.empty()) JsonReport(settings.json).on_run_begin({});
  if (!settings.loggers.empty()) make_writable_directory(settings.logger_setup.directory);
}

}  // namespace

TrainSettings resolve(const TrainArguments& arguments) {
  TrainSettings settings;
  settings.of_recipe = resolve_recipe(arguments.recipe, arguments.of_recipe);
  settings.recipe = settings.of_recipe.recipe;
  const OptionCheck check("train");
  check.one_of("--accelerator", arguments.accelerator, {"auto", "cpu", "cuda"});
  check.one_of("--backend", arguments.backend, backend_names());
  check.one_of("--loader", arguments.loader, loader_engine_names());
  check.in_range("--timeout", arguments.timeout_seconds, 0.1, 1e6);
  settings.mix = parse_mix_option("train", arguments.mix);
  settings.loader = parse_loader_engine(arguments.loader);
  settings.on_corrupt_image = parse_corrupt_image_option("train", arguments.on_corrupt_image);
  resolve_image_files(arguments, settings);
  check_recipe_files(arguments, settings);
  settings.accelerator = arguments.accelerator;
  settings.backend = arguments.backend;
  settings.timeout =
      std::chrono::milliseconds(static_cast<std::int64_t>(arguments.timeout_seconds * 1000));
  resolve_world(arguments, settings);
  resolve_strategy(arguments, settings);
  resolve_shares(arguments, settings);
  resolve_optimization(arguments, settings);
  resolve_files(arguments, settings);
  return settings;
}

}  // namespace lockstep
