#include <lockstep/report/terminal_bar.h>

#include <algorithm>
#include <cmath>

namespace lockstep::report {
namespace {

constexpr const char* kGreen = "\x1b[32m";
constexpr const char* kFaint = "\x1b[2m";
constexpr const char* kReset = "\x1b[0m";

std::string repeat(const char* text, int count) {
  std::string repeated;
  for (int i = 0; i < count; ++i) repeated += text;
  return repeated;
}

}  // namespace

std::string draw_bar(double fraction, int width, const Terminal& terminal) {
  const int filled = static_cast<int>(std::lround(std::clamp(fraction, 0.0, 1.0) * width));
  const std::string done = repeat(terminal.unicode ? "━" : "#", filled);
  const std::string rest = repeat(terminal.unicode ? "─" : "-", width - filled);
  if (!terminal.color) return done + rest;
  return kGreen + done + kReset + kFaint + rest + kReset;
}

std::string bar_line(const std::string& name, std::optional<double> fraction,
                     const std::string& amount, const Terminal& terminal) {
  const int columns = std::max(terminal.columns() - 1, 0);
  const std::string text = name + "  " + amount;
  const int bar = std::min(columns - static_cast<int>(text.size()) - 1, kWidestBar);
  if (!fraction || bar < kNarrowestBar) return text.substr(0, static_cast<std::size_t>(columns));
  return name + " " + draw_bar(*fraction, bar, terminal) + "  " + amount;
}

}  // namespace lockstep::report
