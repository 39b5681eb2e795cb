// Whether a run's checkpoints will fit onto their disk, asked before it trains.
#pragma once

#include <cstdint>
#include <filesystem>

#include <torch/nn/module.h>

#include <lockstep/optim/update_rule.h>

namespace lockstep {

/// About the size of the file that save_checkpoint() writes for `module`, trained by `rule`.
std::uint64_t checkpoint_bytes(const torch::nn::Module& module, const UpdateRule& rule);

/// CheckpointError when the file system of `path` has less room than the next `saves` checkpoints of
/// `bytes` need. Each is written beside the one before it, which may exist already, and then takes
/// its place: there are two for a moment. Quotas are not seen. Does nothing where the file system
/// does not tell what is free.
void require_checkpoint_space(const std::filesystem::path& path, std::uint64_t bytes,
                              std::int64_t saves);

}  // namespace lockstep
