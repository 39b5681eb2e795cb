// The TCP helpers of the rendezvous: resolving addresses, recognizing this machine's addresses,
// listening, connecting and testing whether a host is reachable.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>

#include <lockstep/core/error.h>

namespace lockstep::comm {

/// The spelling of a host that all programs understand: "[::1]" becomes ::1, and
/// "::ffff:127.0.0.1", an IPv4 address written as one of IPv6, becomes 127.0.0.1. Other texts stay
/// as they are.
std::string plain_host(const std::string& host);

/// `host` and `port` as messages show them: "node1:29500", and "[::1]:29500" for an IPv6 address.
std::string host_and_port(const std::string& host, std::uint16_t port);

/// A name cannot be resolved, but the resolver asks to try again (EAI_AGAIN): no name server
/// answers now. All functions here that resolve names throw it.
class NameNotKnownYet : public CommError {
 public:
  using CommError::CommError;
};

/// Calls `look_up` again while it throws NameNotKnownYet. Logs a warning after the first time.
/// Throws TimeoutError after `timeout`, or after 20 s, because the resolver of a host without name
/// servers asks to try again for any wrong name.
void retry_look_up(std::chrono::milliseconds timeout, const std::function<void()>& look_up);

/// The IPv4 or IPv6 address of a host name, as text. Throws CommError if it cannot be resolved.
std::string resolve_address(const std::string& host);

/// Whether `host` is "localhost" or a numeric loopback address. Looks up no name.
bool is_loopback(const std::string& host);

/// Whether `address`, as text, is that of one of this machine's interfaces.
bool is_own_address(const std::string& address);

/// 127.0.0.1, or ::1 on a host that has no other loopback address.
std::string own_loopback();

/// The address that listens on every interface of the machine.
inline constexpr const char* kAnyAddress = "0.0.0.0";

/// The address at which a rank of this machine reaches rank 0, whose host is `host`. Normally this
/// is the address that the name resolves to. If peers are on other hosts but the name resolves to a
/// loopback address here (Debian's /etc/hosts maps the machine's own name to 127.0.1.1), rank 0
/// runs on this machine, and the address is the one on which it listens (meeting_address()). Throws
/// CommError if the name cannot be resolved.
std::string contact_address(const std::string& host, bool several_hosts);

/// Returns the address on which rank 0 should listen so that others reach it as `host`: its
/// contact_address(). For a name that resolves to a loopback address although peers are on other
/// hosts, this is the machine's only other IPv4 address. If there is not exactly one, or if the
/// address does not belong to this machine (a translated or virtual one), it is kAnyAddress, and a
/// warning is logged. Throws CommError if the name cannot be resolved.
std::string meeting_address(const std::string& host, bool several_hosts);

/// Whether meeting_address() is not loopback, so that other machines and their users can reach the
/// meeting point. Throws CommError if the name cannot be resolved.
bool is_reached_from_outside(const std::string& host, bool several_hosts);

/// A socket that listens on `host` at `port` (0: any free one) and on no other interface. The
/// caller owns the descriptor. Throws CommError with the address and the reason: in use, not an
/// address of this machine, or not permitted.
int listen_on(const std::string& host, std::uint16_t port);

/// A socket that reserves a free port of `host` without listening: the kernel refuses each
/// connection immediately, even while this process is stopped. The caller owns the descriptor.
/// Throws CommError if `host` is not an address of this machine.
int hold_port(const std::string& host);

/// The port that a socket is bound to.
std::uint16_t bound_port(int fd);

/// The address at the other end of a connected socket; empty if it is not connected any more.
std::string peer_address(int fd);

/// Whether a connected socket is its own peer. That happens on a connection to a local port without
/// a listener if the kernel chooses the same port for the local end.
bool is_own_end(int fd);

/// The address of the local interface on the route to `host`.
std::string local_address_towards(const std::string& host, std::uint16_t port);

/// Connects to host:port, retrying until a process listens there. `meanwhile`, if given, is called
/// before each retry, at most 5 s apart. The caller owns the descriptor, which is non-blocking.
/// Throws TimeoutError at the deadline.
int connect_to_listener(const std::string& host, std::uint16_t port,
                        std::chrono::milliseconds timeout,
                        const std::function<void()>& meanwhile = {});

/// Makes calls on the connected socket fail with ETIMEDOUT once the other host's kernel has been
/// silent for `timeout`. The kernel answers even for a stopped process. A no-op if `timeout` is
/// zero.
void give_up_silent_host(int fd, std::chrono::milliseconds timeout);

/// The part of give_up_silent_host() that applies to data in flight. Zero: no limit. The kernel
/// also counts data as in flight if the process at the other end has no buffer space for it,
/// although its host answers.
void limit_unacknowledged(int fd, std::chrono::milliseconds timeout);

/// Whether the host answers a connection attempt: a listener accepts it, or the kernel refuses it.
/// False if there is no answer before `timeout` or no route to the host. True if this process is
/// unable to try.
bool is_reached(const std::string& host, std::uint16_t port, std::chrono::milliseconds timeout);

}  // namespace lockstep::comm
