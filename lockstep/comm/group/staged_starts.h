// Operations of a group whose transport works in host memory, on tensors of a device: each starts
// when its data has come to the host, and all start in the order in which they were called.
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

namespace lockstep {

/// One for each group. A backward goes on while its buckets travel to the host: nothing here blocks
/// the calling thread but wait() of the handles. Safe to use from several threads.
class StagedStarts final : public Progressing, public std::enable_shared_from_this<StagedStarts> {
 public:
  struct Call {
    /// Hands the operation over to the transport. What it throws is the error of the handle.
    std::function<std::shared_ptr<Work>()> start;
    /// Copies to the host that must have been made before. May be empty.
    TensorPairs loads{};
    /// Held by the handle until the operation has ended: what `start` refers to.
    std::shared_ptr<const void> owner;
    /// "what rank 1 gives to all_reduce[float32, 4] on cuda:0", for messages.
    std::string name{};
    /// Ends the group, with a message: the data did not come.
    std::function<void(const std::string&)> abort;
    /// Throws when the group has ended: then the data is not waited for. May be null.
    std::function<void()> check{};
    std::chrono::milliseconds timeout{0};
  };

  /// `progress`, which may be null, is what moves while a handle waits for its data.
  explicit StagedStarts(std::shared_ptr<Progress> progress) : progress_(std::move(progress)) {}

  /// Whether all calls have started: then the next one may start without this queue.
  bool empty() const { return waiting_.load(std::memory_order_acquire) == 0; }

  /// Queues the copies, and the call behind the earlier ones.
  std::shared_ptr<Work> push(Call call);

  /// Starts all calls, waiting for their data at most `limit`, and not after `check` has thrown.
  /// Forgets those that it could not start. Afterwards no function of a call's is called any more.
  void finish(std::chrono::milliseconds limit, const std::function<void()>& check) noexcept;

  /// Starts the calls whose data is there. While a graph captures their device, nobody may ask it.
  bool advance() noexcept override;
  bool needs_a_hand() override { return !empty(); }

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
  std::atomic<bool> is_starting_{false};  // one thread at a time, and not from within a start
  std::mutex mutex_;                      // guards what follows
  std::deque<std::shared_ptr<Entry>> entries_;
};

}  // namespace lockstep
