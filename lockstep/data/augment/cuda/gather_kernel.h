// The host-side launch of the cuda engine's kernel.
#pragma once

#include <lockstep/data/augment/cuda/gather.h>

struct CUstream_st;  // cudaStream_t points to it

namespace lockstep::data {

/// Launches one kernel on `stream`, without allocation or synchronisation, so the launch can be
/// captured in a CUDA graph. Returns the runtime's cudaError_t.
int launch_gather(const GatherLaunch& launch, CUstream_st* stream);

}  // namespace lockstep::data
