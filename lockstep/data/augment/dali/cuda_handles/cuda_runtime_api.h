// The two declarations that dali.h needs from CUDA's header of this name, so that the module
// lockstep_dali can be built without CUDA. DALI's wheel does not contain this header.
#pragma once

typedef struct CUstream_st* cudaStream_t;
typedef struct CUevent_st* cudaEvent_t;
