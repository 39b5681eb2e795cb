// The little of TCP that a rendezvous needs: which address, is it mine, who listens, can I reach
// it.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>

namespace lockstep {

/// The IPv4 or IPv6 address of a host name, as text. CommError when it cannot be resolved.
std::string resolve_address(const std::string& host);

/// Whether a host name or numeric address says by itself that it is this machine.
bool is_loopback(const std::string& host);

/// 127.0.0.1, or ::1 on a host that has no other loopback address.
std::string own_loopback();

/// Every interface of the machine, as an address to listen on.
inline constexpr const char* kAnyAddress = "0.0.0.0";

/// The address that rank 0 should listen on so that others reach it as `host`. Normally the one
/// that the name means. Where peers are on other hosts and the name means a loopback address here
/// (Debian's /etc/hosts gives the own name 127.0.1.1), the address of this machine's only other
/// interface; and kAnyAddress, with a warning in the log, where that is not clear or the address is
/// not ours (a translated or virtual one).
std::string meeting_address(const std::string& host, bool several_hosts);

/// Whether meeting_address() leads past loopback, so that other machines and their users reach the
/// meeting point. A name that cannot be resolved counts as one that does.
bool is_reached_from_outside(const std::string& host, bool several_hosts);

/// A socket that listens on `host` at `port` (0: any free one) and on no other interface. The
/// caller owns the descriptor. CommError names the address and the reason: in use, not an address
/// of this machine, not permitted.
int listen_on(const std::string& host, std::uint16_t port);

/// A socket that keeps a free port of `host` from others while nobody listens there: the kernel
/// refuses each connection at once, also while this process is stopped. The caller owns the
/// descriptor. CommError when `host` is not an address of this machine.
int hold_port(const std::string& host);

/// The port that a socket is bound to.
std::uint16_t bound_port(int fd);

/// Whether a connected socket is its own peer. A connection to a port of this machine at which
/// nobody listens becomes one when the kernel chooses that very port for the near end.
bool is_own_end(int fd);

/// The address of this machine's interface that leads to `host`.
std::string local_address_towards(const std::string& host, std::uint16_t port);

/// A connection to whoever listens at host:port, tried again until somebody does; `meanwhile`, if
/// given, is called before each further attempt, which is after 5 s at the latest. The caller owns
/// the descriptor, which does not block. TimeoutError at the deadline.
int connect_to_listener(const std::string& host, std::uint16_t port,
                        std::chrono::milliseconds timeout,
                        const std::function<void()>& meanwhile = {});

/// From now on a call on the connected socket fails with ETIMEDOUT once the kernel of the other
/// host has answered nothing for `timeout`. It answers for a process that is stopped, too. Nothing
/// changes where `timeout` is zero.
void give_up_silent_host(int fd, std::chrono::milliseconds timeout);

/// The part of give_up_silent_host() that is about data on its way; zero: no limit. The kernel
/// counts data as on its way, too, for which the process at the other end has no room, although its
/// host answers.
void limit_unacknowledged(int fd, std::chrono::milliseconds timeout);

/// Whether anything at the address of a host answers a connection: a listener, or the kernel, which
/// says that there is none. False when nothing does before `timeout`, or no way leads there. True
/// when this process cannot ask.
bool is_reached(const std::string& host, std::uint16_t port, std::chrono::milliseconds timeout);

}  // namespace lockstep
