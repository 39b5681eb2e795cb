// Checks the devices of the replicas.
#pragma once

#include <initializer_list>
#include <vector>

#include <torch/types.h>

#include <lockstep/core/export.h>

namespace lockstep::detail::data_parallel {

/// The devices with these LibTorch names: "cpu", "cuda:1". Throws ConfigError for an unknown name.
LOCKSTEP_API std::vector<torch::Device> devices_named(std::initializer_list<const char*> names);

/// `devices` with the indices that their tensors report: none for a CPU; for a GPU, a missing index
/// becomes the current device. Throws ConfigError unless there is at least one, all are of one
/// type, each exists in this process, and only CPUs are repeated, or, with `share_gpus`, also GPUs.
LOCKSTEP_API std::vector<torch::Device> checked_devices(std::vector<torch::Device> devices,
                                                        bool share_gpus = false);

}  // namespace lockstep::detail::data_parallel
