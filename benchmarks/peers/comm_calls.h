// What comm_mpi.c times: one library's collectives.
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
  int elements;  // of the larger buffer
  float* whole;
  float* other;  // as large
} Operation;

extern const char* const kBackend;
extern const int kThreadLevel;  // what MPI_Init_thread() is asked for

// After MPI_Init_thread() and before MPI_Finalize().
void begin_calls(int rank, int ranks);
void end_calls(void);

// all_reduce, broadcast and send_recv (rank 0 to rank 1) work on `whole`; the others read `whole`
// and write `other`.
void call_collective(const Operation* op);

#ifdef __cplusplus
}
#endif
