// Records what all ranks did in the last steps of a run. Internal to the room.
#pragma once

#include <cstddef>
#include <filesystem>
#include <vector>

#include <lockstep/comm/group/process_group.h>
#include <lockstep/core/clock.h>
#include <lockstep/trace/span.h>
#include <lockstep/train/measuring/trace_options.h>

namespace lockstep {

/// The recording of a process (start_recording()) from its construction on. Not thread-safe. The
/// destructor discards what is not yet written.
class RunTrace {
 public:
  /// `writes` on the rank that writes the file: it removes that of an earlier run. ConfigError
  /// where the file's folder does not take files. `on_gpu`: GPUs are traced, too (GpuTrace).
  RunTrace(const TraceOptions& options, bool writes, bool on_gpu);
  ~RunTrace();
  RunTrace(const RunTrace&) = delete;
  RunTrace& operator=(const RunTrace&) = delete;

  /// Call it before the batches of each step are read.
  void begin_step();
  /// Collective. Writes what has been recorded since the first of the last steps, with `more` spans
  /// of that time, unless that has been done. DataError, on all ranks, where the file cannot be
  /// written.
  void finish(std::vector<Span> more, ProcessGroup& group);

 private:
  const std::filesystem::path file_;
  std::vector<Clock::time_point> begins_;  // of the last steps, as a ring
  std::size_t next_ = 0;                   // where the next step stands
  bool finished_ = false;
};

}  // namespace lockstep
