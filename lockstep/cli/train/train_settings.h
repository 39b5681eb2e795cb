// The options of `lockstep train`, checked: what the launcher hands to each rank.
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
#include <lockstep/cli/train/train_recipe.h>
#include <lockstep/cli/train/train_schedule.h>
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

namespace lockstep {

/// As the user gave them; absent where the recipe's default counts.
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
  std::optional<double> bucket_cap_mb;
  std::optional<int> nproc_per_node;
  std::string accelerator = "auto";
  std::string backend = "auto";
  std::string loader = "native";
  std::string on_corrupt_image = "stop";
  std::optional<std::int64_t> max_image_pixels;
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
  std::optional<std::string> optimizer;
  std::optional<double> lr;
  std::optional<double> weight_decay;
  std::optional<double> momentum;
  bool nesterov = false;
  std::vector<double> betas;  ///< none or two
  std::optional<double> eps;
  bool amsgrad = false;
  ScheduleArguments schedule;
  LimitArguments limits;
  CheckpointArguments checkpoints;
  std::uint64_t seed = 0;
  std::optional<std::string> data;
  std::optional<std::string> out;
  bool resume = false;
  bool overwrite = false;
  int threads = 0;
  std::optional<int> workers;  ///< absent: one for each rank
  std::optional<std::string> json;
  std::optional<std::string> logger;
  std::optional<std::string> log_dir;
  std::optional<std::string> mlflow_uri;
  double timeout_seconds = 300;
};

struct TrainSettings {
  std::shared_ptr<const Recipe> recipe;
  RecipeSettings of_recipe;  ///< with the same recipe
  std::string strategy;
  StrategyOptions strategy_options;  ///< without the devices, which the rank finds
  /// Whether a process computes on several devices, and on how many; no number: as many as it finds
  /// useful.
  bool on_several_devices = false;
  std::optional<int> devices;
  bool has_pipeline = false;  ///< the strategy needs a model in stages
  /// The environment of the launcher that started this process; absent: we start the ranks.
  std::optional<WorkerEnvironment> worker;
  int world_size = 1;
  int data_shares = 1;  ///< the ranks, or pipelines of ranks, that divide a batch between them
  std::string accelerator;
  std::string backend;
  LoaderEngineKind loader = LoaderEngineKind::kNative;
  OnCorruptImage on_corrupt_image = OnCorruptImage::kStop;
  std::int64_t max_image_pixels = kMaxImagePixels;                 ///< of the image files of --data
  ImageReader::Decoding decoding = ImageReader::Decoding::kExact;  ///< of the image files of --data
  BatchMix mix;
  Precision precision = Precision::k32;
  bool fused_kernels = true;
  bool channels_last = false;  ///< memory format of the images and of the module's parameters
  std::int64_t global_batch = 0;
  std::int64_t batch_per_rank = 0;
  /// How the Trainer trains, and for how long. What depends on the rank, and what other members
  /// have, train_rank() fills in.
  TrainerOptions trainer;
  std::uint64_t seed = 0;
  std::optional<std::string> data;
  std::filesystem::path out;  ///< empty: nothing is kept
  /// On `out`, in the process that speaks. Ranks that it forks inherit it: nobody else writes there
  /// while one of them lives.
  std::shared_ptr<const FileLock> out_lock;
  bool resume = false;
  bool quiet = false;        ///< nothing is shown while the run goes on
  int threads = 0;           ///< per rank; 0: its share of the processors
  int workers_per_rank = 0;  ///< loader threads
  std::filesystem::path json;
  std::vector<std::string> loggers;  ///< by their names; none: nothing is logged
  LoggerSetup logger_setup;
  std::chrono::milliseconds timeout{};
  /// When the command began that trains; absent: when this program was started.
  std::optional<Clock::time_point> started{};

  /// Whether this process writes what the run has to say, on the screen and into files.
  bool speaks() const { return !worker || worker->rank == 0; }
};

/// Checks everything that can be checked before a rank exists, and creates and locks --out where
/// the process speaks for the run. ConfigError names the option, also when --out is in use or holds
/// a checkpoint that neither --resume nor --overwrite speaks of; CheckpointError when there is
/// nothing to resume from.
TrainSettings resolve(const TrainArguments& arguments);

}  // namespace lockstep
