// Tells a host that is cut off from a process that is stopped or busy: the kernel of a host that is
// reached answers for its processes, even for those that do not run.
#pragma once

#include <chrono>
#include <string>

namespace lockstep {

/// A port at which the kernel answers. Peers try to connect there to see whether the host is there.
/// Nobody listens, so that the kernel refuses each of them at once and keeps none for a process
/// that may be stopped. Safe to use from several threads.
class Doorbell {
 public:
  /// Holds a free port of `address`, an address of this host. CommError when it cannot.
  explicit Doorbell(const std::string& address);
  ~Doorbell();
  Doorbell(const Doorbell&) = delete;
  Doorbell& operator=(const Doorbell&) = delete;

  /// Where it is: "10.0.0.1 40123", for host_answers().
  const std::string& place() const { return place_; }

 private:
  int fd_ = -1;
  std::string place_;
};

/// Whether the kernel at `place` answers a connection before `timeout`: by taking it or by refusing
/// it.
bool host_answers(const std::string& place, std::chrono::milliseconds timeout);

}  // namespace lockstep
