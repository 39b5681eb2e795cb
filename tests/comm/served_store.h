// A store that listens on loopback for the tests of what its clients can do.
#pragma once

#include <chrono>
#include <cstdint>
#include <utility>

#include <lockstep/comm/store/connection.h>
#include <lockstep/comm/store/network.h>
#include <lockstep/comm/store/server.h>

namespace lockstep::tcp_store {

struct ServedStore {
  explicit ServedStore(ServerOptions options = {}) : server(fd, std::move(options)) {}
  ConnectionOptions options(Mac mac = {}) const {
    return {.who = "rank 1",
            .port = port,
            .timeout = std::chrono::seconds(30),
            .served_by_rank_0 = true,
            .mac = std::move(mac)};
  }

  const int fd = comm::listen_on("127.0.0.1", 0);
  const std::uint16_t port = comm::bound_port(fd);
  Server server;
};

}  // namespace lockstep::tcp_store
