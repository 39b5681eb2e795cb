// Seeds of LibTorch's generators as a function of the place in the run.
#pragma once

#include <cstdint>

#include <torch/types.h>

namespace lockstep {

/// 64 bits that belong to (seed, epoch, step, rank).
std::uint64_t step_seed(std::uint64_t seed, std::int64_t epoch, std::int64_t step, int rank);

/// Seeds the CPU's default generator, and the device's where that is another.
void seed_generators(std::uint64_t seed, torch::Device device);

}  // namespace lockstep
