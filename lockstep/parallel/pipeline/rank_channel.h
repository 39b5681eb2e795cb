// Messages between the stages of a pipeline on ranks.
#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <vector>

#include <torch/types.h>

#include <lockstep/comm/process_group.h>
#include <lockstep/parallel/pipeline/stage_message.h>

namespace lockstep::pipeline {

/// One rank's end of the messages over a process group. A small header with shapes, strides and
/// types goes before the tensors of each message, so that they may change at any time. A tensor's
/// memory is sent as it is, whatever the order of its dimensions, and arrives with the same
/// strides.
///
/// Sends are asynchronous. Over shared memory, which has no thread of its own, the sender writes a
/// message into a ring buffer: 512 KiB between two ranks, among more ranks 1 MiB divided by their
/// number, rounded up to a power of two. What does not fit there is written while the sender is in
/// a call: when it sends, receives, or between two actions. A receiver of a longer message
/// therefore waits for the action that the sender computes meanwhile. The order of messages does
/// not change, and nothing waits in a circle: the sender comes to its next call without the
/// receiver.
///
/// Messages to higher ranks and to lower ranks have a group each: over NCCL a rank's messages in
/// one group are done in order, and two ranks that send to each other would wait for each other.
/// Not thread-safe.
class RankChannel final : public MessageChannel {
 public:
  /// Collective over `group`. Received tensors are on `device`.
  RankChannel(ProcessGroup group, torch::Device device);

  /// Does not wait. send(), receive() and finish() also throw the errors of earlier sends, such as
  /// the CommError that names a dead rank.
  void send(int to, StageMessage message) override;
  StageMessage receive(int from) override;

  /// Continues what is being sent, without a wait. Throws the errors of earlier sends.
  void advance();
  /// Ends both groups on all ranks, as ProcessGroup::abort() does: a rank may wait in either.
  void abort(const std::string& reason);
  /// Waits for the end of all sends.
  void finish();

 private:
  struct Pending {
    WorkPtr work;
    torch::Tensor tensor;  ///< held until it is sent
  };

  ProcessGroup& towards(int peer) { return peer > group_.rank() ? group_ : downwards_; }
  ProcessGroup& from(int peer) { return peer < group_.rank() ? group_ : downwards_; }
  void send_tensor(int to, torch::Tensor tensor);
  void receive_into(int peer, const torch::Tensor& tensor);

  ProcessGroup group_;  // for messages to higher ranks
  ProcessGroup downwards_;
  const torch::Device device_;
  std::deque<Pending> pending_;
};

}  // namespace lockstep::pipeline
