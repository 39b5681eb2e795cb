#include <lockstep/launch/process_clock.h>

#include <time.h>
#include <unistd.h>

#include <fstream>
#include <sstream>
#include <string>

namespace lockstep::launch {
namespace {

// Seconds since boot, suspended time included: the base of the start time in /proc.
double seconds_since_boot() {
  timespec now{};
  clock_gettime(CLOCK_BOOTTIME, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
}

double start_of_this_process() {
  const double now = seconds_since_boot();
  std::ifstream file("/proc/self/stat");
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  // Field 2, the program's name in parentheses, may itself contain blanks and parentheses.
  const auto name_end = text.rfind(')');
  if (name_end == std::string::npos) return now;
  std::istringstream fields(text.substr(name_end + 1));
  std::string skipped;
  for (int field = 3; field < 22; ++field) fields >> skipped;
  double ticks = 0;
  if (!(fields >> ticks)) return now;
  const double start = ticks / static_cast<double>(sysconf(_SC_CLK_TCK));
  return start > 0 && start <= now ? start : now;
}

}  // namespace

double seconds_since_command_start() {
  // launch_ranks() calls this before it forks, so that ranks inherit the launcher's start.
  static const double start = start_of_this_process();
  return seconds_since_boot() - start;
}

}  // namespace lockstep::launch
