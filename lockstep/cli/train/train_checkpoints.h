// Options of `lockstep train` that say which checkpoints a run writes and which it keeps.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

#include <CLI/CLI.hpp>

#include <lockstep/train/checkpoints/checkpoint_options.h>

namespace lockstep {

/// In a run's folder, the link to the weights of its newest checkpoint.
inline constexpr const char* kWeightsLink = "checkpoint.safetensors";

/// As the user gave them; absent where the Trainer's default counts.
struct CheckpointArguments {
  std::optional<std::int64_t> every_n_train_steps;
  std::optional<std::int64_t> keep_checkpoints;
  std::optional<std::string> save_top_k;
  bool in_background = false;
};

/// Adds the options to `command`, which writes them into `to`.
void add_checkpoint_options(CLI::App& command, CheckpointArguments& to);

/// Checks the options for a run in the folder `out`, which is empty where nothing is kept.
/// ConfigError names the option.
CheckpointOptions resolve_checkpoints(const CheckpointArguments& arguments,
                                      const std::filesystem::path& out);

/// Whether a run has left a checkpoint, of this version or an earlier one, where `options` says.
bool holds_checkpoint(const CheckpointOptions& options);

}  // namespace lockstep
