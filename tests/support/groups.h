// Process groups for tests: every rank is a thread with its own environment.
#pragma once

#include <algorithm>
#include <functional>
#include <string>
#include <vector>

#include <lockstep/comm/group/process_group.h>
#include <lockstep/comm/store/network.h>
#include <tests/support/ranks.h>

namespace lockstep::testing_support {

/// The environment of `rank` in a group of `size` ranks on this host, which meet at the listening
/// socket.
inline WorkerEnvironment environment_of(int rank, int size, int listen_fd) {
  return {.rank = rank,
          .world_size = size,
          .local_rank = rank,
          .local_world_size = size,
          .master_port = comm::bound_port(listen_fd),
          .listen_fd = listen_fd};
}

/// Joins a group. With "hierarchical" each pair of ranks simulates a host. In a group of two ranks,
/// each rank does.
inline ProcessGroup join_group(int rank, int size, const std::string& backend, int listen_fd) {
  ProcessGroupOptions options{.backend = backend,
                              .timeout = std::chrono::seconds(30),
                              .environment = environment_of(rank, size, listen_fd)};
  if (backend == "hierarchical") {
    const int together = size == 2 ? 1 : 2;
    options.host_id = str(rank / together);
    options.environment->local_rank = rank % together;
    options.environment->local_world_size = std::min(together, size - rank / together * together);
  }
  return init_process_group(options);
}

/// Calls `body` with each rank's group, on one thread per rank. Returns the ranks' errors, as
/// run_threads() does.
inline std::vector<std::string> run_group(int size, const std::string& backend,
                                          const std::function<void(ProcessGroup)>& body) {
  const int fd = comm::listen_on("127.0.0.1", 0);  // the store of rank 0 takes it over
  return run_threads(size, [&](int rank) { body(join_group(rank, size, backend, fd)); });
}

/// Like run_group(), with one forked process per rank.
inline std::vector<std::string> run_group_processes(
    int size, const std::string& backend, const std::function<void(ProcessGroup)>& body,
    std::chrono::seconds limit = std::chrono::seconds(60)) {
  const int fd = comm::listen_on("127.0.0.1", 0);
  auto errors =
      run_processes(size, [&](int rank) { body(join_group(rank, size, backend, fd)); }, limit);
  close(fd);
  return errors;
}

}  // namespace lockstep::testing_support
