// Queues operations on device tensors for a transport that works in host memory: each operation
// starts once its data has arrived on the host, and all start in the order of the calls.
#pragma once

#include <atomic>
#include <chrono>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include <lockstep/comm/call/work.h>
#include <lockstep/comm/group/device_copies.h>
#include <lockstep/comm/waiting/progress.h>

namespace lockstep::comm {

/// The queue of one group. A backward pass continues while its buckets are copied to the host: only
/// wait() of a handle blocks the calling thread. Safe to use from several threads.
class StagedStarts final : public Progressing, public std::enable_shared_from_this<StagedStarts> {
 public:
  struct Call {
    /// Hands the operation to the transport. If it throws, the handle reports the error.
    std::function<std::shared_ptr<Work>()> start;
    /// Copies to the host that must complete before the start. May be empty.
    TensorPairs loads{};
    /// The object that `start` refers to; the handle holds it until the operation has ended.
    std::shared_ptr<const void> owner;
    /// Describes the data, for messages: "what rank 1 gives to all_reduce[float32, 4] on cuda:0".
    std::string name{};
    /// Ends the group, with a message, if the data did not arrive.
    std::function<void(const std::string&)> abort;
    /// Throws if the group has ended, in which case the data is no longer waited for. May be null.
    std::function<void()> check{};
    std::chrono::milliseconds timeout{0};
  };

  /// `progress` is advanced while a handle waits for its data. May be null.
  explicit StagedStarts(std::shared_ptr<Progress> progress) : progress_(std::move(progress)) {}

  /// Whether all calls have started, so that the next one may bypass the queue.
  bool empty() const { return waiting_.load(std::memory_order_acquire) == 0; }

  /// Queues the copies on the device, and the call after all earlier calls.
  std::shared_ptr<Work> push(Call call);

  /// Starts all calls. Waits for their data for at most `limit`, and stops waiting when `check`
  /// throws. Drops the calls that could not be started. No function of any call is called
  /// afterwards.
  void finish(std::chrono::milliseconds limit, const std::function<void()>& check) noexcept;

  /// Starts the calls whose data has arrived. Starts none while a graph is being captured on their
  /// device, because the device must not be queried then.
  bool advance() noexcept override;
  bool needs_a_hand() override { return !empty(); }
  std::chrono::nanoseconds longest_sleep() override;

 private:
  class Handle;
  struct Entry {
    Call call;
    std::optional<c10::Event> arrived;
    std::weak_ptr<Handle> handle;
  };
  std::shared_ptr<Entry> take_first_ready();
  bool is_held_by_capture();

  const std::shared_ptr<Progress> progress_;
  std::once_flag joins_progress_;
  std::atomic<std::size_t> waiting_{0};
  std::atomic<bool> is_starting_{false};  // lets one thread start at a time, without recursion
  std::mutex mutex_;                      // guards the members below
  std::deque<std::shared_ptr<Entry>> entries_;
};

}  // namespace lockstep::comm
