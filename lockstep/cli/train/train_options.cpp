#include <lockstep/cli/train/train_settings.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <CLI/CLI.hpp>

#include <lockstep/cli/help_format.h>
#include <lockstep/cli/image_options.h>
#include <lockstep/cli/mix_option.h>
#include <lockstep/cli/option_checks.h>
#include <lockstep/cli/recipe_names.h>
#include <lockstep/comm/call/backend_names.h>
#include <lockstep/core/strings.h>
#include <lockstep/data/loader/loader_options.h>
#include <lockstep/train/optimization/matmul_precision.h>
#include <lockstep/train/optimization/precision.h>

namespace lockstep::cli {
namespace {

// The options that only some recipes have. `has` says whether a recipe has the option.
struct RecipeOption {
  const char* name;
  bool (*has)(const recipes::Recipe&);
};
constexpr RecipeOption kRecipeOptions[] = {
    {"--model", has_models},
    {"--program", takes_program},
    {"--inputs", needs_program},
    {"--image-size", has_image_sizes},
    {"--no-fused-kernels", has_fused_kernels},
    {"--memory-format", has_channels_last},
    {"--max-image-pixels", reads_image_folder},
    {"--decoding", reads_image_folder},
    {"--exif-transpose", reads_image_folder},
};

// In `train RECIPE --help` the options of that recipe come first, and those of other recipes are
// not shown.
class TrainHelp final : public HelpFormat {
 public:
  TrainHelp(CLI::App& command, const CLI::Option& recipe) : command_(command), recipe_(recipe) {}

  std::string make_help(const CLI::App* app, std::string name,
                        CLI::AppFormatMode mode) const override {
    const std::vector<std::string> given = recipe_.results();
    for (const recipes::Recipe& recipe : recipes::all_recipes()) {
      if (!given.empty() && given.back() == recipe.name) show_first(recipe);
    }
    return HelpFormat::make_help(app, std::move(name), mode);
  }

 private:
  void show_first(const recipes::Recipe& recipe) const {
    const std::string own = "Options of " + recipe.name;
    for (CLI::Option* option : command_.get_options()) {
      if (option->get_group() == kRecipeGroup) option->group(own);
    }
    for (const RecipeOption& option : kRecipeOptions) {
      command_.get_option(option.name)->group(option.has(recipe) ? own : "");
    }
  }

  CLI::App& command_;
  const CLI::Option& recipe_;
};

std::string recipe_help() {
  std::string text = "What to train:";
  for (const recipes::Recipe& recipe : recipes::all_recipes())
    text += "\n  " + recipe.name + ": " + recipe.summary;
  return text;
}

template <class Integer>
CLI::Option* add_integer(CLI::App& command, const char* name, Integer& to, const char* help) {
  return command.add_option(name, to, help)->transform(whole_number<Integer>());
}
template <class Integer>
CLI::Option* add_integer(CLI::App& command, const char* name, std::optional<Integer>& to,
                         const char* help) {
  return command.add_option(name, to, help)->transform(whole_number<Integer>());
}

void add_strategy_options(CLI::App& command, TrainArguments& to) {
  const HelpGroup group(command, "Strategy");
  command.add_option(
      "--strategy", to.strategy,
      "Strategy: " + join(strategy_names()) + " (default: ddp with several ranks, else single)");
  add_integer(command, "--devices", to.devices,
              "Replicas of the model in one process (dp only, default: one per GPU; on CPUs, one "
              "per processor, at most 8)");
  command.add_option("--device-weights", to.device_weights,
                     "Relative shares of a batch, one per device, separated by commas, such as 3,1 "
                     "(dp only, default: equal shares)");
  command.add_option("--dp-loss", to.dp_loss,
                     "Where to compute the loss: gathered (on the first device) or on-each (dp "
                     "only, default gathered)");
  add_integer(command, "--stages", to.stages,
              "Number of stages into which the model is divided (pipeline and hybrid only, default "
              "2, or 4 with the schedules interleaved and zbv, which place two on each worker)");
  add_integer(command, "--micro-batches", to.micro_batches,
              "Number of micro-batches into which each pipeline divides its batch (pipeline and "
              "hybrid only, default 4)");
  command.add_flag("--recompute", to.recompute,
                   "Activation checkpointing: keep only the inputs of stages and recompute the "
                   "activations before each backward, which saves memory and costs another forward "
                   "(pipeline and hybrid only)");
  command.add_flag("--shard-optimizer", to.shard_optimizer,
                   "Shard the optimizer's state among ranks with the same stages (hybrid only)");
  command.add_flag("--sync-batchnorm", to.sync_batchnorm,
                   "Compute batch normalisation's statistics over the batches of all ranks (ddp "
                   "and zero1 only)");
  command.add_flag("--find-unused-parameters", to.find_unused_parameters,
                   "Allow steps whose loss does not depend on all parameters, and search for those "
                   "in each step (ddp, zero1 and hybrid only)");
  command.add_option("--bucket-cap-mb", to.bucket_cap_mb,
                     "Maximum size of a gradient bucket, in MiB (ddp and zero1 only, default 25)");
}

void add_process_options(CLI::App& command, TrainArguments& to) {
  const HelpGroup group(command, "Processes and devices");
  add_integer(command, "--nproc-per-node", to.nproc_per_node,
              "Processes to start on this host (default 1)");
  command.add_option("--accelerator", to.accelerator, "Device to train on: auto, cpu or cuda")
      ->capture_default_str();
  command.add_flag(
      "--share-gpu", to.share_gpu,
      "Let several ranks compute on one GPU, over NCCL unless --backend says otherwise: "
      "rank r of a host uses GPU r modulo the number of GPUs (for correctness, not for "
      "speed)");
  command
      .add_option("--backend", to.backend, "Backend of the group: " + join(comm::backend_names()))
      ->capture_default_str();
  command.add_option("--timeout", to.timeout_seconds, "Timeout of every wait, in seconds")
      ->capture_default_str();
  add_integer(command, "--threads", to.threads,
              "Compute threads per rank (default: the rank's share of the processors)");
}

void add_schedule_options(CLI::App& command, ScheduleArguments& to) {
  const HelpGroup group(command, "Schedules");
  command
      .add_option("--schedule", to.schedules,
                  "Schedule of the learning rate (" + join(learning_rate_schedule_names()) +
                      "), or of a pipeline (" + join(schedule_names()) +
                      "; default 1f1b); give the option twice for both")
      ->allow_extra_args(false);
  command.add_option(
      "--step-epochs", to.step_epochs,
      "Epochs between two reductions of the learning rate (--schedule step only, default 1)");
  command.add_option("--milestones", to.milestones,
                     "Epochs at which the learning rate is reduced, separated by commas, such as "
                     "30,60 (--schedule multi-step only)");
  command.add_option("--gamma", to.gamma,
                     "Factor applied to the learning rate at each reduction (--schedule step, "
                     "multi-step and plateau only, default 0.1)");
  command.add_option("--pct-start", to.pct_start,
                     "Share of the run in which the learning rate rises (--schedule one-cycle "
                     "only, default 0.3)");
  command.add_option(
      "--div-factor", to.div_factor,
      "Ratio of --lr to the initial learning rate (--schedule one-cycle only, default 25)");
  command.add_option(
      "--final-div-factor", to.final_div_factor,
      "Ratio of the initial to the final learning rate (--schedule one-cycle only, default 1e4)");
  command.add_flag("--cycle-momentum", to.cycle_momentum,
                   "Cycle the momentum (beta1 of adam and adamw) inversely to the learning rate "
                   "(--schedule one-cycle only)");
  command.add_option("--base-momentum", to.base_momentum,
                     "Smallest momentum (--cycle-momentum only, default 0.85)");
  command.add_option("--max-momentum", to.max_momentum,
                     "Largest momentum (--cycle-momentum only, default 0.95)");
  command.add_option(
      "--plateau", to.plateau,
      "METRIC:PATIENCE[:GOAL]: reduce the learning rate when the metric has not improved for more "
      "than PATIENCE evaluations; GOAL is min or max, and may be left out for losses (--schedule "
      "plateau only, default loss:10)");
  command.add_option(
      "--warmup-epochs", to.warmup_epochs,
      "Epochs of linear warmup before the schedule begins (any schedule, default: the "
      "recipe's)");
}

void add_computation_options(CLI::App& command, TrainArguments& to) {
  const HelpGroup group(command, "Computation");
  command
      .add_option(
          "--precision", to.precision,
          "Precision of the computation: " + join(precision_names()) + " (16 scales the loss)")
      ->capture_default_str();
  command.add_option("--matmul-precision", to.matmul_precision,
                     "Precision of float32 matrix products: " + join(matmul_precision_names()) +
                         " (high allows TF32 on GPUs, medium also bfloat16 on CPUs; default: "
                         "LibTorch's, highest)");
  command.add_flag("--cudnn-benchmark", to.cudnn_benchmark,
                   "Let cuDNN time its algorithms for each shape and use the fastest (GPUs only)");
  command.add_option("--memory-format", to.memory_format,
                     "Memory format of images and weights: channels-last or contiguous (recipes "
                     "with colour images only, default channels-last; with --program contiguous)");
  command.add_flag(
      "--cuda-graph", to.cuda_graph,
      "Capture a training step in a CUDA graph and replay it for all later steps (GPUs "
      "only, with single or ddp)");
  command.add_flag("--no-fused-kernels", to.no_fused_kernels,
                   "Use only LibTorch's operations (" + only_recipes(has_fused_kernels) +
                       "; by default, convolution, max-pool and ReLU run as one kernel on CPUs)");
  add_integer(
      command, "--seed", to.seed,
      "Seed for the initial weights, the order of the samples and the augmentation of images")
      ->capture_default_str();
  add_determinism_options(command, to.limits);
}

void add_length_options(CLI::App& command, TrainArguments& to) {
  const HelpGroup group(command, "Length of the run");
  add_integer(command, "--batch-size", to.batch_size,
              "Images or other samples per batch, summed over all ranks (default: the recipe's)");
  add_integer(command, "--max-epochs", to.max_epochs, "Number of epochs (default: the recipe's)");
  add_integer(
      command, "--accumulate-grad-batches", to.accumulate_grad_batches,
      "Number of batches whose gradients accumulate before each optimizer step (default 1)");
  add_limit_options(command, to.limits);
}

void add_loader_options(CLI::App& command, TrainArguments& to) {
  const HelpGroup group(command, "Data");
  command
      .add_option(
          "--data", to.data,
          "Folder of the data, or a file made by `lockstep data pack`, on which every recipe of "
          "images trains; for program also a .safetensors file or a folder of .npy files "
          "(default: $LOCKSTEP_DATA, then the download cache)")
      ->type_name("PATH");
  command
      .add_option("--loader", to.loader,
                  "Loader that prepares the images: " + join(loader_engine_names()))
      ->capture_default_str();
  add_integer(
      command, "--workers", to.workers,
      "Loader threads of all ranks together (default: one per rank); with 0, the training thread "
      "loads each batch between steps");
  add_corrupt_image_option(command, to.on_corrupt_image);
  add_max_image_pixels_option(command, to.max_image_pixels);
  add_decoding_option(command, to.decoding);
  command.add_flag("--exif-transpose", to.exif_transpose,
                   "Turn photographs upright by their EXIF orientation, which is ignored otherwise "
                   "(only for a recipe that reads --data as a folder of images, or as a pack of "
                   "their files)");
  add_mix_option(command, to.mix, "Mix the images of a batch");
}

void add_folder_options(CLI::App& command, TrainArguments& to) {
  const HelpGroup group(command, "Checkpoints");
  command
      .add_option("--out", to.out,
                  "Folder for checkpoints, traces and, without --log-dir, logs (default: none)")
      ->type_name("DIR");
  command
      .add_flag(
          "--resume", to.resume,
          "Resume from the newest complete checkpoint in --out; with auto, start a new run if "
          "there is none")
      ->type_name("[auto]");
  command.add_flag("--overwrite", to.overwrite,
                   "Start a new run although --out holds checkpoints, and replace them");
  command.add_option("--shutdown-timeout", to.shutdown_timeout_seconds,
                     lockstep::str("Seconds that the run has to finish its step and save after "
                                   "Ctrl-C or SIGTERM, before it is killed (with --out only, "
                                   "default ",
                                   kShutdownTimeout, ")"));
  add_checkpoint_options(command, to.checkpoints);
}

void add_train_report_options(CLI::App& command, TrainArguments& to) {
  const HelpGroup group(command, "Logs and reports");
  add_report_options(command, to.limits);
  command.add_option("--json", to.json, "Write the record of the run to this JSON file")
      ->type_name("FILE");
  command
      .add_option("--logger", to.logger,
                  "Loggers of the run's values, separated by commas: " + join(logger_names()))
      ->type_name("NAMES");
  command
      .add_option("--log-dir", to.log_dir,
                  "Folder of the logs, with a subfolder for each run (default: --out)")
      ->type_name("DIR");
  command
      .add_option("--mlflow-uri", to.mlflow_uri,
                  "URI of the MLflow server, http://HOST:PORT (--logger mlflow only, default: "
                  "$MLFLOW_TRACKING_URI)")
      ->type_name("URI");
}

}  // namespace

void add_train_options(CLI::App& command, TrainArguments& to) {
  const CLI::Option* const recipe =
      command.add_option("RECIPE", to.recipe, recipe_help())->required();
  command.formatter(std::make_shared<TrainHelp>(command, *recipe));
  add_recipe_options(command, to.of_recipe);
  add_strategy_options(command, to);
  add_process_options(command, to);
  add_length_options(command, to);
  add_evaluation_options(command, to.limits);
  add_optimizer_options(command, to.optimizer);
  add_gradient_options(command, to.limits);
  add_schedule_options(command, to.schedule);
  add_computation_options(command, to);
  add_loader_options(command, to);
  add_folder_options(command, to);
  add_train_report_options(command, to);
  collect_values(command, {"--inputs", "--device-weights", "--milestones", "--logger"});
  for (CLI::Option* option : command.get_options()) option->check(not_empty());
}

}  // namespace lockstep::cli
