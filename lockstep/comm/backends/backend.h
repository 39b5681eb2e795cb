// What a transport must do for a process group. One folder under backends/ implements it for each.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <torch/types.h>

#include <lockstep/comm/call/collective.h>
#include <lockstep/comm/call/message_tag.h>
#include <lockstep/comm/call/work.h>

namespace c10d {
class Backend;
}

namespace lockstep {

class Watchdog;

/// One send or receive of a batch.
struct Message {
  CallKind kind = CallKind::kSend;  ///< or kRecv
  torch::Tensor tensor;
  std::optional<int> peer;  ///< of a receive: none is any rank
  MessageTag tag = 0;
};

/// Ranks here are those of the group. ProcessGroup has checked what can be checked on one rank.
/// Collectives must be started by all ranks in the same order. Safe to call from several threads of
/// a rank, one call at a time in an order that all ranks share. A backend holds the tensors of an
/// operation until it has ended.
class Backend {
 public:
  virtual ~Backend() = default;

  virtual const std::string& name() const = 0;

  /// Whether operations are queued on the device's stream, or complete when they are started. They
  /// then need no thread of this rank to go on, and a CUDA graph can record them. Works of those
  /// that go on after a wait() are StreamOrdered.
  virtual bool runs_on_stream() const { return false; }

  /// Any collective; `call.algorithm` is kAuto or kNative. Throws what is wrong at once; what goes
  /// wrong later is the Work's.
  virtual std::shared_ptr<Work> start(const Collective& call) = 0;

  /// start() and wait() in one; with a transport as fast as shared memory a Work of its own would
  /// be a good part of a small call. `meanwhile` is called once, when the peers have what they need
  /// from this rank, unless an error came before.
  virtual void run(const Collective& call, const std::function<void()>& meanwhile) {
    const auto work = start(call);
    meanwhile();
    work->wait();
  }

  /// Point-to-point; tensors are one-dimensional and contiguous. Messages between two ranks with
  /// one tag arrive in the order in which they were sent. No `source`: any rank. The sizes of both
  /// sides must be the same.
  virtual std::shared_ptr<Work> send(torch::Tensor tensor, int destination, MessageTag tag) = 0;
  virtual std::shared_ptr<Work> recv(torch::Tensor tensor, std::optional<int> source,
                                     MessageTag tag) = 0;

  /// Starts all, none of which waits for another; the handles are in the order of `messages`.
  virtual std::vector<std::shared_ptr<Work>> batch(std::vector<Message> messages) {
    std::vector<std::shared_ptr<Work>> works;
    for (Message& each : messages) {
      works.push_back(each.kind == CallKind::kSend
                          ? send(std::move(each.tensor), each.peer.value(), each.tag)
                          : recv(std::move(each.tensor), each.peer, each.tag));
    }
    return works;
  }

  /// Collective. Zeroed memory in which this backend communicates without copies; plain memory
  /// where it has no such thing.
  virtual torch::Tensor allocate(at::IntArrayRef shape, torch::ScalarType dtype) = 0;

  /// For a tensor in this rank's part of memory from allocate() that the ranks share: the same
  /// place in each rank's part. Nothing elsewhere. Local.
  virtual std::vector<torch::Tensor> peer_views(const torch::Tensor& /*tensor*/) { return {}; }

  /// Whether peer_views() of what allocate() gives is not empty, with several ranks.
  virtual bool shares_memory() const { return false; }

  /// Ends the group for all ranks: theirs and our waits throw CommError with `reason`. The first
  /// reason wins.
  virtual void abort(const std::string& reason) = 0;

  /// Throws CommError when the group has been aborted or a peer is known to be dead. Does not
  /// block.
  virtual void check() = 0;
  /// As check(), but a peer that has left is no error.
  virtual void throw_if_ended() { check(); }

  /// Knows which call each rank is in; lives as long as the backend. Null where the transport sees
  /// by itself who is missing.
  virtual Watchdog* watchdog() { return nullptr; }
  /// LibTorch's backend, of which this one is an adapter; lives as long. Else null.
  virtual c10d::Backend* library() { return nullptr; }
};

}  // namespace lockstep
