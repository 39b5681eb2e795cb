#include <lockstep/core/measuring/other_programs.h>

#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <map>
#include <sstream>
#include <string>

#include <lockstep/core/cpu.h>

namespace lockstep {

std::optional<double> busy_seconds(std::string_view stat, const std::vector<int>& cpus,
                                   long ticks_per_second) {
  std::map<int, double> ticks;
  std::istringstream lines{std::string(stat)};
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    std::string name;
    double user = 0, nice = 0, system = 0, idle = 0, iowait = 0, irq = 0, softirq = 0, steal = 0;
    words >> name >> user >> nice >> system >> idle >> iowait >> irq >> softirq >> steal;
    if (!words || name.size() < 4 || !name.starts_with("cpu")) continue;
    ticks[std::stoi(name.substr(3))] = user + nice + system + irq + softirq + steal;
  }
  double sum = 0;
  for (const int cpu : cpus) {
    const auto found = ticks.find(cpu);
    if (found == ticks.end()) return std::nullopt;
    sum += found->second;
  }
  return sum / static_cast<double>(ticks_per_second);
}

std::optional<double> busy_seconds(const std::vector<int>& cpus) {
  std::ifstream file("/proc/stat");
  const std::string stat(std::istreambuf_iterator<char>(file), {});
  return busy_seconds(stat, cpus, sysconf(_SC_CLK_TCK));
}

OtherPrograms::OtherPrograms() : cpus_(available_cpus()), start_(Clock::now()), before_(used()) {}

std::optional<double> OtherPrograms::used() const {
  const std::optional<double> busy = busy_seconds(cpus_);
  if (!busy) return std::nullopt;
  return *busy - processor_seconds() - processor_seconds_of_children();
}

std::optional<double> OtherPrograms::share() const {
  const std::optional<double> now = used();
  const double all = seconds_since(start_) * static_cast<double>(cpus_.size());
  if (!before_ || !now || !(all > 0)) return std::nullopt;
  return std::clamp((*now - *before_) / all, 0.0, 1.0);
}

}  // namespace lockstep
