// The type of a batch's images.
#pragma once

#include <torch/types.h>

#include <lockstep/data/loader/loader_options.h>
#include <lockstep/train/optimization/precision.h>

namespace lockstep::cli {

/// The type to which autocast of `precision` would round the images anyway, as far as `loader` can
/// write it.
inline torch::ScalarType image_type(Precision precision, LoaderEngineKind loader) {
  switch (precision) {
    case Precision::kBf16:  // not supported by DALI
      return loader == LoaderEngineKind::kDali ? torch::kFloat32 : torch::kBFloat16;
    case Precision::kFp16:
      return torch::kFloat16;
    case Precision::k32:
      break;
  }
  return torch::kFloat32;
}

}  // namespace lockstep::cli
