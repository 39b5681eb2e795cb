// Copies of tensors between devices, on dedicated streams.
#pragma once

#include <map>
#include <memory>
#include <utility>

#include <c10/core/Event.h>
#include <c10/core/Stream.h>
#include <torch/types.h>

#include <lockstep/parallel/pipeline/stage_message.h>

namespace lockstep::pipeline {

/// Marks the tensors of `message` as ready once the current stream of `device` reaches this point.
/// No-op on a CPU.
void mark_ready(StageMessage& message, torch::Device device);

/// Makes the current stream of `device` wait until `message` is ready there. No-op on a CPU.
void wait_until_ready(const StageMessage& message, torch::Device device);

/// Copies messages to one device. Between two GPUs the copies run on dedicated streams of both, so
/// that neither device stops computing for them. Not thread-safe.
class PeerCopies {
 public:
  explicit PeerCopies(torch::Device device) : device_(device) {}

  /// Returns `message` with its tensors on the device. Between GPUs it only queues the copies: call
  /// wait_until_ready() before using the tensors. A message without a ready event counts as ready
  /// once the current streams of its tensors' devices reach this point. Work queued there
  /// afterwards may overwrite the tensors, because it waits for the copies.
  StageMessage bring(StageMessage message);

 private:
  torch::Tensor copy_between_gpus(const torch::Tensor& tensor, const StageMessage& message);
  c10::Stream stream_of(torch::Device device);

  torch::Device device_;
  // By GPU index. All copies end on one stream of the target, so that one event there follows all
  // of them, whichever GPUs they came from.
  std::map<int, c10::Stream> streams_;
};

}  // namespace lockstep::pipeline
