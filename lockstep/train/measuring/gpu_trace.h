// Adds the GPU's work to the trace of a run on GPUs.
//
// A CPU span shows when work was submitted. While a trace is recorded, each phase of a step is also
// enclosed in CUDA events, which show when the GPU did the work, and each span of each thread is an
// NVTX range, which Nsight Systems shows next to the kernels. Both use LibTorch's own interface
// (torch::profiler::impl::ProfilerStubs), which has no implementation in a CPU build.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <string>
#include <vector>

#include <torch/csrc/profiler/stubs/base.h>

#include <lockstep/core/trace/span.h>
#include <lockstep/core/trace/span_observer.h>

namespace lockstep::train {

/// One per process. start() and stop() are called by the training thread.
class GpuTrace final : public SpanObserver {
 public:
  static GpuTrace& instance();

  /// Starts enclosing the calling thread's phases in events on its current stream. Does nothing if
  /// LibTorch has no CUDA.
  void start();
  /// Waits for the GPU. Returns a span of category "gpu" for each of the last phases that ended
  /// after `from`, at most 4,096; empty after a start() that did nothing.
  std::vector<Span> stop(Clock::time_point from);

  void begin(const char* name, const char* category, std::int64_t number) noexcept override;
  void end(const char* category) noexcept override;

 private:
  using Event = torch::profiler::impl::ProfilerVoidEventStub;
  /// A moment on the stream. `name` is set if it begins a phase, and null if it ends one.
  struct Mark {
    const char* name = nullptr;
    Event event{};
  };

  void mark(const char* name) noexcept;
  std::vector<Span> spans_since(Clock::time_point from) const;

  std::atomic<const torch::profiler::impl::ProfilerStubs*> stubs_{nullptr};
  std::deque<Mark> marks_;
};

}  // namespace lockstep::train
