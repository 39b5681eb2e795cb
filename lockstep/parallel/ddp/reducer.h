// Reducer: averages gradients over the ranks while backward still runs.
//
// Every parameter's gradient is a view into a bucket, a flat tensor allocated by the process group,
// so that the reduction reads and writes the gradients in place. A hook reports when a gradient has
// been accumulated; after the last gradient of a bucket, the bucket's all-reduce starts. Buckets
// start in the same order on all ranks, regardless of the order in which they fill. At the end of
// backward the reducer waits for all of them: when loss.backward() returns, the gradients are
// averaged.
//
// The first backward shows the order in which gradients arrive; at its end the buckets are rebuilt
// in the order that rank 0 saw.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include <torch/types.h>

#include <lockstep/comm/group/process_group.h>
#include <lockstep/parallel/ddp/bucket_assignment.h>
#include <lockstep/parallel/ddp/bucket_memory.h>
#include <lockstep/parallel/ddp/grad_bucket.h>
#include <lockstep/parallel/ddp/step_recorder.h>

namespace lockstep::detail {

struct ReducerOptions {
  BucketCaps caps{};
  bool find_unused_parameters = false;
  bool static_graph = false;
  ParameterMemory parameter_memory = ParameterMemory::kAsIs;
};

/// Owns its hooks on the parameters, which the destructor removes; gradients stay valid. Not
/// thread-safe: one backward at a time. Errors leave backward() as exceptions and abort the group,
/// so that no other rank waits: CommError from the group, ConfigError for misuse (see the options
/// of DistributedDataParallel), and exceptions of a communication hook.
class Reducer {
 public:
  /// Collective. `parameters` are those that require gradients, in the order of registration, which
  /// must be the same on all ranks; `sparse[i]` says whether parameter i has sparse gradients.
  Reducer(std::vector<NamedParameter> parameters, const std::vector<bool>& sparse,
          ProcessGroup group, const ReducerOptions& options);
  ~Reducer();
  Reducer(Reducer&&) noexcept;
  Reducer& operator=(Reducer&&) noexcept;

  /// Replaces averaging with `hook`. Call it on all ranks. Throws ConfigError if gradients have
  /// been reduced or there is a hook already.
  void register_comm_hook(CommHook hook);

  /// Call it before the module's forward.
  void expect_backward();
  /// Call it after the module's forward. Optional: without it, the reducer may fail to warn about a
  /// graph that no forward of the wrapper recorded.
  void forward_ended();

  /// While false, backward accumulates into the buckets and does not communicate.
  void set_synchronize(bool synchronize);
  bool synchronizes() const;

  /// Throws CommError if an earlier backward ended midway with an exception, because its reductions
  /// no longer match those of the other ranks. Throws ConfigError if another reducer took over the
  /// parameters.
  void require_idle() const;

  /// Collective. Takes part in the others' backward with zero gradients (or with those accumulated
  /// without communication), and gets the same result.
  void reduce_without_backward();

  /// The buckets in the order of reduction; a sparse gradient's bucket has no buffer. The reference
  /// stays valid, but a rebuild changes the buckets.
  const std::vector<GradBucket>& grad_buckets() const;
  const StepRecorder& times() const;
  /// Waits for the device, after which times() are known; see StepRecorder::settle().
  void settle_times() const;
  /// The number of gradients that have arrived, with and without communication.
  std::int64_t arrivals() const;

 private:
  class State;
  std::shared_ptr<State> state_;
};

/// Throws ConfigError if a parameter has a post-accumulate-grad hook that is not a reducer's: a
/// tensor can have only one.
void refuse_other_hooks(const std::vector<NamedParameter>& parameters);

}  // namespace lockstep::detail
