// Bars that show progress in a line of a terminal.
#pragma once

#include <optional>
#include <string>

#include <lockstep/core/clock.h>
#include <lockstep/report/terminal.h>

namespace lockstep::report {

/// A bar of `width` columns, filled to `fraction` (0 to 1).
std::string draw_bar(double fraction, int width, const Terminal& terminal);

/// The widest and the narrowest useful bar, in columns, and the minimum time between redraws.
inline constexpr int kWidestBar = 40;
inline constexpr int kNarrowestBar = 8;
inline constexpr Milliseconds kBetweenDrawings{100};

/// "name ━━━━──── amount", cut to the terminal's columns; without the bar if the fraction is
/// unknown or there is no room. The last column stays free, because writing to it would wrap the
/// line in some terminals.
std::string bar_line(const std::string& name, std::optional<double> fraction,
                     const std::string& amount, const Terminal& terminal);

/// Control sequence that returns to the start of the line and clears it.
inline constexpr const char* kClearLine = "\r\x1b[K";

}  // namespace lockstep::report
