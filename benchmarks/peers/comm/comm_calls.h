// The interface of the library whose collectives comm_mpi.c times.
#pragma once

#ifdef __cplusplus
extern "C" {
#endif

typedef enum {
  kAllReduce,
  kBroadcast,
  kReduceScatter,
  kAllGather,
  kAllToAll,
  kSendRecv
} Collective;

typedef struct {
  Collective collective;
  int rank;
  int ranks;
  int elements;  // number of elements in the larger buffer
  float* whole;
  float* other;  // same size
} CollectiveCall;

extern const char* const kBackend;
extern const int kThreadLevel;  // argument of MPI_Init_thread()

// Called after MPI_Init_thread() and before MPI_Finalize(), respectively.
void begin_calls(int rank, int ranks);
void end_calls(void);

// all_reduce, broadcast and send_recv (rank 0 to rank 1) work on `whole` only. The others read
// `whole` and write `other`.
void call_collective(const CollectiveCall* op);

#ifdef __cplusplus
}
#endif
