// The launcher's part in the meeting point of a job's ranks.
#pragma once

#include <cstdint>

#include <lockstep/launch/launcher.h>

namespace lockstep::launch {

/// Reserves the port of the meeting point before the ranks exist, so that no other program takes
/// it. Ranks that keep running this program inherit the listening socket. Ranks that execute
/// another program must listen themselves: PyTorch does, and programs started by a shell or Python
/// lose inherited descriptors. For such ranks the port is only bound. The kernel then does not give
/// it to other programs, while SO_REUSEADDR lets rank 0 listen there. With several hosts the user
/// names the port, and nothing is reserved.
class MeetingPoint {
 public:
  /// Throws a ConfigError if the address is not this host's, or the port is in use.
  explicit MeetingPoint(const LaunchOptions& options);
  ~MeetingPoint();
  MeetingPoint(const MeetingPoint&) = delete;
  MeetingPoint& operator=(const MeetingPoint&) = delete;

  std::uint16_t port() const { return port_; }
  /// The listening socket for rank 0; -1 if rank 0 creates its own.
  int listen_fd() const { return listens_ ? fd_ : -1; }
  /// Call when rank 0 has its copy: if rank 0 then dies, connections are refused instead of
  /// waiting.
  void close_listener();

 private:
  std::uint16_t port_;
  bool listens_ = false;
  int fd_ = -1;
};

}  // namespace lockstep::launch
