#include <lockstep/comm/store/network.h>

#include <arpa/inet.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <strings.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include <lockstep/core/clock.h>
#include <lockstep/core/descriptor.h>
#include <lockstep/core/error.h>
#include <lockstep/core/log.h>

namespace lockstep::comm {
namespace {

// A connection attempt that takes longer is abandoned and retried.
constexpr std::chrono::seconds kConnectAttempt{5};
// See retry_look_up().
constexpr std::chrono::seconds kMostTimeForNames{20};
constexpr std::chrono::milliseconds kPauseOfNames{100};

struct Address {
  sockaddr_storage storage{};
  socklen_t length = 0;
  int family() const { return storage.ss_family; }
  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&storage); }
};

// `flags` are those of getaddrinfo().
Address resolve(const std::string& host, std::uint16_t port, int flags = 0) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = flags;
  addrinfo* results = nullptr;
  const int code =
      getaddrinfo(plain_host(host).c_str(), std::to_string(port).c_str(), &hints, &results);
  const auto problem = [&] {
    return str("cannot resolve the host '", host, "': ", gai_strerror(code));
  };
  if (code == EAI_AGAIN) throw NameNotKnownYet(problem());
  if (code != 0) throw CommError(problem());
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> owner(results, &freeaddrinfo);
  // PyTorch prefers IPv4 if a name has both kinds of address, and its store must resolve to the
  // same one.
  const addrinfo* chosen = results;
  for (const addrinfo* each = results; each != nullptr; each = each->ai_next) {
    if (each->ai_family == AF_INET) {
      chosen = each;
      break;
    }
  }
  Address address;
  std::memcpy(&address.storage, chosen->ai_addr, chosen->ai_addrlen);
  address.length = static_cast<socklen_t>(chosen->ai_addrlen);
  return address;
}

std::string to_text(const sockaddr* address, socklen_t length) {
  char text[NI_MAXHOST] = "";
  getnameinfo(address, length, text, sizeof(text), nullptr, 0, NI_NUMERICHOST);
  return text;
}

Descriptor make_socket(int family, int type) {
  Descriptor made(socket(family, type | SOCK_CLOEXEC, 0));
  if (made.get() < 0) throw CommError(str("cannot make a socket: ", errno_text(errno)));
  return made;
}

// Returns 0, ETIMEDOUT at the deadline, or the reason why this process cannot wait. A signal does
// not end the wait.
int wait_until_writable(int fd, const Deadline& deadline) {
  for (;;) {
    pollfd polled{fd, POLLOUT, 0};
    const auto left = std::min(std::chrono::ceil<Milliseconds>(deadline.remaining()),
                               Milliseconds(std::chrono::hours(1)));
    const int count = poll(&polled, 1, static_cast<int>(left.count()));
    if (count > 0) return 0;
    if (count < 0 && errno != EINTR) return errno;
    if (deadline.expired()) return ETIMEDOUT;
  }
}

// Makes one attempt. Returns 0 and a connected socket, or the reason of the failure.
int try_connect(const Address& address, const Deadline& deadline, int& connected) {
  Descriptor connection = make_socket(address.family(), SOCK_STREAM | SOCK_NONBLOCK);
  int error = 0;
  if (connect(connection.get(), address.get(), address.length) != 0) {
    if (errno != EINPROGRESS) return errno;
    if ((error = wait_until_writable(connection.get(), deadline)) != 0) return error;
    socklen_t length = sizeof(error);
    getsockopt(connection.get(), SOL_SOCKET, SO_ERROR, &error, &length);
  }
  if (error == 0 && is_own_end(connection.get())) return ECONNREFUSED;
  if (error == 0) connected = connection.release();
  return error;
}

}  // namespace

std::string plain_host(const std::string& host) {
  std::string plain = host;
  if (plain.size() > 2 && plain.front() == '[' && plain.back() == ']') {
    plain = plain.substr(1, plain.size() - 2);
  }
  in6_addr six{};
  if (inet_pton(AF_INET6, plain.c_str(), &six) != 1 || !IN6_IS_ADDR_V4MAPPED(&six)) return plain;
  char four[INET_ADDRSTRLEN] = "";
  inet_ntop(AF_INET, &six.s6_addr[12], four, sizeof(four));
  return four;
}

std::string host_and_port(const std::string& host, std::uint16_t port) {
  const bool has_colon = host.find(':') != std::string::npos;
  return has_colon ? str("[", host, "]:", port) : str(host, ":", port);
}

void retry_look_up(std::chrono::milliseconds timeout, const std::function<void()>& look_up) {
  const auto most = std::min<Milliseconds>(timeout, kMostTimeForNames);
  const double seconds = static_cast<double>(most.count()) / 1e3;
  const Deadline deadline(most);
  for (bool has_told = false;; has_told = true) {
    try {
      return look_up();
    } catch (const NameNotKnownYet& error) {
      if (deadline.expired()) throw TimeoutError(str(error.what(), ", for ", seconds, " s"));
      if (!has_told) log_warning(error.what(), "; trying again for ", seconds, " s");
    }
    std::this_thread::sleep_for(
        std::min<std::chrono::nanoseconds>(kPauseOfNames, deadline.remaining()));
  }
}

std::string resolve_address(const std::string& host) {
  const Address address = resolve(host, 0);
  return to_text(address.get(), address.length);
}

namespace {

struct Interfaces {
  bool has_address = false;         // whether the requested address is among them
  std::vector<std::string> others;  // IPv4 addresses other than loopback
};

Interfaces own_interfaces(const std::string& address) {
  Interfaces found;
  ifaddrs* list = nullptr;
  if (getifaddrs(&list) != 0) return found;
  const std::unique_ptr<ifaddrs, decltype(&freeifaddrs)> owner(list, &freeifaddrs);
  for (const ifaddrs* each = list; each != nullptr; each = each->ifa_next) {
    if (each->ifa_addr == nullptr || (each->ifa_flags & IFF_UP) == 0) continue;
    const int family = each->ifa_addr->sa_family;
    if (family != AF_INET && family != AF_INET6) continue;
    const std::string text =
        to_text(each->ifa_addr, family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6));
    found.has_address = found.has_address || text == address;
    if (family == AF_INET && (each->ifa_flags & IFF_LOOPBACK) == 0) found.others.push_back(text);
  }
  return found;
}

}  // namespace

bool is_own_address(const std::string& address) { return own_interfaces(address).has_address; }

// A name such as 127.example.com is not loopback; 127.1 and 0:0:0:0:0:0:0:1 are.
bool is_loopback(const std::string& host) {
  if (strcasecmp(host.c_str(), "localhost") == 0) return true;
  try {
    const Address address = resolve(host, 0, AI_NUMERICHOST);
    if (address.family() == AF_INET6) {
      return IN6_IS_ADDR_LOOPBACK(&reinterpret_cast<const sockaddr_in6*>(address.get())->sin6_addr);
    }
    const auto* four = reinterpret_cast<const sockaddr_in*>(address.get());
    return ntohl(four->sin_addr.s_addr) >> 24 == IN_LOOPBACKNET;
  } catch (const CommError&) {
    return false;  // a name
  }
}

std::string own_loopback() {
  const auto can_bind = [](const char* host) {
    try {
      const Address address = resolve(host, 0);
      const Descriptor probe = make_socket(address.family(), SOCK_STREAM);
      return bind(probe.get(), address.get(), address.length) == 0;
    } catch (const CommError&) {
      return false;  // the kernel does not support this family
    }
  };
  return !can_bind("127.0.0.1") && can_bind("::1") ? "::1" : "127.0.0.1";
}

namespace {

// Whether a name that resolves to `address` here means this machine although that address is
// loopback, which other hosts cannot reach.
bool is_own_name_on_loopback(const std::string& host, const std::string& address,
                             bool several_hosts) {
  return several_hosts && is_loopback(address) && !is_loopback(host);
}

}  // namespace

std::string contact_address(const std::string& host, bool several_hosts) {
  const std::string address = resolve_address(host);
  if (!is_own_name_on_loopback(host, address, several_hosts)) return address;
  const Interfaces interfaces = own_interfaces(address);
  // With no other address, or several, rank 0 listens on all interfaces, loopback included.
  return interfaces.others.size() == 1 ? interfaces.others[0] : "127.0.0.1";
}

std::string meeting_address(const std::string& host, bool several_hosts) {
  const std::string address = contact_address(host, several_hosts);
  const bool usable = is_loopback(address) ? !is_own_name_on_loopback(host, address, several_hosts)
                                           : own_interfaces(address).has_address;
  if (usable) return address;
  log_warning(
      "the meeting point ", host, " (", address,
      ") is not an address of this host that others can reach; listening on all interfaces");
  return kAnyAddress;
}

bool is_reached_from_outside(const std::string& host, bool several_hosts) {
  if (is_loopback(host)) return false;
  const std::string address = resolve_address(host);
  return several_hosts || !is_loopback(address);
}

int listen_on(const std::string& host, std::uint16_t port) {
  const Address address = resolve(host, port);
  Descriptor listener = make_socket(address.family(), SOCK_STREAM);
  const int on = 1;
  setsockopt(listener.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
  if (bind(listener.get(), address.get(), address.length) != 0 ||
      listen(listener.get(), 1024) != 0) {
    throw CommError(str("cannot listen on ", host_and_port(host, port), ": ", errno_text(errno),
                        errno == EADDRINUSE ? "; choose another port (MASTER_PORT)" : ""));
  }
  return listener.release();
}

int hold_port(const std::string& host) {
  const Address address = resolve(host, 0);
  Descriptor holder = make_socket(address.family(), SOCK_STREAM);
  if (bind(holder.get(), address.get(), address.length) != 0) {
    throw CommError(str("cannot hold a port of ", host, ": ", errno_text(errno)));
  }
  return holder.release();
}

std::uint16_t bound_port(int fd) {
  sockaddr_storage storage{};
  socklen_t length = sizeof(storage);
  if (getsockname(fd, reinterpret_cast<sockaddr*>(&storage), &length) != 0) {
    throw CommError(str("cannot tell the port of a socket: ", errno_text(errno)));
  }
  return ntohs(storage.ss_family == AF_INET6 ? reinterpret_cast<sockaddr_in6*>(&storage)->sin6_port
                                             : reinterpret_cast<sockaddr_in*>(&storage)->sin_port);
}

std::string peer_address(int fd) {
  sockaddr_storage peer{};
  socklen_t length = sizeof(peer);
  if (getpeername(fd, reinterpret_cast<sockaddr*>(&peer), &length) != 0) return "";
  return to_text(reinterpret_cast<sockaddr*>(&peer), length);
}

bool is_own_end(int fd) {
  sockaddr_storage own{};
  sockaddr_storage peer{};
  socklen_t own_length = sizeof(own);
  socklen_t peer_length = sizeof(peer);
  return getsockname(fd, reinterpret_cast<sockaddr*>(&own), &own_length) == 0 &&
         getpeername(fd, reinterpret_cast<sockaddr*>(&peer), &peer_length) == 0 &&
         own_length == peer_length && std::memcmp(&own, &peer, own_length) == 0;
}

std::string local_address_towards(const std::string& host, std::uint16_t port) {
  const Address address = resolve(host, port);
  // Connecting a datagram socket sends nothing; the kernel only chooses the route.
  const Descriptor probe = make_socket(address.family(), SOCK_DGRAM);
  sockaddr_storage storage{};
  socklen_t length = sizeof(storage);
  if (connect(probe.get(), address.get(), address.length) != 0 ||
      getsockname(probe.get(), reinterpret_cast<sockaddr*>(&storage), &length) != 0) {
    throw CommError(str("no route to ", host, ": ", errno_text(errno)));
  }
  return to_text(reinterpret_cast<sockaddr*>(&storage), length);
}

int connect_to_listener(const std::string& host, std::uint16_t port,
                        std::chrono::milliseconds timeout, const std::function<void()>& meanwhile) {
  const Deadline deadline(timeout);
  std::string reason;
  do {
    try {
      // Resolved again for each attempt: the name of a host that is just starting may not be known
      // yet.
      int connected = -1;
      const Deadline attempt(std::min<Milliseconds>(
          kConnectAttempt, std::chrono::ceil<Milliseconds>(deadline.remaining())));
      const int error = try_connect(resolve(host, port), attempt, connected);
      if (error == 0) {
        const int on = 1;
        setsockopt(connected, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
        return connected;
      }
      reason = errno_text(error);
    } catch (const CommError& error) {
      reason = error.what();
    }
    if (meanwhile) meanwhile();
    std::this_thread::sleep_for(
        std::min<std::chrono::nanoseconds>(Milliseconds(20), deadline.remaining()));
  } while (!deadline.expired());
  throw TimeoutError(str("nobody listens at ", host_and_port(host, port), " after ",
                         static_cast<double>(timeout.count()) / 1e3, " s: ", reason,
                         "; rank 0 must be started there (MASTER_ADDR, MASTER_PORT)"));
}

void limit_unacknowledged(int fd, std::chrono::milliseconds timeout) {
  const int number = static_cast<int>(std::clamp<std::int64_t>(timeout.count(), 0, 1 << 30));
  setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &number, sizeof(number));
}

void give_up_silent_host(int fd, std::chrono::milliseconds timeout) {
  if (timeout.count() == 0) return;
  const auto set = [fd](int level, int option, std::int64_t value) {
    const int number = static_cast<int>(std::clamp<std::int64_t>(value, 1, 1 << 30));
    setsockopt(fd, level, option, &number, sizeof(number));
  };
  // The first option covers unacknowledged data. Keepalive probes cover an idle connection.
  limit_unacknowledged(fd, timeout);
  const std::int64_t seconds = std::min<std::int64_t>(timeout.count() / 1000, 30'000);
  set(IPPROTO_TCP, TCP_KEEPIDLE, seconds / 2);
  set(IPPROTO_TCP, TCP_KEEPINTVL, seconds / 6);
  set(IPPROTO_TCP, TCP_KEEPCNT, 3);
  set(SOL_SOCKET, SO_KEEPALIVE, 1);
}

bool is_reached(const std::string& host, std::uint16_t port, std::chrono::milliseconds timeout) {
  try {
    int connected = -1;
    const int error = try_connect(resolve(host, port), Deadline(timeout), connected);
    if (connected >= 0) close(connected);
    // Any other error is local, for example no free port, and says nothing about the other host.
    return error != ETIMEDOUT && error != EHOSTUNREACH && error != ENETUNREACH;
  } catch (const CommError&) {
    // The error is local (no descriptor, or an unknown name) and says nothing about the other host.
    return true;
  }
}

}  // namespace lockstep::comm
