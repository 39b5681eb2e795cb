// The native CPU engine of augmentation. It executes the whole list of operators in one pass from
// bytes to normalised numbers.
//
//   const AugmentationPlan plan(operators, dataset.shape(), {.layout = Layout::kPlanar});
//   plan.apply(dataset.image(i), {.seed = 0, .epoch = 3, .sample = i}, output);
//
// Padding, cropping and flipping only determine the source of an output pixel, so they compose into
// one map per axis and cost nothing. An operator that resizes, rotates or changes colours makes an
// intermediate image, of its output's size, in thread-local memory.
#pragma once

#include <cstdint>
#include <vector>

#include <lockstep/data/augment/augment.h>
#include <lockstep/data/augment/sample_key.h>
#include <lockstep/data/augment/write_image.h>
#include <lockstep/data/images/image.h>
#include <lockstep/data/images/image_reader.h>

namespace lockstep::data {

struct AugmentationPlanOptions {
  Layout layout = Layout::kPlanar;
  PixelType type = PixelType::kFloat32;
};

/// A compiled list of operators. Immutable; apply() may run on any number of threads at once.
class AugmentationPlan {
 public:
  /// `input` is the shape of all images; a height and width of 0 mean that each image has its own
  /// size. Throws a ConfigError that names the operator if the list cannot be executed: it has no
  /// Normalize, geometry follows Normalize, a crop is larger than its input, the outputs would
  /// differ in size, a channel lacks a finite mean or a finite positive deviation, or a number is
  /// out of range.
  AugmentationPlan(const Augmentation& operators, ImageShape input,
                   const AugmentationPlanOptions& options = {});

  const ImageShape& output_shape() const { return output_; }
  Layout layout() const { return options_.layout; }
  PixelType type() const { return options_.type; }
  std::int64_t output_bytes() const { return output_.elements() * bytes_of(options_.type); }

  /// Writes output_shape().elements() numbers to `output`. Throws a ConfigError if images have
  /// their own sizes and this one is too small for a crop. Throws a DataError if the image does not
  /// have the declared shape, or an intermediate image is larger than 65,536 pixels a side or 2^28
  /// bytes.
  void apply(const ImageView& image, const SampleKey& key, void* output) const;
  /// As above, for a reader's image. Decodes only the part that the list needs, and may decode at a
  /// reduced size for a Resize (see ImageReader::reduced()). Also throws what the reader throws.
  void apply(ImageReader& image, const SampleKey& key, void* output) const;

 private:
  ImageShape input_;
  ImageShape output_;
  AugmentationPlanOptions options_;
  Augmentation operators_;
  std::vector<ChannelScale> channels_;
};

}  // namespace lockstep::data
