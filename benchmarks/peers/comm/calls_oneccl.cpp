// oneCCL's collectives for comm_mpi.c, with oneCCL's defaults. MPI only starts the processes and
// broadcasts the address of oneCCL's key-value store.
#include <mpi.h>

#include <optional>
#include <vector>

#include <oneapi/ccl.hpp>

#include "comm_calls.h"

const char* const kBackend = "oneccl";
const int kThreadLevel = MPI_THREAD_MULTIPLE;

namespace {
std::optional<ccl::communicator> communicator;
}

void begin_calls(int rank, int ranks) {
  ccl::init();
  ccl::shared_ptr_class<ccl::kvs> store;
  ccl::kvs::address_type address;
  if (rank == 0) {
    store = ccl::create_main_kvs();
    address = store->get_address();
  }
  MPI_Bcast(address.data(), static_cast<int>(address.size()), MPI_BYTE, 0, MPI_COMM_WORLD);
  if (rank != 0) store = ccl::create_kvs(address);
  communicator.emplace(ccl::create_communicator(ranks, rank, store));
}

void end_calls() { communicator.reset(); }

void call_collective(const CollectiveCall* op) {
  const std::size_t elements = op->elements, part = elements / op->ranks;
  switch (op->collective) {
    case kAllReduce:
      ccl::allreduce(op->whole, op->whole, elements, ccl::reduction::sum, *communicator).wait();
      break;
    case kBroadcast:
      ccl::broadcast(op->whole, elements, 0, *communicator).wait();
      break;
    case kReduceScatter:
      ccl::reduce_scatter(op->whole, op->other, part, ccl::reduction::sum, *communicator).wait();
      break;
    case kAllGather:
      ccl::allgatherv(op->whole, part, op->other, std::vector<std::size_t>(op->ranks, part),
                      *communicator)
          .wait();
      break;
    case kAllToAll:
      ccl::alltoall(op->whole, op->other, part, *communicator).wait();
      break;
    case kSendRecv:
      if (op->rank == 0) ccl::send(op->whole, elements, 1, *communicator).wait();
      if (op->rank == 1) ccl::recv(op->whole, elements, 0, *communicator).wait();
      break;
  }
}
