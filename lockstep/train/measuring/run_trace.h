// Records what all ranks did in the last steps of a run. Internal to lockstep/train.
#pragma once

#include <cstddef>
#include <filesystem>
#include <vector>

#include <lockstep/comm/group/process_group.h>
#include <lockstep/core/clock.h>
#include <lockstep/core/trace/span.h>
#include <lockstep/train/measuring/trace_options.h>

namespace lockstep::train {

/// Records the process (start_recording()) from construction on. Not thread-safe. The destructor
/// discards spans that have not been written.
class RunTrace {
 public:
  /// `writes`: this rank writes the file, and removes the file of an earlier run. Throws
  /// ConfigError if files cannot be created in the file's folder. `on_gpu`: also traces GPUs
  /// (GpuTrace).
  RunTrace(const TraceOptions& options, bool writes, bool on_gpu);
  ~RunTrace();
  RunTrace(const RunTrace&) = delete;
  RunTrace& operator=(const RunTrace&) = delete;

  /// Call it before the batches of each step are read.
  void begin_step();
  /// Collective. Writes the spans recorded since the first of the last steps began, and the spans
  /// `more` of that time; later calls do nothing. Throws DataError, on all ranks, if the file
  /// cannot be written.
  void finish(std::vector<Span> more, ProcessGroup& group);

 private:
  const std::filesystem::path file_;
  std::vector<Clock::time_point> begins_;  // begins of the last steps, as a ring
  std::size_t next_ = 0;                   // ring position of the next step
  bool finished_ = false;
};

}  // namespace lockstep::train
