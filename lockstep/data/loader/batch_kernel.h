// The part of a loader's work that a device does for a batch, apart from the loader.
#pragma once

#include <lockstep/data/loader/batch.h>
#include <lockstep/data/loader/loader_options.h>

namespace lockstep {

/// Makes batches of what a loader gives in their place while its kernel is deferred
/// (LoaderBase::defer_kernel()). A caller can so record the kernel in a CUDA graph, together with
/// what it does with the batch. Immutable; holds what it reads, such as the data set on the GPU.
class BatchKernel {
 public:
  virtual ~BatchKernel() = default;

  /// The batch that `plan` describes, in memory of its own, queued on the current stream. Nobody
  /// waits. A recorded call reads `plan` anew at each replay.
  virtual Batch make(const Batch& plan) const = 0;
};

}  // namespace lockstep
