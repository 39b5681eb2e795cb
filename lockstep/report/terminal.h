// The display capabilities of a stream's terminal.
#pragma once

#include <functional>

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

}  // namespace lockstep
