// A memory segment that the ranks of one host share and no other process can open.
//
// The segment is a memfd. It has no name in any file system, so a crash leaves nothing behind, and
// the kernel frees it when the last process that maps it exits. A peer opens it as /proc/PID/fd/FD,
// which the kernel permits only for the same user (or root) on the same host. A successful open
// therefore also proves that both ranks are on one host. The size is sealed, so a peer cannot
// shrink the segment while it is in use.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <memory>

namespace lockstep::shm {

/// The address by which a peer opens a segment. Plain data, sent through a store or shared memory.
struct SegmentAddress {
  pid_t pid = 0;
  int fd = -1;
  std::size_t bytes = 0;
};

/// A mapping of a segment. Held by shared_ptr; unmapped when the last owner releases it.
class Segment {
 public:
  /// Creates a zeroed segment of at least `bytes`. Throws CommError when the kernel is out of
  /// memory.
  static std::shared_ptr<Segment> create(std::size_t bytes);

  /// Opens a segment that a peer created. Ranks that are threads of one process share the mapping,
  /// so that ThreadSanitizer sees one address. Throws CommError when the segment cannot be opened:
  /// the peer is on another host, belongs to another user or PID namespace, or has died.
  static std::shared_ptr<Segment> open(const SegmentAddress& address);

  ~Segment();
  Segment(const Segment&) = delete;
  Segment& operator=(const Segment&) = delete;

  std::byte* data() const { return data_; }
  std::size_t bytes() const { return bytes_; }

  /// Valid on the creator until close_descriptor().
  SegmentAddress address() const;

  /// Closes the file descriptor, after which no process can open the segment. Call it when all
  /// peers have opened the segment.
  void close_descriptor();

 private:
  Segment(int fd, std::byte* data, std::size_t bytes) : fd_(fd), data_(data), bytes_(bytes) {}

  int fd_;
  std::byte* data_;
  std::size_t bytes_;
};

}  // namespace lockstep::shm
