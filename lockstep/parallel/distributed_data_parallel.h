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
// Behaves like torch.nn.parallel.DistributedDataParallel: at construction rank 0's parameters and
// buffers are copied to all ranks, before each forward its buffers are, and gradients are averaged
// in buckets while backward runs (Li et al., "PyTorch Distributed", VLDB 2020).
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <torch/nn/module.h>

#include <lockstep/comm/group/process_group.h>
#include <lockstep/core/error.h>
#include <lockstep/parallel/base/wrapped_module.h>
#include <lockstep/parallel/ddp/ddp_statistics.h>
#include <lockstep/parallel/ddp/module_buffers.h>
#include <lockstep/parallel/ddp/reducer.h>
#include <lockstep/parallel/ddp/wrapped_parameters.h>
#include <lockstep/parallel/sync_batch_norm.h>

namespace lockstep {

/// All ranks must give the same.
struct DdpOptions {
  double bucket_cap_mb = 25;       ///< MiB of gradients that travel together
  double first_bucket_cap_mb = 1;  ///< MiB of the first bucket, which opens the overlap
  /// Rank 0's buffers to all before each forward, as long as no graph of an earlier forward may
  /// still need them: of several forwards before a backward only the first sends them.
  bool broadcast_buffers = true;
  bool sync_batch_norm = false;  ///< as convert_sync_batchnorm(), in a group of its own
  /// The loss of a step need not depend on all parameters, on every rank on others. One that a rank
  /// does not use counts as a gradient of zero there; one that no rank uses keeps the gradient it
  /// has, or none. Otherwise such a parameter is a ConfigError that names it.
  bool find_unused_parameters = false;
  /// Every backward has the graph of the first. Parameters may then be unused, or receive several
  /// gradients in one backward (from backwards inside of it, as checkpointing has them), without
  /// the cost of looking each time. The first backward does not overlap. A graph that changes is a
  /// ConfigError.
  bool static_graph = false;
  ParameterMemory parameter_memory = ParameterMemory::kAsIs;
  /// Names of parameters with sparse gradients besides those of torch::nn::Embedding and
  /// EmbeddingBag with sparse(true), which are found.
  std::vector<std::string> sparse_parameters = {};
};

/// The part that does not depend on the module's type. Holds the module's parameters, and refers to
/// the module, which must live as long as before_forward() is called. The destructor removes the
/// hooks and does not communicate. Not thread-safe.
class DdpCore {
 public:
  /// Collective. ConfigError, on every rank, when the ranks' models or options differ.
  DdpCore(torch::nn::Module& module, ProcessGroup group, const DdpOptions& options = {});

  /// Collective where the module has buffers. Call before each forward. ConfigError, and the end of
  /// the group, for a parameter that requires a gradient and did not, or was not there, at
  /// construction.
  void before_forward();
  /// Call it when the forward has returned. Optional: the warning about a graph that no forward of
  /// the wrapper recorded becomes exact.
  void after_forward();

  /// Reduces by `hook` instead of by the mean over the ranks. Before the first backward, once, on
  /// all ranks; sparse gradients go on as before.
  void register_comm_hook(CommHook hook);

  /// Collective. Takes part in a step of the other ranks without a forward and backward of one's
  /// own: the gradients become what they are on the others, with zeros for this rank's part.
  /// Nothing under no_sync().
  void step_without_backward();
  /// The rank whose buffers all get; 0 at first. The same on all ranks.
  void set_buffer_source(int rank) { buffer_source_ = rank; }
  /// Collective where the module has buffers and DdpOptions::broadcast_buffers is set.
  void broadcast_buffers();

  /// Seconds of communication that backward did not hide, since construction. On a device, whose
  /// time this is: of the steps before the last settle_times().
  double communication_seconds() const;
  /// Waits for the device until the times of all steps are known. Does nothing on a CPU.
  void settle_times();
  /// Seconds in which the constructor gave all ranks rank 0's parameters and buffers.
  double synchronization_seconds() const { return synchronization_seconds_; }
  /// Collective. What communication costs and who waits for whom; see ddp_statistics.h.
  DdpStatistics statistics();
  /// Collective. The last steps of all ranks as a timeline, written by rank 0.
  void write_trace(const std::filesystem::path& path);
  /// The last steps of this rank; see ddp_spans(). Without buckets where parameter_memory is
  /// kShared, since backward then reduces none.
  std::vector<Span> spans(const std::string& group_name) const;

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
  const DdpOptions& options() const { return options_; }
  const Reducer* reducer() const { return &*reducer_; }

 private:
  void require_all_wrapped();
  bool synchronize(bool on);
  bool graph_may_need_buffers() const;

  ProcessGroup group_;
  DdpOptions options_;
  double synchronization_seconds_ = 0;
  std::optional<ModuleBuffers> buffers_;
  int buffer_source_ = 0;
  std::optional<SyncBatchNorm> sync_batch_norm_;
  std::optional<WrappedParameters> wrapped_;  // always there once constructed, as the reducer
  std::optional<Reducer> reducer_;
  /// Reducer::arrivals() at the last forward that recorded a graph; nothing before the first.
  std::optional<std::int64_t> arrivals_at_forward_;
};

/// `Module` is what users hold: a ModuleHolder such as Net or torch::nn::Sequential, or a
/// shared_ptr.
template <class Module>
class DistributedDataParallel {
 public:
  /// Collective. ConfigError for a module that is null.
  DistributedDataParallel(Module module, ProcessGroup group, const DdpOptions& options = {})
      : module_(std::move(module)), core_(module_in(module_, kName), std::move(group), options) {}

  template <class... Arguments>
  auto forward(Arguments&&... arguments) {
    require_same_module(module_, wrapped_, kName);
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
  /// There is no operator->: its forward() would be the module's own, which the wrapper does not
  /// see.
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
  Module wrapped_ = module_;  // keeps alive what core_ refers to, even if module() is assigned to
  DdpCore core_;
};

}  // namespace lockstep
