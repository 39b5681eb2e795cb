#include <lockstep/cli/train/train_settings.h>

#include <lockstep/cli/device_choice.h>
#include <lockstep/cli/image_options.h>
#include <lockstep/cli/launched_world.h>
#include <lockstep/cli/loader_data.h>
#include <lockstep/cli/mix_option.h>
#include <lockstep/cli/train/train_outputs.h>
#include <lockstep/cli/train/train_strategy.h>
#include <lockstep/comm/call/backend_names.h>
#include <lockstep/core/error.h>
#include <lockstep/core/options.h>
#include <lockstep/data/loader/loader_options.h>
#include <lockstep/recipes/folder_split.h>
#include <lockstep/train/optimization/precision.h>

namespace lockstep::cli {
namespace {

// Resolves --memory-format: the recipe's format, or another one if that makes a difference.
bool is_channels_last(const TrainArguments& arguments, const recipes::Recipe& recipe) {
  if (!arguments.memory_format) return recipe.channels_last;
  OptionCheck("train").one_of("--memory-format", *arguments.memory_format,
                              {"channels-last", "contiguous"});
  if (!recipe.channels_last && !recipe.offers_channels_last) {
    throw ConfigError(lockstep::str("train: --memory-format has no effect on ", recipe.name,
                                    ", which has no channels-last form; remove --memory-format"));
  }
  return *arguments.memory_format == "channels-last";
}

// ConfigError if --cuda-graph is impossible, as far as that is known before the ranks meet.
void check_cuda_graph(const TrainSettings& settings) {
  if (settings.accelerator == "cpu") {
    throw ConfigError(
        "train: --cuda-graph needs a GPU, but --accelerator is cpu; remove one of them");
  }
  if (settings.strategy != "single" && settings.strategy != "ddp") {
    throw ConfigError(
        lockstep::str("train: --cuda-graph belongs to --strategy single and ddp, got ",
                      settings.strategy, "; remove --cuda-graph"));
  }
  if (settings.world_size > 1 && !comm::named_backend(settings.backend).runs_on_stream) {
    throw ConfigError(
        lockstep::str("train: --cuda-graph needs --backend nccl, which a graph can "
                      "replay, got ",
                      settings.backend, "; remove --cuda-graph"));
  }
  if (settings.trainer.detect_anomaly) {
    throw ConfigError(
        "train: --cuda-graph and --detect-anomaly cannot be combined: a replayed backward pass "
        "does not check values for NaN; remove one of them");
  }
  if (settings.trainer.on_nan != OnNan::kWarn) {
    throw ConfigError(lockstep::str("train: --cuda-graph and --on-nan ",
                                    to_string(settings.trainer.on_nan),
                                    " cannot be combined: a replayed step updates the weights "
                                    "before the host knows its loss; choose one"));
  }
  if (settings.trainer.schedule.cycle_momentum) {
    throw ConfigError(
        "train: --cuda-graph and --cycle-momentum cannot be combined: the momentum of a replayed "
        "step is that of the recorded one; remove one of them");
  }
}

// Resolves --share-gpu, which stands for NCCL unless --backend names another transport.
void resolve_sharing(const TrainArguments& arguments, TrainSettings& settings) {
  settings.share_gpu = arguments.share_gpu;
  if (!arguments.share_gpu) return;
  if (settings.accelerator == "cpu") {
    throw ConfigError("train: --share-gpu and --accelerator cpu cannot be combined");
  }
  if (settings.world_size == 1) {
    throw ConfigError("train: --share-gpu has no effect with one rank; remove it");
  }
  if (settings.backend == "auto") settings.backend = "nccl";
  if (settings.backend == "nccl") {
    settings.gpu_sharing = choose_gpu_sharing("train", arguments.nccl_version);
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
        "train: --cudnn-benchmark has no effect with --accelerator cpu; remove --cudnn-benchmark");
  }
  if (arguments.cudnn_benchmark && settings.trainer.deterministic) {
    throw ConfigError(
        "train: --cudnn-benchmark and --deterministic cannot be combined: what is fastest differs "
        "from run to run");
  }
  settings.trainer.cuda_graph = arguments.cuda_graph;
  if (arguments.cuda_graph) check_cuda_graph(settings);
}

void resolve_optimization(const TrainArguments& arguments, TrainSettings& settings) {
  const OptionCheck check("train");
  const recipes::RecipeDefaults& defaults = settings.recipe->defaults;
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
  settings.trainer.optimizer = resolve_optimizer(arguments.optimizer, defaults.optimizer);
  settings.trainer.schedule = resolve_schedule(arguments.schedule, defaults.schedule);
  if (settings.trainer.schedule.cycle_momentum && !has_momentum(settings.trainer.optimizer)) {
    throw ConfigError(
        "train: --cycle-momentum needs an optimizer with momentum; give --momentum "
        "above 0, or --optimizer adam or adamw");
  }
  check.one_of("--precision", arguments.precision, precision_names());
  settings.precision = parse_precision(arguments.precision);
  if (arguments.no_fused_kernels && !settings.recipe->has_fused_kernels) {
    throw ConfigError(lockstep::str("train: --no-fused-kernels has no effect on ",
                                    settings.recipe->name,
                                    ", which has no fused kernels; remove --no-fused-kernels"));
  }
  settings.fused_kernels = !arguments.no_fused_kernels;
  resolve_device_modes(arguments, settings);
  settings.seed = arguments.seed;
}

// ConfigError, naming `option`, if the run reads no image files.
void require_image_files(const TrainArguments& arguments, const recipes::Recipe& recipe,
                         const char* option) {
  if (!recipe.reads_image_folder) {
    throw ConfigError(lockstep::str("train: ", option, " has no effect on ", recipe.name,
                                    ", which reads no folder of images; remove ", option));
  }
  if (!arguments.data) {
    throw ConfigError(
        lockstep::str("train: ", option, " has no effect on ", recipe.name,
                      " without --data DIR, a folder of images; add --data or remove ", option));
  }
  if (recipes::holds_packed_pixels(*arguments.data)) {
    throw ConfigError(lockstep::str("train: ", option, " has no effect on ", *arguments.data,
                                    ", which holds decoded images; remove ", option,
                                    ", or pack files with `lockstep data pack --encoded`"));
  }
}

// Resolves --max-image-pixels, --decoding and --exif-transpose.
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
  if (arguments.exif_transpose)
    require_image_files(arguments, *settings.recipe, "--exif-transpose");
  settings.exif_transpose = arguments.exif_transpose;
}

// ConfigError for an option that only images, or images with labels, have.
void check_images_of_program(const TrainArguments& arguments, const recipes::Recipe& recipe) {
  if (!recipe.needs_program) return;
  const auto refuse = [](const char* option, const std::string& value, const char* reason) {
    throw ConfigError(lockstep::str("train: ", option, ' ', value, ' ', reason, "; remove it"));
  };
  if (arguments.mix != "none") {
    refuse("--mix", arguments.mix, "mixes classes, which the loss of a program cannot take");
  }
  if (!recipe.make_tensor_task) return;
  constexpr const char* kNoImages = "is about images, but the data of program are tensors";
  if (arguments.loader != "native") refuse("--loader", arguments.loader, kNoImages);
  if (arguments.on_corrupt_image != "stop") {
    refuse("--on-corrupt-image", arguments.on_corrupt_image, kNoImages);
  }
}

// ConfigError if --cache contradicts other options.
void check_cache(const TrainArguments& arguments, const TrainSettings& settings) {
  // A GPU or DALI's decoder decodes its own images, so a cache would never be used.
  if (settings.of_recipe.cache_bytes.value_or(0) > 0 &&
      settings.loader != LoaderEngineKind::kNative) {
    throw ConfigError(lockstep::str("train: --cache belongs to --loader native, got --loader ",
                                    arguments.loader, "; remove one of them"));
  }
}

}  // namespace

TrainSettings resolve(const TrainArguments& arguments) {
  TrainSettings settings;
  settings.of_recipe = resolve_recipe(arguments.recipe, arguments.of_recipe, arguments.data);
  settings.recipe = settings.of_recipe.recipe;
  const OptionCheck check("train");
  check_accelerator("train", arguments.accelerator);
  check.one_of("--backend", arguments.backend, comm::backend_names());
  check.one_of("--loader", arguments.loader, loader_engine_names());
  check.in_range("--timeout", arguments.timeout_seconds, 0.1, 1e6);
  settings.mix = parse_mix_option("train", arguments.mix);
  settings.loader = parse_loader_engine(arguments.loader);
  settings.on_corrupt_image = parse_corrupt_image_option("train", arguments.on_corrupt_image);
  resolve_image_files(arguments, settings);
  check_cache(arguments, settings);
  check_images_of_program(arguments, *settings.recipe);
  settings.accelerator = arguments.accelerator;
  settings.backend = arguments.backend;
  settings.timeout =
      std::chrono::milliseconds(static_cast<std::int64_t>(arguments.timeout_seconds * 1000));
  // The images of another recipe are where that recipe finds them.
  if (!settings.recipe->choices.contains(recipes::kImagesChoice)) settings.data = arguments.data;
  resolve_strategy(arguments, settings);
  resolve_sharing(arguments, settings);
  resolve_optimization(arguments, settings);
  resolve_outputs(arguments, settings);
  return settings;
}

}  // namespace lockstep::cli
