// Work of a device that is recorded once and replayed. Internal to the room.
#pragma once

#include <functional>
#include <memory>

#include <torch/types.h>

#include <lockstep/comm/group/process_group.h>

namespace lockstep {

/// For one thread. A replay does what was recorded with what lies in the same memory by then; what
/// the host decided or computed while it was recorded stays as it was.
class StepGraph {
 public:
  virtual ~StepGraph() = default;

  /// Runs `work`, unrecorded, on the stream that capture() records: after what the current stream
  /// has to do, and before what it gets later. Libraries prepare there what they need.
  virtual void warm_up(const std::function<void()>& work) = 0;
  /// Records what `work` hands to the device, of which nothing is executed. Throws what `work`
  /// throws, and what cannot be recorded. Call it once.
  virtual void capture(const std::function<void()>& work) = 0;
  /// Queues what was recorded on the current stream.
  virtual void replay() = 0;
};

/// A CUDA graph for steps on `device` that communicate over `group`. ConfigError for a device that
/// is no GPU, a group whose operations cannot be recorded, and a build without CUDA.
std::unique_ptr<StepGraph> make_step_graph(torch::Device device, const ProcessGroup& group);

/// The last part of make_step_graph(): what the build has.
std::unique_ptr<StepGraph> make_cuda_graph(torch::Device device);

}  // namespace lockstep
