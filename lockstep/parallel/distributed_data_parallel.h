// DistributedDataParallel: one replica of the model on each rank, kept equal by averaging
// gradients.
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
// Behaves like torch.nn.parallel.DistributedDataParallel: rank 0's parameters and buffers are
// copied to all ranks at construction, its buffers again before each forward, and gradients are
// averaged in buckets while backward runs (Li et al., "PyTorch Distributed", VLDB 2020).
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <torch/nn/module.h>

#include <lockstep/comm/group/process_group.h>
#include <lockstep/core/error.h>
#include <lockstep/core/export.h>
#include <lockstep/parallel/base/wrapped_module.h>
#include <lockstep/parallel/ddp/bucket_memory.h>
#include <lockstep/parallel/ddp/ddp_statistics.h>
#include <lockstep/parallel/ddp/grad_bucket.h>
#include <lockstep/parallel/sync_batch_norm.h>

namespace lockstep::detail {
class Reducer;
}

namespace lockstep {

/// All ranks must give the same options.
struct LOCKSTEP_API DdpOptions {
  double bucket_cap_mb = 25;       ///< MiB of gradients at which a bucket is full
  double first_bucket_cap_mb = 1;  ///< MiB in the first bucket, so that communication starts early
  /// Copies rank 0's buffers to all ranks before each forward, unless the graph of an earlier
  /// forward may still need them: of several forwards before one backward, only the first copies
  /// them.
  bool broadcast_buffers = true;
  bool sync_batch_norm = false;  ///< like convert_sync_batchnorm(), in a separate group
  /// Allows a step's loss to be independent of some parameters, possibly different ones on each
  /// rank. A parameter that a rank does not use contributes a zero gradient there; one that no rank
  /// uses keeps its gradient, or its lack of one. Without this option, an unused parameter causes a
  /// ConfigError that names it.
  bool find_unused_parameters = false;
  /// Promises that every backward has the same graph as the first one. Parameters may then be
  /// unused, or receive several gradients in one backward (from nested backwards, as in
  /// checkpointing), without a search for them in every step. The first backward does not overlap
  /// communication. A graph that changes causes a ConfigError.
  bool static_graph = false;
  ParameterMemory parameter_memory = ParameterMemory::kAsIs;
  /// Names of parameters with sparse gradients. Those of torch::nn::Embedding and EmbeddingBag with
  /// sparse(true) are found automatically and need not be listed.
  std::vector<std::string> sparse_parameters = {};
};

/// The part of DistributedDataParallel that does not depend on the module's type. Holds the
/// module's parameters, and a reference to the module, which must outlive the last call of
/// before_forward(). The destructor removes the hooks and does not communicate. Not thread-safe.
class LOCKSTEP_API DdpCore {
 public:
  /// Collective. Throws ConfigError, on every rank, if the ranks' models or options differ.
  DdpCore(torch::nn::Module& module, ProcessGroup group, const DdpOptions& options = {});
  ~DdpCore();
  DdpCore(DdpCore&&) noexcept;
  DdpCore& operator=(DdpCore&&) noexcept;

  /// Collective if the module has buffers. Call it before each forward. Throws ConfigError and
  /// aborts the group for a parameter that requires a gradient now but did not require one, or did
  /// not exist, at construction.
  void before_forward();
  /// Call it after the forward has returned. Optional: without it, the warning about a graph that
  /// no forward of the wrapper recorded may be missing.
  void after_forward();

  /// Reduces gradients with `hook` instead of averaging them over the ranks. Call it once, on all
  /// ranks, before the first backward. Sparse gradients are still averaged.
  void register_comm_hook(CommHook hook);

  /// Collective. Takes part in a step of the other ranks without a forward and backward on this
  /// rank: the gradients become those of the other ranks, to which this rank contributes zeros.
  /// No-op under no_sync().
  void step_without_backward();
  /// Sets the rank whose buffers are copied to all ranks (initially 0). All ranks must set the same
  /// one.
  void set_buffer_source(int rank) { buffer_source_ = rank; }
  /// Collective if the module has buffers and DdpOptions::broadcast_buffers is set.
  void broadcast_buffers();

  /// Seconds of communication since construction that backward did not hide. On a device this is
  /// device time, and covers only the steps before the last settle_times().
  double communication_seconds() const;
  /// Waits for the device until the times of all steps are known. No-op on a CPU.
  void settle_times();
  /// Seconds that the constructor spent copying rank 0's parameters and buffers to all ranks.
  double synchronization_seconds() const { return synchronization_seconds_; }
  /// Collective. The cost of communication, and which ranks wait for which; see ddp_statistics.h.
  DdpStatistics statistics();
  /// Collective. Writes the last steps of all ranks as a timeline, on rank 0.
  void write_trace(const std::filesystem::path& path);
  /// The last steps of this rank; see ddp_spans(). Has no buckets if parameter_memory is kShared,
  /// because backward then reduces no buckets.
  std::vector<Span> spans(const std::string& group_name) const;

  /// While the returned guard lives, backward only accumulates gradients; the first backward after
  /// it reduces the sum. All ranks must do the same.
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
  const DdpOptions& options() const { return options_; }
  const detail::Reducer* reducer() const;

 private:
  void require_all_wrapped();
  bool synchronize(bool on);
  bool graph_may_need_buffers() const;

  ProcessGroup group_;
  DdpOptions options_;
  double synchronization_seconds_ = 0;
  int buffer_source_ = 0;
  struct Parts;
  std::unique_ptr<Parts> parts_;
};

/// `Module` is a ModuleHolder such as Net or torch::nn::Sequential, or a shared_ptr to a module.
template <class Module>
class DistributedDataParallel {
 public:
  /// Collective. Throws ConfigError if the module is null.
  DistributedDataParallel(Module module, ProcessGroup group, const DdpOptions& options = {})
      : module_(std::move(module)),
        core_(detail::module_in(module_, kName), std::move(group), options) {}

  /// Returns what the module's forward() returns. Exceptions of the module pass through unchanged.
  template <class... Arguments>
  auto forward(Arguments&&... arguments) {
    detail::require_same_module(module_, wrapped_, kName);
    core_.before_forward();
    const AfterForward after(core_);
    return module_->forward(std::forward<Arguments>(arguments)...);
  }

  template <class... Arguments>
  auto operator()(Arguments&&... arguments) {
    return forward(std::forward<Arguments>(arguments)...);
  }

  [[nodiscard]] DdpCore::NoSync no_sync() { return core_.no_sync(); }
  void register_comm_hook(CommHook hook) { core_.register_comm_hook(std::move(hook)); }
  double communication_seconds() const { return core_.communication_seconds(); }
  DdpStatistics statistics() { return core_.statistics(); }
  void write_trace(const std::filesystem::path& path) { core_.write_trace(path); }
  /// There is no operator->: it would call the module's own forward(), bypassing the wrapper.
  Module& module() { return module_; }
  DdpCore& core() { return core_; }

 private:
  static constexpr const char* kName = "DistributedDataParallel";

  struct AfterForward {
    explicit AfterForward(DdpCore& wrapper) : core(wrapper) {}
    ~AfterForward() { core.after_forward(); }
    AfterForward(const AfterForward&) = delete;
    AfterForward& operator=(const AfterForward&) = delete;
    DdpCore& core;
  };

  Module module_;
  Module wrapped_ = module_;  // keeps what core_ refers to alive, even if module() is reassigned
  DdpCore core_;
};

}  // namespace lockstep
