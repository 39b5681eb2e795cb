// The checks of every backend's allocate(), and process memory for backends without shared memory.
#pragma once

#include <cstddef>
#include <functional>

#include <torch/types.h>

namespace lockstep::comm {

/// Size in bytes of a tensor of this shape. Throws ConfigError if a size is negative or the number
/// of bytes overflows.
std::size_t bytes_to_allocate(at::IntArrayRef shape, torch::ScalarType dtype);

/// A zeroed tensor, made by `make` or, without one, by torch::zeros. Throws a one-line ConfigError
/// for an invalid shape or if the host or device has too little free memory. Not collective: each
/// rank checks on its own and ignores what other ranks allocate at the same moment.
torch::Tensor zeroed_memory(at::IntArrayRef shape, const torch::TensorOptions& options,
                            const std::function<torch::Tensor()>& make = {});

}  // namespace lockstep::comm
