// Checks before training that a run's checkpoints will fit on their disk.
#pragma once

#include <cstdint>
#include <filesystem>

#include <torch/nn/module.h>

#include <lockstep/optim/update_rule.h>

namespace lockstep::train {

/// Approximate size on disk of a checkpoint of `module` trained with `rule`, in bytes.
std::uint64_t checkpoint_bytes(const torch::nn::Module& module, const detail::UpdateRule& rule);

/// Throws CheckpointError if the file system of `directory` has less free space than `count` more
/// checkpoints of `bytes` each need. Ignores quotas. Does nothing if the file system does not
/// report its free space.
void require_checkpoint_space(const std::filesystem::path& directory, std::uint64_t bytes,
                              std::int64_t count);

}  // namespace lockstep::train
