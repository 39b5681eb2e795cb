// A port on which connection attempts get no answer, as with a host that is cut off.
#pragma once

#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <string>

#include <lockstep/comm/store/network.h>
#include <lockstep/core/strings.h>

namespace lockstep::testing_support {

/// Fills the queue of a listening socket that accepts no connections. The kernel then leaves
/// further attempts without an answer.
class SilentPlace {
 public:
  SilentPlace() {
    listen(fd_, 0);
    for (int i = 0; i < 10 && !is_silent_; ++i) {
      is_silent_ = !comm::is_reached("127.0.0.1", port(), std::chrono::milliseconds(200));
    }
  }
  ~SilentPlace() { close(fd_); }
  SilentPlace(const SilentPlace&) = delete;
  SilentPlace& operator=(const SilentPlace&) = delete;

  /// False on kernels that accept every connection.
  bool is_silent() const { return is_silent_; }
  std::uint16_t port() const { return comm::bound_port(fd_); }
  /// The address in the format of Doorbell::place().
  std::string place() const { return str("127.0.0.1 ", port()); }

 private:
  const int fd_ = comm::listen_on("127.0.0.1", 0);
  bool is_silent_ = false;
};

}  // namespace lockstep::testing_support
