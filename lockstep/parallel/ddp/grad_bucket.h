// A bucket of gradients on its way to the other ranks, and the hook that sends it.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include <torch/types.h>

#include <lockstep/comm/call/work.h>

namespace lockstep {

/// What DistributedDataParallel reduces at once. Tensors share memory with what they describe.
struct GradBucket {
  std::size_t index = 0;  ///< in the order of reduction, the same on all ranks
  bool is_last = false;
  /// Counts the rebuilds of the buckets. What a hook remembers of bucket `index` is void when it
  /// changes.
  std::uint64_t layout = 0;
  /// All gradients of the bucket, flat, in memory of the group's allocate(). Between gradients, and
  /// at the end, lie zeros: each gradient begins at 64 bytes, and the number of elements is a
  /// multiple of the group's size.
  torch::Tensor buffer{};
  /// Views of `buffer` in the parameters' shapes and strides, in the order in which they lie there.
  std::vector<torch::Tensor> gradients{};
  std::vector<torch::Tensor> parameters{};
  /// The parameters in the same layout as `buffer`, and the memory they live in; undefined where
  /// DdpOptions::parameter_memory leaves them where they were.
  torch::Tensor flat_parameters{};
};

/// Starts the communication of a bucket whose gradients are all there, and returns its handle. When
/// the handle's wait() returns, `buffer` must hold the result: for a plain hook the mean over the
/// ranks. Called within backward, in the order of the indices on every rank, and only for dense
/// gradients. What needs several operations after each other returns a PhasedWork. A hook that
/// throws ends the backward, and the group, with its error.
using CommHook = std::function<std::shared_ptr<Work>(GradBucket& bucket)>;

}  // namespace lockstep
