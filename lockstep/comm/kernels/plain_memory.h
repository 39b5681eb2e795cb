// What allocate() of every backend checks, and memory of this process for those that have no other.
#pragma once

#include <cstddef>
#include <functional>

#include <torch/types.h>

namespace lockstep {

/// ConfigError where no tensor can have the shape: a negative size, or too many bytes to count.
std::size_t bytes_to_allocate(at::IntArrayRef shape, torch::ScalarType dtype);

/// Zeros, made by `make` or, without one, torch::zeros. ConfigError, in one line, also where the
/// host or device has not as much left. Not collective: each rank looks by itself, and takes no
/// account of what others allocate at the same moment.
torch::Tensor zeroed_memory(at::IntArrayRef shape, const torch::TensorOptions& options,
                            const std::function<torch::Tensor()>& make = {});

}  // namespace lockstep
