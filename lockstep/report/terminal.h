// What the other end of a stream can show.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include <lockstep/core/clock.h>

namespace lockstep {

struct Terminal {
  bool interactive = false;  ///< A line can be redrawn.
  bool color = false;
  bool unicode = false;
  /// Asked at every drawing: windows are resized.
  std::function<int()> columns = [] { return 80; };
};

/// The terminal behind a descriptor. Not interactive when it is a file or a pipe, or TERM is
/// "dumb". No colour where NO_COLOR is set; Unicode where the locale's variables say UTF-8.
Terminal detect_terminal(int fd);

/// A bar of `width` columns, filled to `fraction` (0 to 1).
std::string draw_bar(double fraction, int width, const Terminal& terminal);

/// Columns of a bar that is worth drawing, and how long a line stands before it is drawn again.
inline constexpr int kWidestBar = 40;
inline constexpr int kNarrowestBar = 8;
inline constexpr Milliseconds kBetweenDrawings{100};

/// "name ━━━━──── amount", cut to the terminal's columns; without the bar where the fraction is not
/// known or there is no room for one. The last column stays free: writing into it would wrap the
/// line in some terminals.
std::string bar_line(const std::string& name, std::optional<double> fraction,
                     const std::string& amount, const Terminal& terminal);

/// Control sequence that returns to the start of the line and clears it.
inline constexpr const char* kClearLine = "\r\x1b[K";

}  // namespace lockstep
