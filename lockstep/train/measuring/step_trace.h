// Records some steps of a run with LibTorch's profiler. Internal to lockstep/train.
#pragma once

#include <cstdint>
#include <filesystem>

#include <lockstep/train/measuring/profiler.h>

namespace lockstep::train {

/// Records the calling thread's operations, which on a CPU include the backward, and on a GPU also
/// the kernels. LibTorch has one profiler per process. Not thread-safe. The destructor discards
/// operations that have not been written.
class StepTrace {
 public:
  /// Removes the trace of an earlier run. Throws ConfigError if files cannot be created in the
  /// file's folder.
  StepTrace(const ProfilerOptions& options, bool on_gpu);
  ~StepTrace();
  StepTrace(const StepTrace&) = delete;
  StepTrace& operator=(const StepTrace&) = delete;

  /// Call it before the batches of each step are read. `step` counts the steps of the run from 0.
  void begin_step(std::int64_t step);
  /// Writes the file; later calls do nothing. Warns if the run was too short to record a step.
  /// Throws DataError if the file cannot be written.
  void finish();

 private:
  const std::filesystem::path file_;
  const std::int64_t first_;  // first recorded step
  const std::int64_t end_;    // one past the last step
  const bool on_gpu_;
  enum class State { kWaiting, kRecording, kWritten };
  State state_ = State::kWaiting;
};

}  // namespace lockstep::train
