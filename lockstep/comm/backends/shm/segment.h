// A piece of memory that the ranks of one host share and nobody else can open.
//
// It is a memfd: it has no name in any file system, so nothing is left behind by a crash, and it is
// gone when the last process that maps it is gone. A peer opens it as /proc/PID/fd/FD, which the
// kernel allows to the same user (or root) on the same host only; that is also our proof of being
// on one host. Its size is sealed, so no peer can shrink it under our feet.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <memory>

namespace lockstep::shm {

/// Where a peer finds a segment. Plain data: it travels through a store or through shared memory.
struct SegmentAddress {
  pid_t pid = 0;
  int fd = -1;
  std::size_t bytes = 0;
};

/// A mapping of a segment. Held by shared_ptr; unmapped with the last owner.
class Segment {
 public:
  /// New zeroed memory of at least `bytes`. CommError when the kernel has none left.
  static std::shared_ptr<Segment> create(std::size_t bytes);

  /// The memory that a peer created. Within one process (ranks as threads) it is the same mapping,
  /// so that ThreadSanitizer sees one address. CommError when it cannot be opened: another host,
  /// another user, another PID namespace, or a peer that died.
  static std::shared_ptr<Segment> open(const SegmentAddress& address);

  ~Segment();
  Segment(const Segment&) = delete;
  Segment& operator=(const Segment&) = delete;

  std::byte* data() const { return data_; }
  std::size_t bytes() const { return bytes_; }

  /// Valid on the creator until close_descriptor().
  SegmentAddress address() const;

  /// After all peers have opened it the descriptor is not needed any more, and from then on nobody
  /// can open the memory.
  void close_descriptor();

 private:
  Segment(int fd, std::byte* data, std::size_t bytes) : fd_(fd), data_(data), bytes_(bytes) {}

  int fd_;
  std::byte* data_;
  std::size_t bytes_;
};

}  // namespace lockstep::shm
