#include <lockstep/report/terminal.h>

#include <sys/ioctl.h>
#include <unistd.h>

#include <string>

#include <lockstep/core/environment.h>

namespace lockstep {
namespace {

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

}  // namespace

Terminal detect_terminal(int fd) {
  Terminal terminal;
  terminal.interactive = isatty(fd) == 1 && environment_string("TERM").value_or("dumb") != "dumb";
  terminal.color = terminal.interactive && !environment_string("NO_COLOR");
  terminal.unicode = locale_is_utf8();
  terminal.columns = [fd] { return columns_of(fd); };
  return terminal;
}

}  // namespace lockstep
