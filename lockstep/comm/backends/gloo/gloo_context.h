// State shared by the operations of a group over Gloo: in addition to c10d_adapter::Context's, the
// operations that Gloo may still run, and the connections to the peers.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include <lockstep/comm/backends/c10d/context.h>
#include <lockstep/comm/backends/gloo/waiters.h>
#include <lockstep/comm/waiting/progress.h>

namespace lockstep::gloo {

using c10d_adapter::AdapterOptions;
using c10d_adapter::Call;
using c10d_adapter::WorkHandle;

/// Safe to use from several threads.
class GlooContext final : public c10d_adapter::Context {
 public:
  /// `progress` advances this rank's other operations while it waits here; may be null.
  GlooContext(c10::intrusive_ptr<c10d::Backend> backend, c10::intrusive_ptr<c10d::Store> store,
              AdapterOptions options, std::shared_ptr<comm::Progress> progress);
  ~GlooContext() override;

  Waiters& waiters() { return waiters_; }
  /// The progress of all operations of this rank, in every group.
  comm::Progress& progress() { return *progress_; }
  const std::shared_ptr<comm::Progress>& progress_pointer() const { return progress_; }
  /// Whether the connections were closed. An interrupted operation is then not waited for again.
  bool is_broken() const { return broken_; }
  /// Must be called when the operation has ended.
  void release(const WorkHandle& work);

  /// Exists while a wait in Gloo may reach `deadline`. Gloo then closes all connections, and a
  /// closed connection no longer means that the peer has died.
  class MayClose {
   public:
    MayClose(GlooContext& context, Clock::time_point deadline);
    ~MayClose();
    MayClose(const MayClose&) = delete;
    MayClose& operator=(const MayClose&) = delete;

   private:
    GlooContext& context_;
    std::multiset<Clock::time_point>::iterator place_;
  };

 private:
  void hold(const WorkHandle& work) override;
  /// Wakes the threads that wait in Gloo for messages.
  void interrupt() override { nudge(); }
  /// Gloo's text says only that a connection is closed, which adds nothing to the reason.
  std::string addition(const std::string& /*text*/) const override { return ""; }

  bool disconnected(int rank);
  bool is_closed(int rank);
  void nudge();
  void break_connections();
  bool all_ended();
  void forget_ended();

  const std::shared_ptr<comm::Progress> progress_;
  std::atomic<bool> broken_ = false;
  std::vector<WorkHandle> probes_;              // by rank; used by the watchdog's thread
  std::mutex mutex_;                            // guards the members below
  std::multiset<Clock::time_point> deadlines_;  // at which Gloo closes the connections
  std::vector<WorkHandle> outstanding_;         // operations that Gloo may still run
  Waiters waiters_;
};

}  // namespace lockstep::gloo
