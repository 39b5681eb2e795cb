// The devices of the replicas, checked.
#pragma once

#include <initializer_list>
#include <vector>

#include <torch/types.h>

namespace lockstep::data_parallel {

/// The devices that LibTorch knows by these names: "cpu", "cuda:1". ConfigError for another name.
std::vector<torch::Device> devices_named(std::initializer_list<const char*> names);

/// `devices` as their tensors name them: no index for a CPU, one for a GPU, where the current
/// device stands in for a missing one. ConfigError unless there is at least one, all are of one
/// type, each exists in this process, and only CPUs occur more than once.
std::vector<torch::Device> checked_devices(std::vector<torch::Device> devices);

}  // namespace lockstep::data_parallel
