// Where the time of a run goes: a table at its end, or a trace of its first steps.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace lockstep {

enum class Profiler {
  kNone,
  kSimple,  ///< RunReport::profile says how long each part of the run took, as Lightning's "simple"
  /// The same, and the operations of some steps in a file, as Lightning's "pytorch". LibTorch's
  /// profiler says on standard error when it begins and ends, unless KINETO_LOG_LEVEL is 6.
  kTrace,
};

struct ProfilerOptions {
  Profiler kind = Profiler::kNone;
  /// kTrace: a trace in Chrome's format, for https://ui.perfetto.dev, written on rank 0 when
  /// `trace_steps` have been recorded or the run ends. A file that exists is removed first.
  std::filesystem::path trace_file{};
  /// kTrace: the optimizer steps to record, from the second one of this run on: the first one
  /// prepares memory. They take longer than others.
  std::int64_t trace_steps = 5;
};

/// ConfigError for options that cannot be.
void validate(const ProfilerOptions& options);

/// "none", "simple", "trace".
const std::vector<std::string>& profiler_names();
/// The profiler of that name; ConfigError for another word.
Profiler parse_profiler(const std::string& name);

}  // namespace lockstep
