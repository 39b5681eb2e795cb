// Seeds of LibTorch's generators as a function of the position in the run.
#pragma once

#include <cstdint>

#include <torch/types.h>

#include <lockstep/core/export.h>

namespace lockstep {

/// A 64-bit seed derived from (seed, epoch, step, rank).
LOCKSTEP_API std::uint64_t step_seed(std::uint64_t seed, std::int64_t epoch, std::int64_t step,
                                     int rank);

/// Seeds the CPU's default generator, and that of `device` if it is not a CPU.
LOCKSTEP_API void seed_generators(std::uint64_t seed, torch::Device device);

}  // namespace lockstep
