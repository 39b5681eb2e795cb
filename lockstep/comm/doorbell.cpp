#include <lockstep/comm/doorbell.h>

#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdint>
#include <sstream>

#include <lockstep/comm/network.h>
#include <lockstep/core/strings.h>

namespace lockstep {

Doorbell::Doorbell(const std::string& address) : fd_(listen_on(address, 0)) {
  fcntl(fd_, F_SETFL, fcntl(fd_, F_GETFL) | O_NONBLOCK);
  place_ = str(address, ' ', bound_port(fd_));
}

Doorbell::~Doorbell() { close(fd_); }

void Doorbell::clear() {
  for (;;) {
    const int visitor = accept4(fd_, nullptr, nullptr, SOCK_CLOEXEC);
    if (visitor < 0) return;
    close(visitor);
  }
}

bool host_answers(const std::string& place, std::chrono::milliseconds timeout) {
  std::istringstream text(place);
  std::string address;
  std::uint16_t port = 0;
  text >> address >> port;
  return is_reached(address, port, timeout);
}

}  // namespace lockstep
