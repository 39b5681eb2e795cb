#include <lockstep/train/measuring/profiler.h>

#include <lockstep/core/error.h>
#include <lockstep/core/options.h>

namespace lockstep {

namespace {

const detail::NamedValues<Profiler>& named_profilers() {
  static const detail::NamedValues<Profiler> all = {
      {"none", Profiler::kNone}, {"simple", Profiler::kSimple}, {"trace", Profiler::kTrace}};
  return all;
}

}  // namespace

const std::vector<std::string>& profiler_names() { return named_profilers().names(); }

Profiler parse_profiler(const std::string& name) {
  return named_profilers().value_of("profiler", "kind", name);
}

void validate(const ProfilerOptions& options) {
  OptionCheck("profiler").at_least("trace_steps", static_cast<double>(options.trace_steps), 1);
  if (options.kind == Profiler::kTrace && options.trace_file.empty()) {
    throw ConfigError("profiler: a trace needs trace_file, where it is written to");
  }
}

}  // namespace lockstep
