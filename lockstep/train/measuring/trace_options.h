// A trace of the last steps of a run, on all ranks.
#pragma once

#include <cstdint>
#include <filesystem>

namespace lockstep {

/// Spans of all threads of all ranks on one clock: phases of the step, buckets, actions of
/// pipelines, the loader's threads, evaluations and checkpoints. Costs less than a percent of a
/// step. A process has one recording at a time: ranks that are threads of one process would end
/// each other's.
struct TraceOptions {
  /// The file, in Chrome's format for https://ui.perfetto.dev (see write_chrome_trace()), which
  /// rank 0 writes when the run ends. Empty: nothing is recorded. A file that exists is removed
  /// first.
  std::filesystem::path file{};
  std::int64_t steps = 10;  ///< the last optimizer steps are kept; at most 100
};

/// ConfigError for options that cannot be.
void validate(const TraceOptions& options);

}  // namespace lockstep
