// A trace of the last steps of a run, on all ranks.
#pragma once

#include <cstdint>
#include <filesystem>

#include <lockstep/core/export.h>

namespace lockstep {

/// Records spans of all threads of all ranks on one clock: phases of the step, buckets, pipeline
/// actions, the loader's threads, evaluations and checkpoints. Costs less than 1 % of a step. A
/// process has one recording at a time: ranks that are threads of one process would end each
/// other's recordings.
struct LOCKSTEP_API TraceOptions {
  /// File in Chrome's format for https://ui.perfetto.dev (see write_chrome_trace()), which rank 0
  /// writes when the run ends. If empty, nothing is recorded. An existing file is removed first.
  std::filesystem::path file{};
  std::int64_t steps = 10;  ///< number of last optimizer steps to keep; at most 100
};

/// Throws ConfigError for invalid options.
LOCKSTEP_API void validate(const TraceOptions& options);

}  // namespace lockstep
