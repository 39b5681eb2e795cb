// The display capabilities of a stream's terminal.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include <lockstep/core/clock.h>
#include <lockstep/core/export.h>

namespace lockstep {

struct LOCKSTEP_API Terminal {
  bool interactive = false;  ///< whether a line can be redrawn
  bool color = false;
  bool unicode = false;
  /// The current width. Called for every drawing, because windows are resized.
  std::function<int()> columns = [] { return 80; };
};

/// The terminal behind a descriptor. Not interactive if it is a file or a pipe, or if TERM is unset
/// or "dumb". No colour if it is not interactive or NO_COLOR is set; Unicode if the locale's
/// variables say UTF-8.
LOCKSTEP_API Terminal detect_terminal(int fd);

/// A bar of `width` columns, filled to `fraction` (0 to 1).
LOCKSTEP_API std::string draw_bar(double fraction, int width, const Terminal& terminal);

/// The widest and the narrowest useful bar, in columns, and the minimum time between redraws.
inline constexpr int kWidestBar = 40;
inline constexpr int kNarrowestBar = 8;
inline constexpr Milliseconds kBetweenDrawings{100};

/// "name ━━━━──── amount", cut to the terminal's columns; without the bar if the fraction is
/// unknown or there is no room. The last column stays free, because writing to it would wrap the
/// line in some terminals.
LOCKSTEP_API std::string bar_line(const std::string& name, std::optional<double> fraction,
                                  const std::string& amount, const Terminal& terminal);

/// Control sequence that returns to the start of the line and clears it.
inline constexpr const char* kClearLine = "\r\x1b[K";

}  // namespace lockstep
