// A store that listens on loopback for the tests of what its clients can do, and a secret for it.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <utility>

#include <lockstep/comm/store/connection.h>
#include <lockstep/comm/store/network.h>
#include <lockstep/comm/store/proof.h>
#include <lockstep/comm/store/server.h>

namespace lockstep::tcp_store {

// A keyed hash that is good enough for a test: different keys and texts give different results.
inline Mac mac_of_key(const std::string& key) {
  return [key](const std::string& text) {
    std::string code;
    std::uint64_t hash = 14695981039346656037ULL;
    for (int part = 0; part < 4; ++part) {
      for (const char c : key + '/' + text) {
        hash = (hash ^ static_cast<unsigned char>(c)) * 1099511628211ULL;
      }
      code.append(reinterpret_cast<const char*>(&hash), sizeof(hash));
    }
    return code;
  };
}

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
