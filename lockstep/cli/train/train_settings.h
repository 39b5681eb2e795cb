// The checked options of `lockstep train`, which the launcher passes to each rank.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <lockstep/cli/train/train_checkpoints.h>
#include <lockstep/cli/train/train_limits.h>
#include <lockstep/cli/train/train_optimizer.h>
#include <lockstep/cli/train/train_recipe.h>
#include <lockstep/cli/train/train_schedule.h>
#include <lockstep/comm/backends/nccl/gpu_sharing.h>
#include <lockstep/comm/rendezvous/worker_environment.h>
#include <lockstep/core/clock.h>
#include <lockstep/core/file_lock.h>
#include <lockstep/data/loader/loader_options.h>
#include <lockstep/formats/image.h>
#include <lockstep/recipes/recipe.h>
#include <lockstep/report/loggers/logger_table.h>
#include <lockstep/train/optimization/precision.h>
#include <lockstep/train/strategies/strategy.h>
#include <lockstep/train/trainer.h>

namespace CLI {
class App;
}

namespace lockstep::cli {

/// --shutdown-timeout unless it is given, in seconds.
inline constexpr double kShutdownTimeout = 60;

/// What CLI11 stores for a flag that is given without a value.
inline constexpr const char* kResumeFlag = "true";

/// The options as given by the user; absent: the recipe's default.
struct TrainArguments {
  std::string recipe;
  RecipeArguments of_recipe;
  std::optional<std::string> strategy;
  std::optional<int> devices;
  std::optional<std::string> device_weights;
  std::optional<std::string> dp_loss;
  std::optional<int> stages;
  std::optional<int> micro_batches;
  bool recompute = false;
  bool shard_optimizer = false;
  bool sync_batchnorm = false;
  bool find_unused_parameters = false;
  std::optional<double> bucket_cap_mb;
  std::optional<int> nproc_per_node;
  std::string accelerator = "auto";
  std::string backend = "auto";
  bool share_gpu = false;
  std::optional<int> nccl_version = nccl::loaded_version();  ///< not an option; tests replace it
  std::string loader = "native";
  std::string on_corrupt_image = "stop";
  std::optional<std::int64_t> max_image_pixels;
  bool exif_transpose = false;
  std::optional<std::string> decoding;
  std::string mix = "none";
  std::string precision = "32";
  std::optional<std::string> matmul_precision;
  std::optional<std::string> memory_format;
  bool cudnn_benchmark = false;
  bool cuda_graph = false;
  bool no_fused_kernels = false;
  std::optional<std::int64_t> batch_size;
  std::optional<std::int64_t> max_epochs;
  std::int64_t accumulate_grad_batches = 1;
  OptimizerArguments optimizer;
  ScheduleArguments schedule;
  LimitArguments limits;
  CheckpointArguments checkpoints;
  std::uint64_t seed = 0;
  std::optional<std::string> data;
  std::optional<std::string> out;
  /// kResumeFlag, or the value that was given; absent: no --resume.
  std::optional<std::string> resume;
  bool overwrite = false;
  std::optional<double> shutdown_timeout_seconds;
  int threads = 0;
  std::optional<int> workers;  ///< absent: one per rank
  std::optional<std::string> json;
  std::optional<std::string> logger;
  std::optional<std::string> log_dir;
  std::optional<std::string> mlflow_uri;
  double timeout_seconds = 300;

  bool operator==(const TrainArguments&) const = default;
};

/// Adds RECIPE and all options to `command`; parsing writes them into `to`, which must outlive it.
void add_train_options(CLI::App& command, TrainArguments& to);

struct TrainSettings {
  std::shared_ptr<const recipes::Recipe> recipe;
  RecipeSettings of_recipe;  ///< from the equally named options
  std::string strategy;
  StrategyOptions strategy_options;  ///< without devices, which each rank chooses
  /// Whether a process computes on several devices, and on how many; absent: the strategy's
  /// default.
  bool on_several_devices = false;
  std::optional<int> devices;
  bool has_pipeline = false;  ///< whether the strategy needs a model in stages
  /// The environment set by the launcher that started this process; absent: this process starts the
  /// ranks.
  std::optional<WorkerEnvironment> worker;
  int world_size = 1;
  int data_shares = 1;  ///< number of ranks, or pipelines of ranks, among which a batch is divided
  std::string accelerator;
  std::string backend;
  bool share_gpu = false;  ///< whether ranks of a host may compute on one GPU
  /// How they share it over NCCL; absent over another backend.
  std::optional<nccl::GpuSharing> gpu_sharing{};
  LoaderEngineKind loader = LoaderEngineKind::kNative;
  OnCorruptImage on_corrupt_image = OnCorruptImage::kStop;
  std::int64_t max_image_pixels = kMaxImagePixels;                 ///< for images of --data
  bool exif_transpose = false;                                     ///< for images of --data
  ImageReader::Decoding decoding = ImageReader::Decoding::kExact;  ///< for images of --data
  BatchMix mix;
  Precision precision = Precision::k32;
  bool fused_kernels = true;
  bool channels_last = false;  ///< memory format of images and parameters
  std::int64_t global_batch = 0;
  std::int64_t batch_per_rank = 0;
  /// Options of the Trainer. train_rank() fills in those that depend on the rank or are held by
  /// other members.
  TrainerOptions trainer;
  std::uint64_t seed = 0;
  std::optional<std::string> data;
  std::filesystem::path out;  ///< empty: nothing is kept
  /// The lock on `out`, held by the process that speaks for the run. Forked ranks inherit it, so
  /// other runs cannot use the folder while any of them lives.
  std::shared_ptr<const FileLock> out_lock;
  /// Whether the run resumes, so that --weights is not used. With --resume auto, only the process
  /// that speaks for the run and its forked ranks know this; elsewhere it is false.
  bool resumes = false;
  bool quiet = false;        ///< whether to print nothing during the run
  int threads = 0;           ///< per rank; 0: its share of the processors
  int workers_per_rank = 0;  ///< loader threads
  std::filesystem::path json;
  std::vector<std::string> loggers;  ///< names; empty: no logging
  LoggerSetup logger_setup;
  std::chrono::milliseconds timeout{};
  /// Start of the training command; absent: start of this program.
  std::optional<Clock::time_point> started{};

  /// Time that an interrupted run has to finish its step and save.
  std::chrono::milliseconds shutdown_timeout{};
  /// Whether the run keeps checkpoints, so that it can be saved when it is interrupted.
  bool saves() const { return !out.empty() && trainer.fast_dev_run == 0; }
  /// Whether this process writes the run's output, on the screen and to files.
  bool speaks() const { return !worker || worker->rank == 0; }
};

/// Checks everything that can be checked before a rank exists, and creates and locks --out in the
/// process that speaks for the run. Throws ConfigError, which names the option, if a value is
/// invalid, if --out is in use, or if it holds a checkpoint and neither --resume nor --overwrite is
/// given. Throws CheckpointError if there is nothing to resume from.
TrainSettings resolve(const TrainArguments& arguments);

}  // namespace lockstep::cli
