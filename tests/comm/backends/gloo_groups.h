// Gloo backends that meet at a listening socket, for tests of the layers below ProcessGroup.
#pragma once

#include <c10/util/Logging.h>
#include <csignal>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>

#include <lockstep/comm/backends/gloo/gloo.h>
#include <lockstep/comm/store/network.h>
#include <tests/comm/backends/backend_oracle.h>
#include <tests/support/ranks.h>
#include <tests/support/tcp_store.h>

namespace lockstep::testing_support {

inline c10::intrusive_ptr<c10d::Store> connect_store(int rank, int listen_fd) {
  std::signal(SIGPIPE, SIG_IGN);  // like the rendezvous of a program: peers die
  FLAGS_caffe2_log_level = 2;     // errors only: PyTorch warns about every lost store
  return tcp_store(rank, listen_fd);
}

inline std::shared_ptr<comm::Backend> connect_gloo(const c10::intrusive_ptr<c10d::Store>& store,
                                                   const std::string& group, int rank, int size,
                                                   std::chrono::milliseconds timeout) {
  WorkerEnvironment environment;
  environment.rank = rank;
  environment.world_size = size;
  return gloo::connect(c10::make_intrusive<c10d::PrefixStore>(group, store), environment,
                       "127.0.0.1", torch::kCPU, timeout);
}

/// Calls `body` with each rank's backend, on one thread per rank.
inline std::vector<std::string> run_gloo_threads(
    int size, const std::function<void(Caller&)>& body,
    std::chrono::milliseconds timeout = std::chrono::seconds(30)) {
  const int fd = comm::listen_on("127.0.0.1", 0);  // rank 0's store takes ownership
  return run_threads(size, [&](int rank) {
    const auto store = connect_store(rank, fd);
    Caller caller(connect_gloo(store, "test", rank, size, timeout), rank, size);
    body(caller);
    caller.barrier();
  });
}

/// Like run_gloo_threads(), with forked processes, which do not wait for each other at the end.
inline std::vector<std::string> run_gloo_processes(int size,
                                                   const std::function<void(Caller&)>& body,
                                                   std::chrono::milliseconds timeout,
                                                   std::chrono::seconds limit) {
  const int fd = comm::listen_on("127.0.0.1", 0);
  auto errors = run_processes(
      size,
      [&](int rank) {
        std::signal(SIGPIPE, SIG_IGN);  // like the rendezvous of a program
        const auto store = connect_store(rank, fd);
        Caller caller(connect_gloo(store, "test", rank, size, timeout), rank, size);
        body(caller);
      },
      limit);
  close(fd);
  return errors;
}

}  // namespace lockstep::testing_support
