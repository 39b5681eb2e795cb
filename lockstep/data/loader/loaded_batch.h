// A batch on its way from an engine to the program, in a form that does not depend on its type.
#pragma once

#include <any>
#include <cstddef>
#include <utility>
#include <vector>

#include <torch/types.h>

#include <lockstep/core/export.h>
#include <lockstep/data/datasets/batch_structure.h>
#include <lockstep/data/images/corrupt_image.h>

namespace lockstep {

/// A batch split into its tensors and the rest, so that engines and devices need not know its type.
struct LOCKSTEP_API LoadedBatch {
  std::vector<torch::Tensor> tensors{};  ///< In the order of for_each_tensor().
  std::any frame{};                      ///< The batch without its tensors.
  std::vector<CorruptImage> skipped{};   ///< Images left out, see OnCorruptImage::kSkip.

  /// Splits `batch`: moves its tensors to `tensors` and the rest to `frame`.
  template <BatchOfTensors B>
  void store(B batch) {
    tensors.clear();
    for_each_tensor(batch, [&](torch::Tensor& tensor) {
      tensors.push_back(std::exchange(tensor, torch::Tensor()));
    });
    if (B* const place = std::any_cast<B>(&frame)) {
      *place = std::move(batch);
    } else {
      frame = std::move(batch);
    }
  }

  /// Reassembles the batch, or returns a default-constructed one if nothing was stored. Throws
  /// std::bad_any_cast if the stored batch has another type.
  template <BatchOfTensors B>
  B batch() const {
    if (!frame.has_value()) return B{};
    B batch = std::any_cast<const B&>(frame);
    std::size_t next = 0;
    for_each_tensor(batch, [&](torch::Tensor& tensor) { tensor = tensors.at(next++); });
    return batch;
  }
};

}  // namespace lockstep
