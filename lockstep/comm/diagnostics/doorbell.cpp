#include <lockstep/comm/diagnostics/doorbell.h>

#include <unistd.h>

#include <cstdint>
#include <sstream>

#include <lockstep/comm/store/network.h>
#include <lockstep/core/strings.h>

namespace lockstep::comm {

Doorbell::Doorbell(const std::string& address)
    : fd_(hold_port(address)), place_(str(address, ' ', bound_port(fd_))) {}

Doorbell::~Doorbell() { close(fd_); }

bool host_answers(const std::string& place, std::chrono::milliseconds timeout) {
  std::istringstream text(place);
  std::string address;
  std::uint16_t port = 0;
  text >> address >> port;
  return is_reached(address, port, timeout);
}

}  // namespace lockstep::comm
