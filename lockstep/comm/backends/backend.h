// The interface between a process group and a transport. Each transport implements it in its own
// folder under backends/.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <torch/types.h>

#include <lockstep/comm/call/backend_traits.h>
#include <lockstep/comm/call/collective.h>
#include <lockstep/comm/call/message_tag.h>
#include <lockstep/comm/call/work.h>

namespace c10d {
class Backend;
}

namespace lockstep::comm {

class Watchdog;

/// One send or receive of a batch.
struct Message {
  CallKind kind = CallKind::kSend;  ///< or kRecv
  torch::Tensor tensor;
  std::optional<int> peer;  ///< empty for a receive from any rank
  MessageTag tag = 0;
};

/// A transport of a process group. Ranks are ranks in the group. ProcessGroup has already checked
/// everything that can be checked on one rank. All ranks must start collectives in the same order.
/// Several threads of a rank may call, one at a time and in an order that all ranks share. A
/// backend keeps the tensors of an operation alive until the operation has ended.
class Backend {
 public:
  virtual ~Backend() = default;

  virtual const std::string& name() const = 0;

  virtual const BackendTraits& traits() const {
    static constexpr BackendTraits kDefaults{};
    return kDefaults;
  }

  /// Whether every operation is queued on the device's stream, or is complete once started. Such
  /// operations need no thread of this rank to make progress, and a CUDA graph can record them. If
  /// an operation may continue after wait(), its Work is StreamOrdered.
  virtual bool runs_on_stream() const { return false; }

  /// Starts any collective; `call.algorithm` is kAuto or kNative. Throws on invalid arguments.
  /// Later failures are reported by the returned Work.
  virtual std::shared_ptr<Work> start(const Collective& call) = 0;

  /// start() and wait() in one call. With a transport as fast as shared memory, creating a Work
  /// would take a large part of the time of a small call. `meanwhile` is called once, when the
  /// peers have what they need from this rank, unless an error occurs first.
  virtual void run(const Collective& call, const std::function<void()>& meanwhile) {
    const auto work = start(call);
    meanwhile();
    work->wait();
  }

  /// Whether each rank gathers and reduces the inputs of all ranks in an all-reduce with kNative,
  /// because the transport lacks this reduction. For large tensors, an algorithm over messages is
  /// then faster.
  virtual bool gathers_to_reduce(detail::DataType /*type*/, ReduceOp /*op*/) const { return false; }

  /// Start a point-to-point message. Tensors are one-dimensional and contiguous. Messages between
  /// two ranks with the same tag arrive in the order in which they were sent. An empty `source`
  /// means any rank. Both sides must pass the same size.
  virtual std::shared_ptr<Work> send(torch::Tensor tensor, int destination, MessageTag tag) = 0;
  virtual std::shared_ptr<Work> recv(torch::Tensor tensor, std::optional<int> source,
                                     MessageTag tag) = 0;

  /// Starts all messages; none waits for another. The handles are in the order of `messages`.
  virtual std::vector<std::shared_ptr<Work>> batch(std::vector<Message> messages) {
    std::vector<std::shared_ptr<Work>> works;
    for (Message& each : messages) {
      works.push_back(each.kind == CallKind::kSend
                          ? send(std::move(each.tensor), each.peer.value(), each.tag)
                          : recv(std::move(each.tensor), each.peer, each.tag));
    }
    return works;
  }

  /// Collective. Returns zeroed memory in which this backend communicates without copies, or plain
  /// memory if the backend has no such memory.
  virtual torch::Tensor allocate(at::IntArrayRef shape, torch::ScalarType dtype) = 0;

  /// For a tensor in this rank's part of shared memory from allocate(): views of the same place in
  /// each rank's part. Empty for any other tensor. Not collective.
  virtual std::vector<torch::Tensor> peer_views(const torch::Tensor& /*tensor*/) { return {}; }

  /// Whether peer_views() returns views for memory from allocate() when there are several ranks.
  virtual bool shares_memory() const { return false; }

  /// Ends the group for all ranks: waits on every rank, including this one, throw CommError with
  /// `reason`. The first reason wins.
  virtual void abort(const std::string& reason) = 0;

  /// Throws CommError when the group has been aborted or a peer is known to be dead. Does not
  /// block.
  virtual void check() = 0;
  /// Like check(), but does not treat a peer that has left as an error.
  virtual void throw_if_ended() { check(); }

  /// The watchdog, which knows which call each rank is in. It lives as long as the backend. Null if
  /// the transport itself detects missing ranks.
  virtual Watchdog* watchdog() { return nullptr; }
  /// The LibTorch backend that this one adapts, or null. It lives as long as this backend.
  virtual c10d::Backend* library() { return nullptr; }
};

}  // namespace lockstep::comm
