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
/// types precedes the tensors of each message, so that all of these may differ between messages. A
/// dense tensor is sent as it lies in memory, whatever the order of its dimensions, and arrives
/// with the same strides; a tensor with gaps or overlapping elements arrives contiguous.
///
/// The group itself carries the messages, except over NCCL: then a Gloo group of the same ranks
/// carries them, through host memory. The reason is that an NCCL send may wait for its receive and
/// for all earlier messages of its rank, and meanwhile blocks operations that wait for the whole
/// GPU, such as loading a kernel or freeing memory. A table that check() accepts is free of
/// deadlocks only if sends do not wait.
///
/// Sends are asynchronous. Over shared memory, the sender writes a message into the ring buffer of
/// its pair of ranks, which has 512 KiB in a group of two. In a larger group it has 1 MiB divided
/// by the number of ranks, rounded up to a power of two, but at least 16 KiB. If a message does not
/// fit, a thread of the channel writes the rest piece by piece, so that the receiver of a long
/// message does not wait for the end of the sender's current action. The thread polls every 0.1 ms
/// while data is left, and otherwise sleeps. Messages between two ranks arrive in the order of
/// their send() calls.
///
/// Not thread-safe: one thread at a time may use it.
class RankChannel final : public MessageChannel {
 public:
  /// Collective over `group`. Received tensors are placed on `device`.
  RankChannel(ProcessGroup group, torch::Device device);
  /// As above, with an explicit `backend`: a separate group over that backend carries the messages,
  /// or `group` itself if `backend` is empty.
  RankChannel(ProcessGroup group, torch::Device device, const std::optional<std::string>& backend);
  ~RankChannel() override;
  RankChannel(const RankChannel&) = delete;
  RankChannel& operator=(const RankChannel&) = delete;

  /// The backend that carries the messages: "shm", "gloo", "hierarchical", or "single".
  const std::string& backend() const { return messages_.backend(); }

  /// Does not wait for the receiver. A tensor on a GPU is first copied to host memory, which waits
  /// for the work on the current stream. send(), receive() and finish() also throw the error of an
  /// earlier send, such as the CommError that names a dead rank.
  void send(int to, StageMessage message) override;
  StageMessage receive(int from) override;

  /// Makes progress on pending sends without waiting. Throws the error of an earlier send.
  void advance();
  /// Aborts both the group and the group that carries the messages on all ranks, like
  /// ProcessGroup::abort(), because a rank may be waiting in either.
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
  void move_on();  // the caller must hold mutex_

  ProcessGroup group_;
  ProcessGroup messages_;  // a group of the same ranks
  const torch::Device device_;

  std::mutex mutex_;  // guards the members below
  std::condition_variable left_;
  std::deque<Pending> pending_;
  std::exception_ptr error_;  // first error of a completed send, not yet thrown
  bool stops_ = false;
  std::thread writer_;  // over shared memory; started by the first message that does not fit
};

/// The backend of the separate group that carries messages between the ranks of a group whose
/// backend has these traits; empty if that group carries them itself.
std::optional<std::string> message_backend(const BackendTraits& traits);

}  // namespace lockstep::pipeline
