// Reducer: averages gradients over the ranks while backward still runs.
//
// Every parameter's gradient is a view into a bucket, a flat tensor that the process group allocated,
// so that the reduction reads and writes the gradients where they are. A hook tells when a gradient
// has been accumulated; when the last one of a bucket has, its all-reduce starts. Buckets start in the
// same order on all ranks, whatever the order in which they fill. At the end of backward the reducer
// waits for all of them: when loss.backward() returns, the gradients are averaged.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include <torch/torch.h>

#include <lockstep/comm/process_group.h>
#include <lockstep/parallel/bucket_assignment.h>

namespace lockstep {

struct NamedParameter {
  std::string name;
  torch::Tensor tensor;
};

struct ReducerStatistics {
  double exposed_seconds = 0;  ///< spent waiting at the end of backward, not hidden behind it
  std::int64_t reductions = 0;
};

/// Owns the hooks that it puts on the parameters and removes them when it goes; gradients stay valid.
/// Not thread-safe: one backward at a time. Errors leave backward() as exceptions: CommError from the
/// group; ConfigError when parameters received no gradient, which names them (and ends the group, so
/// that no other rank waits for them).
class Reducer {
 public:
  /// Collective. `parameters` are those that require gradients, in the order of registration, which
  /// must be the same on all ranks.
  Reducer(std::vector<NamedParameter> parameters, ProcessGroup group, const BucketCaps& caps);
  ~Reducer();
  Reducer(Reducer&&) noexcept;
  Reducer& operator=(Reducer&&) noexcept;

  /// While false, backward accumulates into the buckets and does not communicate.
  void set_synchronize(bool synchronize);
  bool synchronizes() const;

  /// Throws CommError if an earlier backward ended with an exception half-way: its reductions no
  /// longer match those of the other ranks.
  void require_idle() const;

  /// The flat gradient of each bucket, in the order of reduction.
  std::vector<torch::Tensor> buckets() const;
  const ReducerStatistics& statistics() const;

 private:
  class State;
  std::shared_ptr<State> state_;
};

}  // namespace lockstep
