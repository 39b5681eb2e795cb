// The device's part in making a batch, separate from the loader.
#pragma once

#include <lockstep/core/export.h>
#include <lockstep/data/loader/batch.h>
#include <lockstep/data/loader/loader_options.h>

namespace lockstep::detail {

/// Makes the final batches from the plans that the loader returns while its kernel is deferred
/// (LoaderBase::defer_kernel()). A caller can thus record the kernel in a CUDA graph, together with
/// its own work on the batch. Immutable; owns its inputs, such as the data set on the GPU.
class LOCKSTEP_API BatchKernel {
 public:
  virtual ~BatchKernel() = default;

  /// Makes the batch that `plan` describes, in new memory, on the current stream, without waiting.
  /// A recorded call reads `plan` anew at each replay.
  virtual Batch make(const Batch& plan) const = 0;
};

}  // namespace lockstep::detail
