// Device work that is recorded once and replayed many times. Internal to lockstep/train.
#pragma once

#include <functional>
#include <memory>

#include <torch/types.h>

#include <lockstep/comm/group/process_group.h>

namespace lockstep::detail {

/// Use it on one thread only. A replay repeats the recorded device work on the current contents of
/// the same memory. Host decisions and results stay as they were during the recording.
class StepGraph {
 public:
  virtual ~StepGraph() = default;

  /// Runs `work` unrecorded on the stream that capture() records, ordered after earlier and before
  /// later work on the current stream. Libraries initialize lazily here.
  virtual void warm_up(const std::function<void()>& work) = 0;
  /// Records the device work of `work` without executing it. Throws the errors of `work`, and an
  /// error if something cannot be recorded. Call it once.
  virtual void capture(const std::function<void()>& work) = 0;
  /// Queues the recorded work on the current stream.
  virtual void replay() = 0;
};

/// A CUDA graph for steps on `device` that communicate over `group`. Throws ConfigError for a
/// device that is not a GPU, a group whose operations cannot be recorded, and a build without CUDA.
std::unique_ptr<StepGraph> make_step_graph(torch::Device device, const ProcessGroup& group);

/// The build-dependent part of make_step_graph().
std::unique_ptr<StepGraph> make_cuda_graph(torch::Device device);

}  // namespace lockstep::detail
