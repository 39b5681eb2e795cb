// What goes from one stage of a pipeline to the next, or back.
#pragma once

#include <memory>
#include <vector>

#include <c10/core/Event.h>
#include <torch/types.h>

namespace lockstep {

using Tensors = std::vector<torch::Tensor>;

namespace pipeline {

/// The activations of one micro-batch, or their gradients. The tensors have no graph. On one device
/// the receiver gets the sender's memory, which neither may change in place.
struct StageMessage {
  /// A gradient is undefined if the stage did not use the activation, or it needs none.
  Tensors tensors{};
  /// For each activation, whether its gradient has to come back. Empty: no gradient has to. A
  /// message of gradients leaves it empty.
  std::vector<bool> requires_grad{};
  /// On a GPU, an event after which the tensors may be read. Null on CPUs.
  std::shared_ptr<const c10::Event> ready{};
};

/// Sends and receives for one worker.
class MessageChannel {
 public:
  virtual ~MessageChannel() = default;

  /// Does not wait for the receive. Between ranks it waits until a tensor on a GPU is in host
  /// memory.
  virtual void send(int to, StageMessage message) = 0;
  /// Waits for the oldest message of `from` that was not received yet. Throws StepAborted where
  /// another worker has ended the step, TimeoutError at the deadline, CommError if a rank is gone.
  virtual StageMessage receive(int from) = 0;
};

}  // namespace pipeline
}  // namespace lockstep
