// Progress of a command that processes every image of a data set.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <ostream>
#include <string>
#include <utility>

#include <lockstep/core/clock.h>
#include <lockstep/report/terminal.h>

namespace lockstep::report {

/// On a terminal, draws one line, at most ten times a second, and removes it at the end:
///   checking ━━━━━━━━━━━──────────  1,200 of 2,527 images
/// Elsewhere, draws nothing. The stream must outlive the bar. Not copyable: pass it as
/// std::ref(bar).
class ImageBar {
 public:
  /// `verb` says what is done to the images.
  ImageBar(std::ostream& out, Terminal terminal, std::string verb, std::int64_t images,
           std::function<Clock::time_point()> now = &Clock::now)
      : out_(out),
        terminal_(std::move(terminal)),
        verb_(std::move(verb)),
        images_(images),
        now_(std::move(now)) {}
  ~ImageBar();
  ImageBar(const ImageBar&) = delete;
  ImageBar& operator=(const ImageBar&) = delete;

  void operator()(std::int64_t done);

 private:
  std::ostream& out_;
  Terminal terminal_;
  std::string verb_;
  std::int64_t images_;
  std::function<Clock::time_point()> now_;
  std::optional<Clock::time_point> drawn_at_;
};

}  // namespace lockstep::report
