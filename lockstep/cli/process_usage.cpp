#include <lockstep/cli/process_usage.h>

#include <sys/resource.h>

#include <fstream>
#include <string>

namespace lockstep {
namespace {

double processor_seconds_of(int who) {
  rusage usage{};
  getrusage(who, &usage);
  const auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_usec);
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

}  // namespace

double processor_seconds() { return processor_seconds_of(RUSAGE_SELF); }

double processor_seconds_of_children() { return processor_seconds_of(RUSAGE_CHILDREN); }

long long proportional_bytes() {
  std::ifstream file("/proc/self/smaps_rollup");
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with("Pss:")) return std::stoll(line.substr(4)) * 1024;
  }
  return 0;
}

}  // namespace lockstep
