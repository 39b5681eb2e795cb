// What a transport must do for a process group. One folder under backends/ implements it for each.
#pragma once

#include <chrono>
#include <memory>
#include <string>

#include <torch/torch.h>

#include <lockstep/comm/reduce_op.h>
#include <lockstep/comm/work.h>

namespace lockstep {

/// Collectives must be called by all ranks in the same order. Tensors are dense; contiguity is the
/// backend's concern. Safe to call from several threads of a rank, one call at a time in an order
/// that all ranks share.
class Backend {
 public:
  virtual ~Backend() = default;

  virtual const std::string& name() const = 0;
  virtual std::shared_ptr<Work> all_reduce(torch::Tensor tensor, ReduceOp op) = 0;
  virtual std::shared_ptr<Work> broadcast(torch::Tensor tensor, int root) = 0;
  virtual std::shared_ptr<Work> barrier() = 0;

  /// Collective. Zeroed memory in which this backend reduces without copies; plain memory where it
  /// has no such thing.
  virtual torch::Tensor allocate(at::IntArrayRef shape, torch::ScalarType dtype) = 0;

  /// Ends the group for all ranks: theirs and our waits throw CommError with `reason`. The first
  /// reason wins.
  virtual void abort(const std::string& reason) = 0;

  /// Throws CommError when the group has been aborted or a peer is known to be dead. Does not block.
  virtual void check() = 0;
};

/// ConfigError unless `op` is defined for the tensor's type: integers have no average.
void check_average(const torch::Tensor& tensor, ReduceOp op);

}  // namespace lockstep
