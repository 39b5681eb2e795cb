// The native CPU engine of augmentation: the whole list in one pass from bytes to normalised
// floats.
//
//   const AugmentationPlan plan(operators, dataset.shape(), Layout::kPlanar);
//   plan.apply(dataset.image(i), {.seed = 0, .epoch = 3, .sample = i}, output);
//
// Padding, cropping and flipping only say where an output pixel comes from, so they compose into
// one map per axis and cost nothing of their own; no intermediate image exists.
#pragma once

#include <cstdint>
#include <vector>

#include <lockstep/data/augment.h>
#include <lockstep/data/dataset.h>

namespace lockstep {

/// Order of an output image in memory: CHW, or HWC (channels last).
enum class Layout { kPlanar, kChannelsLast };

/// Which image of which pass: all that random choices depend on, beside the list itself.
struct SampleKey {
  std::uint64_t seed = 0;
  std::uint32_t epoch = 0;
  std::uint64_t sample = 0;
};

/// A compiled list of operators. Immutable; apply() may run on any number of threads at once.
class AugmentationPlan {
 public:
  /// ConfigError, naming the operator, when the list cannot be executed: it does not end with its
  /// only Normalize, a crop is larger than what it crops, a mean or deviation is missing for a
  /// channel or not finite and positive, or a number is out of range.
  AugmentationPlan(const Augmentation& operators, ImageShape input, Layout layout);

  const ImageShape& output_shape() const { return output_; }
  Layout layout() const { return layout_; }

  /// Reads input-shape bytes in CHW at `image`, writes output_shape().elements() floats to
  /// `output`.
  void apply(const std::uint8_t* image, const SampleKey& key, float* output) const;

 private:
  struct Axes;  // where the output's rows and columns come from
  struct Channel {
    float scale;
    float bias;
  };

  void validate(const Augmentation& operators);
  Axes choose(const SampleKey& key) const;
  void write_planar(const std::uint8_t* image, const Axes& axes, float* output) const;
  void write_channels_last(const std::uint8_t* image, const Axes& axes, float* output) const;

  ImageShape input_;
  ImageShape output_;
  Layout layout_;
  Augmentation geometry_;  // the list without Normalize
  std::vector<Channel> channels_;
};

}  // namespace lockstep
