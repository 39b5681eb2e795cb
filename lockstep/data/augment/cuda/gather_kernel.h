// The cuda engine's kernel, as the host calls it.
#pragma once

#include <lockstep/data/augment/cuda/gather.h>

struct CUstream_st;  // cudaStream_t points to it

namespace lockstep {

/// Puts one kernel on `stream`: no allocation and no synchronisation, so that it can be captured in
/// a CUDA graph. Returns the runtime's cudaError_t.
int launch_gather(const GatherLaunch& launch, CUstream_st* stream);

}  // namespace lockstep
