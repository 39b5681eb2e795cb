#include <lockstep/train/measuring/profiler.h>

#include <algorithm>

#include <lockstep/core/error.h>
#include <lockstep/core/options.h>

namespace lockstep {

// In the order of the enumeration.
const std::vector<std::string>& profiler_names() {
  static const std::vector<std::string> names = {"none", "simple", "trace"};
  return names;
}

Profiler parse_profiler(const std::string& name) {
  OptionCheck("profiler").one_of("kind", name, profiler_names());
  const auto found = std::ranges::find(profiler_names(), name);
  return static_cast<Profiler>(found - profiler_names().begin());
}

void validate(const ProfilerOptions& options) {
  OptionCheck("profiler").at_least("trace_steps", static_cast<double>(options.trace_steps), 1);
  if (options.kind == Profiler::kTrace && options.trace_file.empty()) {
    throw ConfigError("profiler: a trace needs trace_file, where it is written to");
  }
}

}  // namespace lockstep
