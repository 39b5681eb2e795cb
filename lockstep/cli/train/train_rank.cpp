#include <lockstep/cli/train/train_rank.h>

#include <unistd.h>

#include <concepts>
#include <cstdlib>
#include <functional>
#include <iostream>
#include <map>
#include <optional>
#include <string>

#include <ATen/Parallel.h>
#include <c10/util/Logging.h>
#include <torch/cuda.h>
#include <torch/version.h>

#include <lockstep/cli/build_commit.h>
#include <lockstep/cli/command_failure.h>
#include <lockstep/cli/device_choice.h>
#include <lockstep/cli/flag_names.h>
#include <lockstep/cli/image_type.h>
#include <lockstep/cli/train/model_notes.h>
#include <lockstep/cli/train/stop_on_signal.h>
#include <lockstep/cli/train/train_loggers.h>
#include <lockstep/cli/train/weights_file.h>
#include <lockstep/comm/group/process_group.h>
#include <lockstep/core/clock.h>
#include <lockstep/core/error.h>
#include <lockstep/core/log.h>
#include <lockstep/data/augment/augmentation_text.h>
#include <lockstep/data/augment/mix_choice.h>
#include <lockstep/data/loader/loader.h>
#include <lockstep/data/samplers/sampler.h>
#include <lockstep/launch/launcher.h>
#include <lockstep/launch/process_clock.h>
#include <lockstep/launch/rank_setup.h>
#include <lockstep/report/console.h>
#include <lockstep/report/json_report.h>
#include <lockstep/report/picture_file.h>
#include <lockstep/report/run_record.h>
#include <lockstep/report/terminal.h>
#include <lockstep/train/checkpoints/pretrained.h>
#include <lockstep/train/optimization/memory_format.h>
#include <lockstep/train/trainer.h>

namespace lockstep::cli {
namespace {

// Silences LibTorch's store, which would warn on the terminal, with a backtrace, about errors that
// the user gets as an error line.
void silence_libtorch() {
  constexpr int kErrors = 2;
  if (log_enabled(LogLevel::kDebug)) return;
  FLAGS_caffe2_log_level = kErrors;
  setenv("KINETO_LOG_LEVEL", "6",
         /*overwrite=*/0);  // above all levels: silences its profiler
}

// The GPU of each rank on this host; empty if the ranks compute on CPUs or on several devices each.
std::vector<int> gpus_of_ranks(const TrainSettings& settings, const WorkerEnvironment& worker) {
  std::vector<int> gpus;
  if (settings.on_several_devices) return gpus;
  const int count = static_cast<int>(torch::cuda::device_count());
  for (int rank = 0; rank < worker.local_world_size; ++rank) {
    const auto gpu =
        choose_gpu(settings.accelerator, count, rank, worker.local_world_size, settings.share_gpu);
    if (!gpu) return {};
    gpus.push_back(*gpu);
  }
  return gpus;
}

// Prepares NCCL for ranks that share a GPU, and says so once. On one host that has a GPU for each
// rank, none do.
void share_gpus(const TrainSettings& settings, const WorkerEnvironment& worker) {
  if (!settings.gpu_sharing) return;
  const bool one_host = worker.world_size == worker.local_world_size;
  const int count = static_cast<int>(torch::cuda::device_count());
  if (one_host && count >= worker.local_world_size) return;
  nccl::share_gpu(*settings.gpu_sharing, worker.rank, one_host);
  if (worker.rank == 0 && !settings.quiet) std::cerr << note_on(*settings.gpu_sharing) << std::endl;
}

// The devices of a process that computes on several. On CPUs without --devices the strategy chooses
// their number.
std::vector<torch::Device> choose_devices(const TrainSettings& settings) {
  const int gpu_count = static_cast<int>(torch::cuda::device_count());
  std::vector<torch::Device> devices;
  for (const int gpu : choose_gpus(settings.accelerator, gpu_count, settings.devices)) {
    devices.emplace_back(torch::kCUDA, static_cast<torch::DeviceIndex>(gpu));
  }
  if (!devices.empty()) return devices;
  return std::vector<torch::Device>(static_cast<std::size_t>(settings.devices.value_or(0)),
                                    torch::Device(torch::kCPU));
}

// The device of the batches: the first of several devices, or that of this rank in gpus_of_ranks().
torch::Device choose_first_device(const std::vector<torch::Device>& devices,
                                  const std::vector<int>& gpus, int local_rank) {
  if (!devices.empty()) return devices.front();
  if (gpus.empty()) return torch::kCPU;
  const int gpu = gpus.at(static_cast<std::size_t>(local_rank));
  return {torch::kCUDA, static_cast<torch::DeviceIndex>(gpu)};
}

// Informs the user of a strategy for several devices that these are not GPUs.
void tell_of_cpu(const TrainSettings& settings, torch::Device device, int rank) {
  if (settings.quiet) return;
  const bool wants_gpus = settings.on_several_devices || settings.has_pipeline;
  if (!wants_gpus || rank != 0 || settings.accelerator != "auto" || !device.is_cpu()) return;
  const int gpu_count = static_cast<int>(torch::cuda::device_count());
  std::cerr << "note: --strategy " << settings.strategy
            << " computes on the CPU: this process sees "
            << (gpu_count == 0 ? "no GPU" : str("too few GPUs, ", gpu_count)) << std::endl;
}

LoaderOptions loader_options(const TrainSettings& settings, torch::Device device) {
  return {.batch_size = settings.batch_per_rank,
          .threads = settings.workers_per_rank,
          .channels_last = settings.channels_last,
          .dtype = image_type(settings.precision, settings.loader),
          .seed = settings.seed,
          .engine = settings.loader,
          .device = device,
          .on_corrupt_image = settings.on_corrupt_image,
          .mix = {},
          .cpus = {}};
}

// Lockstep's kernels compute in float32 on CPUs. Enabling them elsewhere would not give wrong
// results, but a schedule cannot split the backward of stages that contain one.
bool can_use_fused_kernels(const TrainSettings& settings, torch::Device device) {
  return settings.recipe->has_fused_kernels && settings.fused_kernels && device.is_cpu();
}
bool uses_fused_kernels(const TrainSettings& settings, torch::Device device) {
  return can_use_fused_kernels(settings, device) && settings.precision == Precision::k32;
}

// Loads the file of --weights, if any, and reports skipped tensors. A resumed run takes the weights
// of its checkpoint instead, also on ranks that do not know yet that the run resumes.
void load_weights(const TrainSettings& settings, torch::nn::Module& module, int rank) {
  const std::filesystem::path& file = settings.of_recipe.weights;
  if (file.empty()) return;
  if (settings.resumes) {
    if (rank != 0 || settings.quiet) return;
    std::cerr << "note: the run resumes with the weights of its checkpoint; --weights "
              << file.string() << " is not loaded" << std::endl;
    return;
  }
  const PretrainedWeights loaded =
      load_pretrained(module, load_weights_file(file).state, file.string());
  const std::string summary = loaded.summary();
  if (rank == 0 && !summary.empty()) std::cerr << "note: " << summary << std::endl;
}

// How the samples are divided into those to train on and those to validate on.
std::string split_text(const TrainSettings& settings, const recipes::RecipeData& data) {
  const std::string part =
      amount_of(data.training_samples(), data.tensors ? "training sample" : "training image");
  if (!data.is_split_at_random) return "the data set's own split, " + part;
  const double fraction =
      settings.of_recipe.validation_fraction.value_or(recipes::kValidationFraction);
  return lockstep::str("random with seed ", settings.seed, ", validation fraction ", fraction, ", ",
                       part);
}

// What the run is made from, as far as its other settings do not say so.
std::map<std::string, std::string> provenance_of(const TrainSettings& settings,
                                                 const recipes::RecipeData& data) {
  const recipes::Recipe& recipe = *settings.recipe;
  std::map<std::string, std::string> all = {{"split", split_text(settings, data)}};
  if (data.tensors) return all;
  all["augmentation"] = data::augmentation_text(recipe.train_augmentation);
  all["mix"] = to_string(settings.mix);
  if (!recipe.choices.contains(recipes::kImageSizeChoice)) {
    all["image_size"] = lockstep::str(recipe.input.height, 'x', recipe.input.width);
  }
  return all;
}

TrainerOptions trainer_options(const TrainSettings& settings, const recipes::RecipeData& data,
                               torch::Device device, int threads) {
  TrainerOptions options = settings.trainer;
  options.precision = settings.precision;
  options.device = device;
  options.seed = settings.seed;
  options.info = {.recipe = settings.recipe->name,
                  .strategy = {},
                  .backend = {},
                  .loader = to_string(settings.loader),
                  .precision = {},
                  .slow_precisions = {},
                  .device = {},
                  .dataset = data.description,
                  .split = data.is_split_at_random ? data.fingerprint : std::string(),
                  .fused_kernels = uses_fused_kernels(settings, device),
                  .precision_disables_kernels = can_use_fused_kernels(settings, device) &&
                                                !uses_fused_kernels(settings, device),
                  .threads_per_rank = threads,
                  .global_batch = settings.global_batch,
                  .recipe_options = settings.recipe->choices,
                  .weights = settings.of_recipe.weights.string(),
                  .provenance = provenance_of(settings, data)};
  options.command_seconds = launch::seconds_since_command_start;
  if (settings.started) {
    options.command_seconds = [start = *settings.started] { return seconds_since(start); };
  }
  return options;
}

// The recipe's task for images or for rows of tensors, with the user's weights.
template <BatchOfTensors B>
std::unique_ptr<BatchTask<B>> make_model(const TrainSettings& settings, torch::Device device,
                                         std::int64_t num_classes, int rank) {
  const auto& make = [&]() -> const auto& {
    if constexpr (std::same_as<B, Batch>) {
      return settings.recipe->make_task;
    } else {
      return settings.recipe->make_tensor_task;
    }
  }();
  std::unique_ptr<BatchTask<B>> task =
      make({.fused_kernels = uses_fused_kernels(settings, device), .num_classes = num_classes});
  load_weights(settings, task->module(), rank);
  if (settings.channels_last) train::to_channels_last(task->module());
  return task;
}

// The record of a run of the program, in which an error names flags.
class FlagRecord final : public RunRecord {
 public:
  using RunRecord::RunRecord;
  void on_exception(const std::exception& error) noexcept override {
    try {
      RunRecord::on_exception(Error(error_line(error)));
    } catch (const std::exception&) {  // out of memory
      RunRecord::on_exception(error);
    }
  }
};

// The run's listeners on rank 0: the terminal or, in a quiet run, those of the settings; the files
// and the loggers.
std::vector<ListenerHandle> make_listeners(const TrainSettings& settings,
                                           const WorkerEnvironment& worker, int processors) {
  std::vector<ListenerHandle> listeners = settings.trainer.listeners;
  if (!settings.quiet) {
    listeners = make_terminal_listeners(std::cout, detect_terminal(STDOUT_FILENO), settings.out);
  }
  if (!settings.json.empty()) {
    listeners.push_back(std::make_unique<report::JsonReport>(settings.json));
  }
  if (!settings.out.empty() && settings.trainer.fast_dev_run == 0) {
    listeners.push_back(std::make_unique<FlagRecord>(
        settings.out, RunOrigin{.versions = {{"lockstep", LOCKSTEP_VERSION},
                                             {"commit", build_commit()},
                                             {"libtorch", TORCH_VERSION}},
                                .command = command_line(),
                                .local_ranks = worker.local_world_size,
                                .processors = processors}));
    listeners.push_back(std::make_unique<report::PictureFile>(settings.out));
  }
  if (!settings.loggers.empty()) listeners.push_back(make_logging_listener(settings));
  return listeners;
}

// The loaders of the images.
struct ImageLoaders {
  const TrainSettings& settings;
  const recipes::RecipeData& data;
  LoaderOptions options;

  template <class Sampler>
  Loader train(Sampler sampler) const {
    LoaderOptions mixed = options;
    mixed.mix = settings.mix;
    return Loader(data.train, std::move(sampler), settings.recipe->train_augmentation, mixed);
  }
  std::unique_ptr<Loader> validation(const DataShare& share) const {
    const ImageDataset test = data.load_test();
    return std::make_unique<Loader>(test, EvaluationSampler(test.size(), share.rank, share.size),
                                    settings.recipe->test_augmentation, options);
  }
};

// The loaders of rows of tensors.
struct TensorLoaders {
  const recipes::TensorParts& parts;
  LoaderOptions options;

  template <class Sampler>
  BatchLoader<Tensors> train(Sampler sampler) const {
    return BatchLoader<Tensors>(parts.train, std::move(sampler), options);
  }
  std::unique_ptr<BatchLoader<Tensors>> validation(const DataShare& share) const {
    return std::make_unique<BatchLoader<Tensors>>(
        parts.validation, EvaluationSampler(parts.validation->size(), share.rank, share.size),
        options);
  }
};

// Says where an interrupted run is saved, and how it continues.
void tell_of_interruption(const TrainSettings& settings, const RunReport& report) {
  if (settings.quiet || report.saved_in.empty()) return;
  std::string command = command_line("--overwrite");
  if (!settings.trainer.resume) command += " --resume auto";
  std::cerr << "note: the run is saved in " << report.saved_in
            << "\nnote: to continue it: " << command << std::endl;
}

// Trains, and saves the run if a signal asks it to end. Throws Interrupted in that case.
void fit_until_interrupted(const TrainSettings& settings, ProcessGroup& group, StopRequest& request,
                           const std::function<RunReport()>& fit) {
  std::optional<StopOnSignal> handlers;
  if (settings.saves()) {
    // Ranks that this program has forked are supervised by it.
    handlers.emplace(request,
                     StopOnSignal::Options{.supervised = !settings.worker && group.size() > 1,
                                           .speaks = group.rank() == 0 && !settings.quiet,
                                           .patience = settings.shutdown_timeout});
  }
  const RunReport report = fit();
  if (!report.interrupted) return;
  if (group.rank() == 0) tell_of_interruption(settings, report);
  if (report.stop_signal == 0) return;
  // Some launchers kill the other ranks when one ends with an error, so rank 0 finishes first.
  group.barrier();
  // A launcher of another kind shows what each rank prints; one line suffices.
  if (settings.worker && group.rank() != 0) throw CommandFailure(128 + report.stop_signal, "");
  throw Interrupted(report.stop_signal);
}

// What a rank has before it makes the model and the loaders.
struct RankRun {
  const TrainSettings& settings;
  ProcessGroup& group;
  const recipes::RecipeData& data;
  const WorkerEnvironment& worker;
  int processors;
  std::unique_ptr<Strategy> strategy;
  TrainerOptions trainer;  // without listeners and notes of the model

  // Makes the model and `loaders`' loaders, whose batches are of type B, and trains.
  template <BatchOfTensors B, class Loaders>
  void fit(const Loaders& loaders) {
    const DataShare share = strategy->data_share();
    SetupSeconds& setup = trainer.info.setup;
    torch::manual_seed(settings.seed);
    const std::unique_ptr<BatchTask<B>> task = [&] {
      const SecondsScope scope(setup.model);
      return make_model<B>(settings, trainer.device, data.train.num_classes(), group.rank());
    }();
    BatchLoader<B> train_loader = [&] {
      const SecondsScope scope(setup.loader);
      return loaders.train(DistributedSampler(
          data.training_samples(),
          {.rank = share.rank, .world_size = share.size, .shuffle = true, .seed = settings.seed}));
    }();
    const auto test_loader = [&] { return loaders.validation(share); };
    trainer.info.notes = model_notes(settings, data, *task);
    if (group.rank() == 0) trainer.listeners = make_listeners(settings, worker, processors);
    StopRequest request;
    if (settings.saves()) trainer.stop_request = &request;
    Trainer complete(std::move(trainer), std::move(strategy));
    fit_until_interrupted(settings, group, request,
                          [&] { return complete.fit(*task, train_loader, test_loader); });
  }
};

}  // namespace

void train_rank(const TrainSettings& settings, const DataSupplier& supplier) {
  silence_libtorch();
  const WorkerEnvironment worker = worker_environment().value_or(WorkerEnvironment{});
  const int processors = launch::processors_of_host(worker);
  const std::vector<int> gpus = gpus_of_ranks(settings, worker);
  share_gpus(settings, worker);
  const int threads = launch::prepare_rank(worker, settings.threads, gpus);
  at::set_num_threads(threads);
  StrategyOptions strategy_options = settings.strategy_options;
  if (settings.on_several_devices) strategy_options.devices = choose_devices(settings);
  const torch::Device device =
      choose_first_device(strategy_options.devices, gpus, worker.local_rank);
  SetupSeconds setup;
  ProcessGroup group = [&] {
    const SecondsScope scope(setup.group);
    return init_process_group(
        {.backend = settings.backend, .timeout = settings.timeout, .device = device});
  }();
  joined_group();
  tell_of_cpu(settings, device, group.rank());
  std::unique_ptr<Strategy> strategy = make_strategy(settings.strategy, group, strategy_options);
  const recipes::RecipeData data = settings.worker ? load_in_turn(supplier, group) : supplier({});
  setup.loader = data.seconds_to_open;

  TrainerOptions trainer = trainer_options(settings, data, device, threads);
  trainer.info.setup = setup;
  LoaderOptions options = loader_options(settings, device);
  RankRun run{settings, group, data, worker, processors, std::move(strategy), std::move(trainer)};
  if (!data.tensors) return run.fit<Batch>(ImageLoaders{settings, data, options});
  options.dtype = LoaderOptions().dtype;  // that of images
  run.fit<Tensors>(TensorLoaders{*data.tensors, options});
}

}  // namespace lockstep::cli
