// Progress of a download.
#pragma once

#include <cstdint>
#include <functional>
#include <ostream>
#include <string>

#include <lockstep/core/clock.h>
#include <lockstep/report/terminal.h>

namespace lockstep::report {

/// On a terminal, draws a line per file, at most ten times a second. Elsewhere it only writes
/// "downloaded NAME (9.9 MB)" once a file is complete. The stream must outlive this object; the
/// destructor ends an unfinished line. Not copyable: pass it as std::ref(bar).
class DownloadBar {
 public:
  DownloadBar(std::ostream& out, Terminal terminal,
              std::function<Clock::time_point()> now = &Clock::now)
      : out_(out), terminal_(std::move(terminal)), now_(std::move(now)) {}
  ~DownloadBar();
  DownloadBar(const DownloadBar&) = delete;
  DownloadBar& operator=(const DownloadBar&) = delete;

  /// A DownloadProgress: `total` is 0 while unknown, and `done` reaches it only once the file is
  /// verified.
  void operator()(const std::string& file, std::uint64_t done, std::uint64_t total);

 private:
  void draw(const std::string& file, std::uint64_t done, std::uint64_t total);

  std::ostream& out_;
  Terminal terminal_;
  std::function<Clock::time_point()> now_;
  std::string file_;       ///< The file being drawn.
  bool complete_ = false;  ///< Whether its final line has been written.
  bool line_open_ = false;
  Clock::time_point drawn_at_{};
};

}  // namespace lockstep::report
