// A message from one stage of a pipeline to the next, or back.
#pragma once

#include <memory>
#include <vector>

#include <c10/core/Event.h>
#include <torch/types.h>

namespace lockstep::pipeline {

using Tensors = std::vector<torch::Tensor>;

/// The activations of one micro-batch, or their gradients. The tensors have no graph. On one device
/// the receiver shares the sender's memory, which neither may change in place.
struct StageMessage {
  /// A gradient is undefined if the stage did not use the activation or the activation needs none.
  Tensors tensors{};
  /// For each activation, whether its gradient must be sent back. Empty if none must, and in
  /// messages of gradients.
  std::vector<bool> requires_grad{};
  /// On a GPU, an event after which the tensors may be read. Null on CPUs.
  std::shared_ptr<const c10::Event> ready{};
};

/// Sends and receives for one worker.
class MessageChannel {
 public:
  virtual ~MessageChannel() = default;

  /// Does not wait for the receive. Between ranks it waits until tensors on a GPU have been copied
  /// to host memory.
  virtual void send(int to, StageMessage message) = 0;
  /// Waits for the oldest message from `from` that has not been received yet. Throws StepAborted if
  /// another worker has ended the step, TimeoutError at the deadline, CommError if a rank is gone.
  virtual StageMessage receive(int from) = 0;
};

}  // namespace lockstep::pipeline
