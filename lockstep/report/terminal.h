// What the other end of a stream can show.
#pragma once

#include <functional>
#include <string>

namespace lockstep {

struct Terminal {
  bool interactive = false;  ///< A line can be redrawn.
  bool color = false;
  bool unicode = false;
  std::function<int()> columns = [] { return 80; };  ///< Asked at every drawing: windows are resized.
};

/// The terminal behind a descriptor. Not interactive when it is a file or a pipe, or TERM is "dumb".
/// No colour where NO_COLOR is set; Unicode where the locale's variables say UTF-8.
Terminal detect_terminal(int fd);

/// A bar of `width` columns, filled to `fraction` (0 to 1).
std::string draw_bar(double fraction, int width, const Terminal& terminal);

/// Control sequence that returns to the start of the line and clears it.
inline constexpr const char* kClearLine = "\r\x1b[K";

}  // namespace lockstep
