// Records some steps of a run with LibTorch's profiler. Internal to the room.
#pragma once

#include <cstdint>
#include <filesystem>

#include <lockstep/train/measuring/profiler.h>

namespace lockstep {

/// Records what the thread that calls it does, and on a GPU its kernels: the backward on a CPU is
/// in that thread, too. LibTorch has one profiler for the process. Not thread-safe. The destructor
/// gives up what is not yet written.
class StepTrace {
 public:
  /// Removes the trace of an earlier run. ConfigError where the file's folder does not take files.
  StepTrace(const ProfilerOptions& options, bool on_gpu);
  ~StepTrace();
  StepTrace(const StepTrace&) = delete;
  StepTrace& operator=(const StepTrace&) = delete;

  /// Call it before the batches of each step are read. `step` counts the steps of the run from 0.
  void begin_step(std::int64_t step);
  /// Writes the file, unless that has been done. Warns where the run was too short to record a
  /// step. DataError when the file cannot be written.
  void finish();

 private:
  const std::filesystem::path file_;
  const std::int64_t first_;  // step
  const std::int64_t end_;    // step behind the last one
  const bool on_gpu_;
  enum class State { kWaiting, kRecording, kWritten };
  State state_ = State::kWaiting;
};

}  // namespace lockstep
