// The two names that dali.h needs of CUDA's header of this name, so that the module lockstep_dali
// can be built where there is no CUDA; DALI's wheel has no such header.
#pragma once

typedef struct CUstream_st* cudaStream_t;
typedef struct CUevent_st* cudaEvent_t;
