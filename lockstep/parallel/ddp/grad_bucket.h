// A bucket of gradients to be reduced, and the hook that reduces it.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include <torch/types.h>

#include <lockstep/comm/call/work.h>
#include <lockstep/core/export.h>

namespace lockstep {

/// The gradients that DistributedDataParallel reduces in one operation. All tensors share memory
/// with the gradients and parameters they describe.
struct LOCKSTEP_API GradBucket {
  std::size_t index = 0;  ///< in the order of reduction, the same on all ranks
  bool is_last = false;
  /// The number of rebuilds of the buckets. When it changes, a hook must drop its state for bucket
  /// `index`.
  std::uint64_t layout = 0;
  /// All gradients of the bucket, flat, in memory from the group's allocate(). Each gradient begins
  /// at a multiple of 64 bytes, and the number of elements is a multiple of the group's size; the
  /// padding between gradients and at the end is zero.
  torch::Tensor buffer{};
  /// Views of `buffer` with the parameters' shapes and strides, in the order of their offsets.
  std::vector<torch::Tensor> gradients{};
  std::vector<torch::Tensor> parameters{};
  /// The parameters' memory, in the same layout as `buffer`; undefined if
  /// DdpOptions::parameter_memory does not move them.
  torch::Tensor flat_parameters{};
};

/// Starts the communication of a bucket whose gradients are complete, and returns its handle. When
/// the handle's wait() returns, `buffer` must hold the result: usually the mean over the ranks.
/// Called within backward, in the order of the indices on every rank, and only for dense gradients.
/// A hook that needs several dependent operations returns a PhasedWork. If a hook throws, the
/// backward ends, the group is aborted, and the exception propagates to the caller of backward().
using CommHook = std::function<std::shared_ptr<Work>(GradBucket& bucket)>;

}  // namespace lockstep
