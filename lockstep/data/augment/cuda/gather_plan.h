// Compiles a list of operators to the maps that the cuda engine's kernel follows.
#pragma once

#include <vector>

#include <lockstep/data/augment/augment.h>
#include <lockstep/data/augment/cuda/gather.h>
#include <lockstep/data/augment/native.h>
#include <lockstep/data/images/image.h>

namespace lockstep::data {

/// A compiled list. Immutable and thread-safe.
class GatherPlan {
 public:
  /// Throws a ConfigError as AugmentationPlan does. Also throws one that names an operator if that
  /// operator needs more than one pixel of the source (Resize, colours, rotation), moves an erased
  /// area, pads with a second value, or erases one area more than kMostErasures.
  GatherPlan(const Augmentation& operators, const ImageShape& input, bool channels_last);

  /// Makes the same random choices as the native engine.
  GatherImage image(std::int64_t index, const SampleKey& key) const;

  const GatherShape& shape() const { return shape_; }
  ImageShape output_shape() const { return {shape_.channels, shape_.height, shape_.width}; }

 private:
  Augmentation operators_;
  GatherShape shape_{};
};

}  // namespace lockstep::data
