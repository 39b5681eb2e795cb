#include <lockstep/cli/train/train_strategy.h>

#include <charconv>

#include <lockstep/bench/word_list.h>
#include <lockstep/cli/launched_world.h>
#include <lockstep/core/error.h>
#include <lockstep/core/options.h>

namespace lockstep::cli {
namespace {

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
    refuse(arguments.devices.has_value(), "--devices",
           "dp; the number of processes is --nproc-per-node");
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
    refuse(arguments.find_unused_parameters && settings.strategy != "hybrid",
           "--find-unused-parameters", "ddp, zero1 and hybrid");
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
    recipes::require_stages(*settings.recipe, options.stages);
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
  for (const std::string& word : bench::words_of(*arguments.device_weights)) {
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
void choose_strategy(const TrainArguments& arguments, TrainSettings& settings) {
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
  settings.strategy_options.find_unused_parameters = arguments.find_unused_parameters;
  settings.strategy_options.bucket_cap_mb = arguments.bucket_cap_mb;
  if (arguments.bucket_cap_mb) check.positive("--bucket-cap-mb", *arguments.bucket_cap_mb);
  settings.data_shares = settings.world_size;
  if (settings.has_pipeline) return resolve_pipeline(arguments, settings);
  resolve_devices(arguments, settings);
  if (arguments.dp_loss) {
    check.one_of("--dp-loss", *arguments.dp_loss, dp_loss_names());
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
                                    " samples, fewer than --micro-batches ",
                                    settings.strategy_options.micro_batches));
  }
  settings.workers_per_rank =
      static_cast<int>((workers + settings.world_size - 1) / settings.world_size);
  settings.threads = arguments.threads;
}

}  // namespace

void resolve_strategy(const TrainArguments& arguments, TrainSettings& settings) {
  resolve_world(arguments, settings);
  choose_strategy(arguments, settings);
  resolve_shares(arguments, settings);
}

}  // namespace lockstep::cli
