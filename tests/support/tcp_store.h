// The store at which the ranks of a test meet.
#pragma once

#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include <lockstep/comm/store/network.h>

namespace lockstep::testing_support {

/// Opens a new connection to the store at a listening socket of this process or its parent. Rank 0
/// serves the store and takes over the socket. No rank waits for the others.
inline c10::intrusive_ptr<c10d::Store> tcp_store(int rank, int listen_fd) {
  c10d::TCPStoreOptions options;
  options.port = comm::bound_port(listen_fd);
  options.waitWorkers = false;
  options.isServer = rank == 0;
  if (rank == 0) options.masterListenFd = listen_fd;
  return c10::make_intrusive<c10d::TCPStore>("127.0.0.1", options);
}

}  // namespace lockstep::testing_support
