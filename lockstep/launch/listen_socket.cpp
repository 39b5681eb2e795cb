#include <lockstep/launch/listen_socket.h>

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>

#include <lockstep/core/error.h>

namespace lockstep {

ListenSocket listen_on_loopback(std::uint16_t port) {
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof(address);
  auto* generic = reinterpret_cast<sockaddr*>(&address);
  // A port whose last connections are still in TIME_WAIT is free for our purpose.
  const int reuse = 1;
  if (fd < 0 || setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &reuse, sizeof(reuse)) != 0 ||
      bind(fd, generic, size) != 0 || listen(fd, SOMAXCONN) != 0 ||
      getsockname(fd, generic, &size) != 0) {
    const int error = errno;
    if (fd >= 0) close(fd);
    throw ConfigError(str("cannot listen on 127.0.0.1:", port, ": ", errno_text(error),
                          port == 0 ? "" : ": choose another master port, or 0 for a free one"));
  }
  return {fd, ntohs(address.sin_port)};
}

}  // namespace lockstep
