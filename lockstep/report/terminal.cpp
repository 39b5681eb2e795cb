#include <lockstep/report/terminal.h>

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>

#include <lockstep/core/environment.h>

namespace lockstep {
namespace {

constexpr const char* kGreen = "\x1b[32m";
constexpr const char* kFaint = "\x1b[2m";
constexpr const char* kReset = "\x1b[0m";

bool locale_is_utf8() {
  for (const char* name : {"LC_ALL", "LC_CTYPE", "LANG"}) {
    if (const auto locale = environment_string(name)) {
      return locale->find("UTF-8") != std::string::npos ||
             locale->find("utf8") != std::string::npos;
    }
  }
  return false;
}

int columns_of(int fd) {
  winsize size{};
  return ioctl(fd, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : 80;
}

std::string repeat(const char* text, int count) {
  std::string repeated;
  for (int i = 0; i < count; ++i) repeated += text;
  return repeated;
}

}  // namespace

Terminal detect_terminal(int fd) {
  Terminal terminal;
  terminal.interactive = isatty(fd) == 1 && environment_string("TERM").value_or("dumb") != "dumb";
  terminal.color = terminal.interactive && !environment_string("NO_COLOR");
  terminal.unicode = locale_is_utf8();
  terminal.columns = [fd] { return columns_of(fd); };
  return terminal;
}

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

}  // namespace lockstep
