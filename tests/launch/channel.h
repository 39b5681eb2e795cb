// A pipe between a test and the processes that it forks. The processes write lines, and the test
// reads them or waits until the last writer ends. Waits are bounded, so a defect fails a test
// instead of hanging it.
#pragma once

#include <poll.h>
#include <unistd.h>

#include <stdexcept>
#include <string>

#include <lockstep/core/clock.h>

namespace lockstep::testing_support {

class Channel {
 public:
  Channel() {
    if (pipe(ends_) != 0) throw std::runtime_error("pipe");
  }
  ~Channel() {
    close_writer();
    close(ends_[0]);
  }
  Channel(const Channel&) = delete;
  Channel& operator=(const Channel&) = delete;

  void write_line(const std::string& line) const {
    const std::string text = line + '\n';
    if (write(ends_[1], text.data(), text.size()) != static_cast<ssize_t>(text.size())) {
      throw std::runtime_error("write");
    }
  }

  /// Returns the next line, or "" once all writers have closed. Throws if neither happens within
  /// ten seconds.
  std::string read_line() const {
    std::string line;
    while (wait_readable()) {
      char character = 0;
      if (read(ends_[0], &character, 1) != 1 || character == '\n') break;
      line += character;
    }
    return line;
  }

  /// Closes this process's writing end and returns whether all others close theirs within ten
  /// seconds.
  bool wait_for_end() {
    close_writer();
    char character = 0;
    while (wait_readable()) {
      if (read(ends_[0], &character, 1) == 0) return true;
    }
    return false;
  }

  /// The descriptor that write_line() writes to.
  int writer() const { return ends_[1]; }

  void close_writer() {
    if (ends_[1] >= 0) close(ends_[1]);
    ends_[1] = -1;
  }

 private:
  bool wait_readable() const {
    pollfd ready{ends_[0], POLLIN, 0};
    if (poll(&ready, 1, 10000) > 0) return true;
    throw std::runtime_error("nothing to read for ten seconds");
  }
  int ends_[2];
};

}  // namespace lockstep::testing_support
