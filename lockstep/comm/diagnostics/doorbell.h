// Distinguishes an unreachable host from a stopped or busy process: the kernel of a reachable host
// answers connections even when its processes do not run.
#pragma once

#include <chrono>
#include <string>

namespace lockstep::comm {

/// A port at which the kernel answers. Peers try to connect to it to check that the host is
/// reachable. No process listens on it, so the kernel refuses each connection at once and queues
/// none for a process that may be stopped. Safe to use from several threads.
class Doorbell {
 public:
  /// Reserves a free port of `address`, an address of this host. Throws CommError on failure.
  explicit Doorbell(const std::string& address);
  ~Doorbell();
  Doorbell(const Doorbell&) = delete;
  Doorbell& operator=(const Doorbell&) = delete;

  /// Address and port, as in "10.0.0.1 40123"; pass it to host_answers().
  const std::string& place() const { return place_; }

 private:
  int fd_ = -1;
  std::string place_;
};

/// Whether the kernel at `place` accepts or refuses a connection within `timeout`.
bool host_answers(const std::string& place, std::chrono::milliseconds timeout);

}  // namespace lockstep::comm
