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
  torch::Tensor copy_between_gpus(const torch::Tensor& tensor, const StageMessage& message);
  c10::Stream stream_of(torch::Device device);

  torch::Device device_;
  // By the index of the GPU. All copies end on one stream of the target, so that one event there
  // comes after all of them, from whichever GPUs they came.
  std::map<int, c10::Stream> streams_;
};

}  // namespace lockstep::pipeline
