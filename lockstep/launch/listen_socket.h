// The meeting point's socket, bound before the ranks exist so that no other program can take its
// port.
#pragma once

#include <cstdint>

namespace lockstep {

struct ListenSocket {
  int fd = -1;  ///< Owned by the caller.
  std::uint16_t port = 0;
};

/// Listens on 127.0.0.1:`port`; with 0 on a free port. ConfigError when the port is taken or
/// refused.
ListenSocket listen_on_loopback(std::uint16_t port);

}  // namespace lockstep
