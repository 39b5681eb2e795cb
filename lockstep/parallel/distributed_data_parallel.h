// DistributedDataParallel: one replica of the model on each rank, kept equal by averaging gradients.
//
//   auto group = lockstep::init_process_group();
//   lockstep::DistributedDataParallel ddp(net, group);
//   for (...) {
//     optimizer.zero_grad();
//     auto loss = criterion(ddp.forward(x), y);
//     loss.backward();      // returns with averaged gradients
//     optimizer.step();
//   }
//
// Behaves like torch.nn.parallel.DistributedDataParallel: at construction rank 0's parameters and
// buffers are copied to all ranks, before each forward its buffers are, and gradients are averaged in
// buckets while backward runs (Li et al., "PyTorch Distributed", VLDB 2020).
#pragma once

#include <memory>
#include <optional>
#include <utility>

#include <torch/torch.h>

#include <lockstep/comm/process_group.h>
#include <lockstep/parallel/module_buffers.h>
#include <lockstep/parallel/reducer.h>
#include <lockstep/parallel/sync_batch_norm.h>

namespace lockstep {

struct DdpOptions {
  double bucket_cap_mb = 25;        ///< MiB of gradients that travel together
  double first_bucket_cap_mb = 1;   ///< MiB of the first bucket, which opens the overlap
  bool broadcast_buffers = true;    ///< rank 0's buffers to all before each forward
  bool sync_batch_norm = false;     ///< as convert_sync_batchnorm(), in a group of its own
};

/// The part that does not depend on the module's type. Holds the module's parameters, not the module.
/// The destructor removes the hooks and does not communicate. Not thread-safe.
class DdpCore {
 public:
  /// Collective. ConfigError, on every rank, when the ranks' models differ.
  DdpCore(torch::nn::Module& module, ProcessGroup group, const DdpOptions& options = {});

  /// Collective where the module has buffers. Call before each forward.
  void before_forward();

  /// Seconds of communication that backward did not hide, since construction.
  double communication_seconds() const;

  /// While the returned guard lives, backward only accumulates; the first backward after it reduces
  /// the sum. All ranks must do the same.
  class NoSync {
   public:
    explicit NoSync(DdpCore& core) : core_(core), before_(core.synchronize(false)) {}
    ~NoSync() { core_.synchronize(before_); }
    NoSync(const NoSync&) = delete;
    NoSync& operator=(const NoSync&) = delete;

   private:
    DdpCore& core_;
    bool before_;
  };
  [[nodiscard]] NoSync no_sync() { return NoSync(*this); }

  const ProcessGroup& group() const { return group_; }
  /// Nothing in a group of one, where there is nothing to reduce.
  const std::optional<Reducer>& reducer() const { return reducer_; }

 private:
  bool synchronize(bool on);

  ProcessGroup group_;
  std::optional<ModuleBuffers> buffers_;
  std::optional<SyncBatchNorm> sync_batch_norm_;
  std::optional<Reducer> reducer_;
};

/// `Module` is what users hold: a ModuleHolder such as Net or torch::nn::Sequential, or a shared_ptr.
template <class Module>
class DistributedDataParallel {
 public:
  /// Collective.
  DistributedDataParallel(Module module, ProcessGroup group, const DdpOptions& options = {})
      : module_(std::move(module)), core_(*module_, std::move(group), options) {}

  template <class... Arguments>
  auto forward(Arguments&&... arguments) {
    core_.before_forward();
    return module_->forward(std::forward<Arguments>(arguments)...);
  }

  [[nodiscard]] DdpCore::NoSync no_sync() { return core_.no_sync(); }
  double communication_seconds() const { return core_.communication_seconds(); }
  Module& module() { return module_; }
  Module& operator->() { return module_; }

 private:
  Module module_;
  DdpCore core_;
};

}  // namespace lockstep
