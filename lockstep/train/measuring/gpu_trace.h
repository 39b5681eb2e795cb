// What a trace has beside the CPU's spans where a run trains on GPUs.
//
// A span of the CPU says when work was handed over. While a trace is recorded, each phase of a step
// has CUDA events around it as well, which say when the GPU did the work; and each span of each
// thread is an NVTX range, which Nsight Systems shows beside the kernels. Both go through
// LibTorch's own interface to them (torch::profiler::impl::ProfilerStubs), which a CPU build has
// without an implementation.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <string>
#include <vector>

#include <torch/csrc/profiler/stubs/base.h>

#include <lockstep/trace/span.h>
#include <lockstep/trace/span_observer.h>

namespace lockstep {

/// One for the process. start() and stop() belong to the thread that trains.
class GpuTrace final : public SpanObserver {
 public:
  static GpuTrace& instance();

  /// From now on the calling thread's phases have events on its current stream. Nothing happens
  /// where LibTorch has no CUDA.
  void start();
  /// Waits for the GPU. Returns a span of category "gpu" for each of the last phases that ended
  /// after `from`, at most 4,096; empty after a start() that did nothing.
  std::vector<Span> stop(Clock::time_point from);

  void begin(const char* name, const char* category, std::int64_t number) noexcept override;
  void end(const char* category) noexcept override;

 private:
  using Event = torch::profiler::impl::ProfilerVoidEventStub;
  /// A moment on the stream. `name` of one that begins a phase; null of one that ends one.
  struct Mark {
    const char* name = nullptr;
    Event event{};
  };

  void mark(const char* name) noexcept;
  std::vector<Span> spans_since(Clock::time_point from) const;

  std::atomic<const torch::profiler::impl::ProfilerStubs*> stubs_{nullptr};
  std::deque<Mark> marks_;
};

}  // namespace lockstep
