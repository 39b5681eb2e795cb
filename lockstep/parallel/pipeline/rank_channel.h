// Messages between the stages of a pipeline on different ranks.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <exception>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include <torch/types.h>

#include <lockstep/comm/group/process_group.h>
#include <lockstep/parallel/pipeline/stage_message.h>

namespace lockstep::pipeline {

/// One rank's endpoint for messages over a process group. A small header with shapes, strides and
/// types precedes the tensors of each message, so these may change at any time. A tensor's memory
/// is sent as is, whatever the order of its dimensions, and arrives with the same strides; a tensor
/// with gaps or repeated elements arrives contiguous.
///
/// Messages go over the group itself unless it is over NCCL; then they go over Gloo, in a group of
/// the same ranks, through host memory. An NCCL send may wait for its receive and for all earlier
/// messages of its rank. Meanwhile it blocks operations that wait for the whole GPU, such as
/// loading a kernel or freeing memory. A table accepted by check() is free of deadlocks only if
/// sends do not wait.
///
/// Sends are asynchronous. Over shared memory the sender writes a message into a ring buffer: 512
/// KiB between two ranks, and with more ranks 1 MiB divided by their number, rounded up to a power
/// of two. If a message does not fit, a thread of the channel writes the rest piece by piece, so
/// that the receiver of a long message does not wait for the sender's current action. The thread
/// polls every 0.1 ms while data is left, and otherwise sleeps. The order of messages does not
/// change.
///
/// May be used by one thread at a time.
class RankChannel final : public MessageChannel {
 public:
  /// Collective over `group`. Received tensors are placed on `device`.
  RankChannel(ProcessGroup group, torch::Device device);
  /// As above, with messages in a separate group over `backend`, or in `group` itself if it is
  /// empty.
  RankChannel(ProcessGroup group, torch::Device device, const std::optional<std::string>& backend);
  ~RankChannel() override;
  RankChannel(const RankChannel&) = delete;
  RankChannel& operator=(const RankChannel&) = delete;

  /// The backend that carries the messages: "shm", "gloo", "hierarchical", or "single".
  const std::string& backend() const { return messages_.backend(); }

  /// Does not wait for the receive. A tensor on a GPU is copied to host memory first, which waits
  /// for the current stream. send(), receive() and finish() also throw the errors of earlier sends,
  /// such as the CommError that names a dead rank.
  void send(int to, StageMessage message) override;
  StageMessage receive(int from) override;

  /// Makes progress on pending sends without waiting. Throws the errors of earlier sends.
  void advance();
  /// Aborts the group and the message group on all ranks, like ProcessGroup::abort(): a rank may be
  /// waiting in either.
  void abort(const std::string& reason);
  /// Waits until all sends have completed.
  void finish();

 private:
  struct Pending {
    WorkPtr work;
    torch::Tensor tensor;  ///< held until it is sent
  };

  void send_tensor(int to, torch::Tensor tensor);
  void receive_into(int peer, const torch::Tensor& tensor);
  void start_writing();
  void write_what_is_left();
  void move_on();  // requires the lock

  ProcessGroup group_;
  ProcessGroup messages_;  // of the same ranks
  const torch::Device device_;

  std::mutex mutex_;  // guards the members below
  std::condition_variable left_;
  std::deque<Pending> pending_;
  std::exception_ptr error_;  // from a send that has ended
  bool stops_ = false;
  std::thread writer_;  // over shared memory; started by the first message that does not fit
};

/// The backend for messages between the ranks of a group whose backend has these traits; empty if
/// the group itself carries them.
std::optional<std::string> message_backend(const BackendTraits& traits);

}  // namespace lockstep::pipeline
