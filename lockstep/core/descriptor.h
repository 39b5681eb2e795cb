// Owns an open file, socket or pipe.
#pragma once

#include <unistd.h>

#include <utility>

namespace lockstep {

/// Owns a file descriptor and closes it on destruction. A negative number, such as the result of a
/// failed call, means that there is none.
class Descriptor {
 public:
  explicit Descriptor(int fd) : fd_(fd) {}
  ~Descriptor() {
    if (fd_ >= 0) close(fd_);
  }
  Descriptor(Descriptor&& other) noexcept : fd_(other.release()) {}
  Descriptor& operator=(Descriptor&&) = delete;

  int get() const { return fd_; }
  /// Gives up ownership.
  int release() { return std::exchange(fd_, -1); }

 private:
  int fd_;
};

}  // namespace lockstep
