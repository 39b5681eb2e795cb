// Progress of a download.
#pragma once

#include <cstdint>
#include <functional>
#include <ostream>
#include <string>

#include <lockstep/core/clock.h>
#include <lockstep/report/terminal.h>

namespace lockstep {

/// On a terminal a line per file, redrawn at most ten times a second; elsewhere only
/// "downloaded NAME (9.9 MB)" when a file is in its place. The stream must outlive it; the
/// destructor ends a line left unfinished. Not copyable: pass it on as std::ref(bar).
class DownloadBar {
 public:
  DownloadBar(std::ostream& out, Terminal terminal,
              std::function<Clock::time_point()> now = &Clock::now)
      : out_(out), terminal_(std::move(terminal)), now_(std::move(now)) {}
  ~DownloadBar();
  DownloadBar(const DownloadBar&) = delete;
  DownloadBar& operator=(const DownloadBar&) = delete;

  /// A DownloadProgress: `total` is 0 while unknown, and `done` only once the file is verified.
  void operator()(const std::string& file, std::uint64_t done, std::uint64_t total);

 private:
  void draw(const std::string& file, std::uint64_t done, std::uint64_t total);

  std::ostream& out_;
  Terminal terminal_;
  std::function<Clock::time_point()> now_;
  std::string file_;       ///< The one that is being drawn.
  bool complete_ = false;  ///< Its lasting line is written.
  bool line_open_ = false;
  Clock::time_point drawn_at_{};
};

}  // namespace lockstep
