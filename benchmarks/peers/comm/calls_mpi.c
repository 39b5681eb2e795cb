// MPI's own collectives for comm_mpi.c. The compiler wrapper decides which MPI the program uses and reports.
#include <mpi.h>

#include "comm_calls.h"

#ifdef OMPI_MAJOR_VERSION
const char* const kBackend = "openmpi";
#else
const char* const kBackend = "intelmpi";
#endif

const int kThreadLevel = MPI_THREAD_SINGLE;

void begin_calls(int rank, int ranks) {
  (void)rank;
  (void)ranks;
}
void end_calls(void) {}

void call_collective(const CollectiveCall* op) {
  const int part = op->elements / op->ranks;
  switch (op->collective) {
    case kAllReduce:
      MPI_Allreduce(MPI_IN_PLACE, op->whole, op->elements, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
      break;
    case kBroadcast:
      MPI_Bcast(op->whole, op->elements, MPI_FLOAT, 0, MPI_COMM_WORLD);
      break;
    case kReduceScatter:
      MPI_Reduce_scatter_block(op->whole, op->other, part, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
      break;
    case kAllGather:
      MPI_Allgather(op->whole, part, MPI_FLOAT, op->other, part, MPI_FLOAT, MPI_COMM_WORLD);
      break;
    case kAllToAll:
      MPI_Alltoall(op->whole, part, MPI_FLOAT, op->other, part, MPI_FLOAT, MPI_COMM_WORLD);
      break;
    case kSendRecv:
      if (op->rank == 0) MPI_Send(op->whole, op->elements, MPI_FLOAT, 1, 0, MPI_COMM_WORLD);
      if (op->rank == 1) {
        MPI_Recv(op->whole, op->elements, MPI_FLOAT, 0, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
      }
      break;
  }
}
