// Lockstep as a backend of torch.distributed.
#pragma once

#include <sys/types.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include <lockstep/comm/group/process_group.h>
#include <lockstep/core/process_owned.h>

#include "operation.h"
#include "progress_threads.h"

namespace lockstep_c10d {

/// A torch.distributed backend over a lockstep::ProcessGroup. Every call starts one operation of
/// the group immediately; see Operation for how it completes. Meaning, arguments and thread-safety
/// are those of torch.distributed's other backends. Wrong arguments raise ValueError. Later
/// failures raise torch.distributed.DistBackendError with a one-line message.
class LockstepBackend final : public c10d::Backend {
 public:
  /// Collective. The ranks meet over `store`, which PyTorch made for this group alone. Error
  /// messages name this process rank `world_rank`.
  LockstepBackend(c10::intrusive_ptr<c10d::Store> store, int rank, int size, int world_rank,
                  std::chrono::milliseconds timeout);
  ~LockstepBackend() override;

  const std::string getBackendName() const override { return "lockstep"; }
  c10::intrusive_ptr<Options> getBackendOptions() override;
  /// Sets the timeout of all later waits that have none of their own.
  void setTimeout(std::chrono::milliseconds timeout) override { timeout_ = timeout; }
  void setSequenceNumberForGroup() override {}  // all ranks count from zero
  std::uint64_t getSequenceNumberForGroup() override { return sequence_; }
  void abort() override;
  /// Stops the progress threads. If they still have operations to complete, the group is aborted. A
  /// no-op in a forked child, because the group belongs to its parent.
  void shutdown() override;

  using Tensor = at::Tensor;
  using Tensors = std::vector<at::Tensor>;
  using TensorLists = std::vector<Tensors>;
  using WorkPtr = c10::intrusive_ptr<c10d::Work>;

  WorkPtr broadcast(Tensors& tensors, const c10d::BroadcastOptions& options) override;
  WorkPtr allreduce(Tensors& tensors, const c10d::AllreduceOptions& options) override;
  WorkPtr allreduce_coalesced(Tensors& tensors,
                              const c10d::AllreduceCoalescedOptions& options) override;
  WorkPtr reduce(Tensors& tensors, const c10d::ReduceOptions& options) override;
  WorkPtr allgather(TensorLists& outputs, Tensors& inputs,
                    const c10d::AllgatherOptions& options) override;
  WorkPtr _allgather_base(Tensor& output, Tensor& input,
                          const c10d::AllgatherOptions& options) override;
  WorkPtr allgather_coalesced(TensorLists& outputs, Tensors& inputs,
                              const c10d::AllgatherOptions& options) override;
  WorkPtr allgather_into_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                          const c10d::AllgatherOptions& options) override;
  WorkPtr gather(TensorLists& outputs, Tensors& inputs,
                 const c10d::GatherOptions& options) override;
  WorkPtr scatter(Tensors& outputs, TensorLists& inputs,
                  const c10d::ScatterOptions& options) override;
  WorkPtr reduce_scatter(Tensors& outputs, TensorLists& inputs,
                         const c10d::ReduceScatterOptions& options) override;
  WorkPtr _reduce_scatter_base(Tensor& output, Tensor& input,
                               const c10d::ReduceScatterOptions& options) override;
  WorkPtr reduce_scatter_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                          const c10d::ReduceScatterOptions& options) override;
  WorkPtr alltoall_base(Tensor& output, Tensor& input, std::vector<std::int64_t>& output_splits,
                        std::vector<std::int64_t>& input_splits,
                        const c10d::AllToAllOptions& options) override;
  WorkPtr alltoall(Tensors& outputs, Tensors& inputs,
                   const c10d::AllToAllOptions& options) override;
  WorkPtr send(Tensors& tensors, int destination, int tag) override;
  WorkPtr recv(Tensors& tensors, int source, int tag) override;
  WorkPtr recvAnysource(Tensors& tensors, int tag) override;
  WorkPtr barrier(const c10d::BarrierOptions& options) override;
  void monitoredBarrier(const c10d::BarrierOptions& options, bool wait_all_ranks) override;

 private:
  struct Call {
    c10d::OpType type;
    const char* title;
    std::chrono::milliseconds timeout = c10d::kUnsetTimeout;
  };
  /// The timeout of a call: its own, or the group's if it has none.
  std::chrono::milliseconds limit(std::chrono::milliseconds timeout) const;
  /// Wraps the lockstep::WorkPtr that `begin` returns in an Operation, with errors translated for
  /// Python.
  template <typename Begin>
  WorkPtr start(const Call& call, const Tensors& inputs, Tensors outputs, const Begin& begin);

  std::optional<lockstep::ProcessGroup> group_;
  std::atomic<std::chrono::milliseconds> timeout_;
  std::atomic<std::uint64_t> sequence_{0};
  std::chrono::microseconds spin_;
  std::shared_ptr<ProgressThreads> progress_ = lockstep::make_process_owned<ProgressThreads>();
  const pid_t process_ = getpid();
};

/// Shuts down all remaining backends. Called at interpreter exit.
void shut_down_all();

}  // namespace lockstep_c10d
