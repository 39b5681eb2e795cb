// How a run spends its time: a table at its end, or a trace of its first steps.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include <lockstep/core/export.h>

namespace lockstep {

enum class Profiler {
  kNone,
  kSimple,  ///< RunReport::profile has the time of each part of the run, like Lightning's "simple"
  /// Like kSimple, but also writes the operations of some steps to a file, like Lightning's
  /// "pytorch". LibTorch's profiler reports its start and end on standard error unless
  /// KINETO_LOG_LEVEL is 6.
  kTrace,
};

struct LOCKSTEP_API ProfilerOptions {
  Profiler kind = Profiler::kNone;
  /// kTrace: file of the trace in Chrome's format, for https://ui.perfetto.dev. Rank 0 writes it
  /// once `trace_steps` have been recorded or the run ends. An existing file is removed first.
  std::filesystem::path trace_file{};
  /// kTrace: number of optimizer steps to record, starting with the second one of this run, because
  /// the first one prepares memory. Recorded steps take longer than others.
  std::int64_t trace_steps = 5;
};

/// Throws ConfigError for invalid options.
LOCKSTEP_API void validate(const ProfilerOptions& options);

/// "none", "simple", "trace".
LOCKSTEP_API const std::vector<std::string>& profiler_names();
/// The profiler with that name. Throws ConfigError for an unknown name.
LOCKSTEP_API Profiler parse_profiler(const std::string& name);

}  // namespace lockstep
