// Options of `lockstep train` for writing and keeping checkpoints.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

#include <CLI/CLI.hpp>

#include <lockstep/train/checkpoints/checkpoint_options.h>

namespace lockstep::cli {

/// Name of the link, in a run's folder, to the weights of its newest checkpoint.
inline constexpr const char* kWeightsLink = "checkpoint.safetensors";
/// Name of the folder of checkpoints in a run's folder.
inline constexpr const char* kCheckpointsFolder = "checkpoints";

/// The options as given by the user; absent: the Trainer's default.
struct CheckpointArguments {
  std::optional<std::int64_t> every_n_train_steps;
  std::optional<std::int64_t> keep_checkpoints;
  std::optional<std::string> save_top_k;
  bool in_background = false;

  bool operator==(const CheckpointArguments&) const = default;
};

/// Adds the options to `command`; parsing writes them into `to`.
void add_checkpoint_options(CLI::App& command, CheckpointArguments& to);

/// Checks the options for a run in the folder `out`, which is empty if nothing is kept. Throws
/// ConfigError, which names the option.
CheckpointOptions resolve_checkpoints(const CheckpointArguments& arguments,
                                      const std::filesystem::path& out);

}  // namespace lockstep::cli
