// The little of TCP that a rendezvous needs: which address, is it mine, who listens, can I reach it.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

namespace lockstep {

/// The IPv4 or IPv6 address of a host name, as text. CommError when it cannot be resolved.
std::string resolve_address(const std::string& host);

/// A socket that listens on `host` at `port` (0: any free one) and on no other interface. The caller
/// owns the descriptor. CommError names the address and the reason: in use, not an address of this
/// machine, not permitted.
int listen_on(const std::string& host, std::uint16_t port);

/// The port that a listening socket is bound to.
std::uint16_t bound_port(int fd);

/// The address of this machine's interface that leads to `host`.
std::string local_address_towards(const std::string& host, std::uint16_t port);

/// Waits until somebody listens at host:port. TimeoutError at the deadline.
void wait_for_listener(const std::string& host, std::uint16_t port,
                       std::chrono::milliseconds timeout);

}  // namespace lockstep
