#include <lockstep/launch/meeting_point.h>

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>

#include <lockstep/comm/store/network.h>
#include <lockstep/core/error.h>

namespace lockstep::launch {
namespace {

int bind_socket(int family, const sockaddr* address, socklen_t length) {
  const int fd = socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const int on = 1;
  if (fd >= 0 && setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)) == 0 &&
      bind(fd, address, length) == 0) {
    return fd;
  }
  const int error = errno;
  if (fd >= 0) close(fd);
  errno = error;
  return -1;
}

// Binds a socket without listening.
int bind_to(const std::string& address, std::uint16_t port) {
  sockaddr_in four{};
  if (inet_pton(AF_INET, address.c_str(), &four.sin_addr) == 1) {
    four.sin_family = AF_INET;
    four.sin_port = htons(port);
    return bind_socket(AF_INET, reinterpret_cast<const sockaddr*>(&four), sizeof(four));
  }
  sockaddr_in6 six{};
  if (inet_pton(AF_INET6, address.c_str(), &six.sin6_addr) == 1) {
    six.sin6_family = AF_INET6;
    six.sin6_port = htons(port);
    return bind_socket(AF_INET6, reinterpret_cast<const sockaddr*>(&six), sizeof(six));
  }
  errno = EAFNOSUPPORT;
  return -1;
}

const char* remedy(int error) {
  if (error == EADDRINUSE) return "; choose another master_port";
  if (error == EADDRNOTAVAIL) return "; give master_addr an address of this host";
  return "";
}

int reserve_port(const std::string& host, std::uint16_t port) {
  const int fd = bind_to(comm::resolve_address(host), port);
  if (fd >= 0) return fd;
  const int error = errno;
  throw ConfigError(str("the ranks cannot meet at ", comm::host_and_port(host, port), ": ",
                        errno_text(error), remedy(error)));
}

}  // namespace

MeetingPoint::MeetingPoint(const LaunchOptions& options)
    : port_(options.master_port), listens_(options.nnodes == 1 && !options.ranks_exec) {
  if (options.nnodes > 1) return;
  try {
    fd_ = listens_ ? comm::listen_on(options.master_addr, port_)
                   : reserve_port(options.master_addr, port_);
    port_ = comm::bound_port(fd_);
  } catch (const CommError& error) {
    throw ConfigError(error.what());  // no other rank is involved yet: the given address is wrong
  }
}

MeetingPoint::~MeetingPoint() {
  if (fd_ >= 0) close(fd_);
}

void MeetingPoint::close_listener() {
  if (!listens_ || fd_ < 0) return;
  close(fd_);
  fd_ = -1;
}

}  // namespace lockstep::launch
