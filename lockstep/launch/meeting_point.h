// Where the ranks of a job meet, as far as their launcher provides it.
#pragma once

#include <cstdint>

#include <lockstep/launch/launcher.h>

namespace lockstep {

/// Holds the port of the meeting point before the ranks exist, so that no other program takes it.
/// Ranks that stay this program inherit the listening socket. Another program wants to listen
/// itself (PyTorch's does, and what a shell or Python starts loses inherited descriptors): for it
/// the port is only bound, which keeps the kernel from giving it to others, while SO_REUSEADDR lets
/// rank 0 listen there. With several hosts the user names the port, and nothing is held.
class MeetingPoint {
 public:
  /// ConfigError when the address is not this host's, or the port is in use.
  explicit MeetingPoint(const LaunchOptions& options);
  ~MeetingPoint();
  MeetingPoint(const MeetingPoint&) = delete;
  MeetingPoint& operator=(const MeetingPoint&) = delete;

  std::uint16_t port() const { return port_; }
  /// The listening socket for rank 0; -1 where rank 0 makes its own.
  int listen_fd() const { return listens_ ? fd_ : -1; }
  /// Rank 0 has its copy: when it dies, others shall be refused instead of waiting.
  void close_listener();

 private:
  std::uint16_t port_;
  bool listens_ = false;
  int fd_ = -1;
};

}  // namespace lockstep
