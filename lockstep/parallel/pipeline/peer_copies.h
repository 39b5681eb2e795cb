// Tensors between devices, on streams that do nothing else.
#pragma once

#include <map>
#include <memory>
#include <utility>

#include <c10/core/Event.h>
#include <c10/core/Stream.h>
#include <torch/types.h>

#include <lockstep/parallel/pipeline/stage_message.h>

namespace lockstep::pipeline {

/// Says in `message` that its tensors are ready once the current stream of `device` gets here.
/// Nothing on a CPU.
void mark_ready(StageMessage& message, torch::Device device);

/// Makes the current stream of `device` wait until `message` is ready there. Nothing on a CPU.
void wait_until_ready(const StageMessage& message, torch::Device device);

/// Brings messages to one device. Between two GPUs the copy runs on a stream of its own on both
/// sides, so that neither device stops computing for it. Not thread-safe.
class PeerCopies {
 public:
  explicit PeerCopies(torch::Device device) : device_(device) {}

  /// `message` with its tensors on the device. Between GPUs only queues the copies: call
  /// wait_until_ready() before using them. A message that does not say when it is ready is ready
  /// once the current streams of its tensors' devices get here; work that is queued there
  /// afterwards may overwrite the tensors, because it waits for the copies.
  StageMessage bring(StageMessage message);

 private:
  struct Streams {
    c10::Stream from;
    c10::Stream to;
  };
  torch::Tensor copy_between_gpus(const torch::Tensor& tensor, const StageMessage& message,
                                  std::shared_ptr<c10::Event>& done);
  const Streams& streams_from(torch::Device device);

  torch::Device device_;
  std::map<int, Streams> streams_;  // by the index of the other device
};

}  // namespace lockstep::pipeline
