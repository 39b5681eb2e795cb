// Whether a run's checkpoints will fit onto their disk, asked before it trains.
#pragma once

#include <cstdint>
#include <filesystem>

#include <torch/nn/module.h>

#include <lockstep/optim/update_rule.h>

namespace lockstep {

/// About the bytes that a checkpoint of `module`, trained by `rule`, takes on the disk.
std::uint64_t checkpoint_bytes(const torch::nn::Module& module, const UpdateRule& rule);

/// CheckpointError when the file system of `directory` has less room than `count` more checkpoints
/// of `bytes` need. Quotas are not seen. Does nothing where the file system does not tell what is
/// free.
void require_checkpoint_space(const std::filesystem::path& directory, std::uint64_t bytes,
                              std::int64_t count);

}  // namespace lockstep
