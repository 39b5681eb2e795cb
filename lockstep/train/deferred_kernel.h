// Runs a loader's kernel in the caller's step. Internal to lockstep/train.
#pragma once

#include <exception>
#include <memory>

#include <lockstep/core/error.h>
#include <lockstep/core/log.h>
#include <lockstep/data/loader/batch.h>
#include <lockstep/data/loader/batch_kernel.h>
#include <lockstep/data/loader/loaded_batch.h>
#include <lockstep/data/loader/loader_base.h>

namespace lockstep::train {

/// While it lives, the loader's kernel (if any) is deferred, and made() produces the batches.
class DeferredKernel {
 public:
  explicit DeferredKernel(detail::LoaderBase& loader)
      : loader_(loader), kernel_(loader.defer_kernel(true)) {}
  /// If the device has failed, the loader cannot continue either; the run reports why.
  ~DeferredKernel() {
    try {
      if (kernel_) loader_.defer_kernel(false);
    } catch (const std::exception& error) {
      log_debug("the loader does not make batches again: ", first_line(error));
    }
  }
  DeferredKernel(const DeferredKernel&) = delete;
  DeferredKernel& operator=(const DeferredKernel&) = delete;

  /// The batch produced from the loader's output; `batch` itself if the loader has no kernel. Only
  /// loaders of images have one.
  LoadedBatch made(const LoadedBatch& batch) const {
    if (!kernel_) return batch;
    LoadedBatch made;
    made.store(kernel_->make(batch.batch<Batch>()));
    return made;
  }

 private:
  detail::LoaderBase& loader_;
  const std::shared_ptr<const detail::BatchKernel> kernel_;
};

}  // namespace lockstep::train
