#include <lockstep/report/console.h>

#include <lockstep/report/line_log.h>
#include <lockstep/report/progress_bar.h>

namespace lockstep {

std::unique_ptr<Listener> make_console_listener(std::ostream& out, const Terminal& terminal) {
  if (terminal.interactive) return std::make_unique<ProgressBar>(out, terminal);
  return std::make_unique<LineLog>(out);
}

}  // namespace lockstep
