// Messages between the stages of a pipeline on ranks.
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

/// One rank's end of the messages over a process group. A small header with shapes, strides and
/// types goes before the tensors of each message, so that they may change at any time. A tensor's
/// memory is sent as it is, whatever the order of its dimensions, and arrives with the same
/// strides; one with gaps or repeated elements arrives contiguous.
///
/// Messages go over the group, unless that is over NCCL: then they go over a group of the same
/// ranks over Gloo, and so through host memory. An NCCL send may wait for its receive and for all
/// earlier messages of its rank, and while it waits, whatever waits for the whole GPU waits with
/// it, such as the loading of a kernel or the return of memory. A table that check() accepts is
/// free of circles only where sends do not wait.
///
/// Sends are asynchronous. Over shared memory the sender writes a message into a ring buffer: 512
/// KiB between two ranks, among more ranks 1 MiB divided by their number, rounded up to a power of
/// two. What does not fit there a thread of the channel's own writes bit by bit, so that the
/// receiver of a long message does not wait for the action that the sender computes meanwhile. It
/// looks every 0.1 ms while something is left, and otherwise sleeps. The order of messages does not
/// change.
///
/// For one thread at a time.
class RankChannel final : public MessageChannel {
 public:
  /// Collective over `group`. Received tensors are on `device`.
  RankChannel(ProcessGroup group, torch::Device device);
  /// Messages go over a group of their own over `backend`; over `group` itself if there is none.
  RankChannel(ProcessGroup group, torch::Device device, const std::optional<std::string>& backend);
  ~RankChannel() override;
  RankChannel(const RankChannel&) = delete;
  RankChannel& operator=(const RankChannel&) = delete;

  /// What carries the messages: "shm", "gloo", "hierarchical", or "single".
  const std::string& backend() const { return messages_.backend(); }

  /// Does not wait for the receive. A tensor on a GPU is copied to host memory first, which waits
  /// for the current stream. send(), receive() and finish() also throw the errors of earlier sends,
  /// such as the CommError that names a dead rank.
  void send(int to, StageMessage message) override;
  StageMessage receive(int from) override;

  /// Continues what is being sent, without a wait. Throws the errors of earlier sends.
  void advance();
  /// Ends the group, and that of the messages, on all ranks, as ProcessGroup::abort() does: a rank
  /// may wait in either.
  void abort(const std::string& reason);
  /// Waits for the end of all sends.
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
  void move_on();  // with the lock

  ProcessGroup group_;
  ProcessGroup messages_;  // of the same ranks
  const torch::Device device_;

  std::mutex mutex_;  // guards what follows
  std::condition_variable left_;
  std::deque<Pending> pending_;
  std::exception_ptr error_;  // of a send that has ended
  bool stops_ = false;
  std::thread writer_;  // over shared memory, from the first message on that does not fit
};

/// The backend of the messages between the ranks of a group over `backend`; none where the group
/// itself carries them.
std::optional<std::string> message_backend(const std::string& backend);

}  // namespace lockstep::pipeline
