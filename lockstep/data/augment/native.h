// The native CPU engine of augmentation: the whole list in one pass from bytes to normalised
// numbers.
//
//   const AugmentationPlan plan(operators, dataset.shape(), {.layout = Layout::kPlanar});
//   plan.apply(dataset.image(i), {.seed = 0, .epoch = 3, .sample = i}, output);
//
// Padding, cropping and flipping only say where an output pixel comes from, so they compose into
// one map per axis and cost nothing of their own: without Resize no intermediate image exists.
// Resize makes one, of its output's size, in memory of the thread.
#pragma once

#include <cstdint>
#include <vector>

#include <lockstep/data/augment/augment.h>
#include <lockstep/data/augment/sample_key.h>
#include <lockstep/data/augment/write_image.h>
#include <lockstep/data/images/image.h>
#include <lockstep/data/images/image_reader.h>

namespace lockstep {

struct AugmentationPlanOptions {
  Layout layout = Layout::kPlanar;
  PixelType type = PixelType::kFloat32;
};

/// A compiled list of operators. Immutable; apply() may run on any number of threads at once.
class AugmentationPlan {
 public:
  /// `input` is the shape of all images; a height and width of 0: each image has its own.
  /// ConfigError, naming the operator, when the list cannot be executed: it has no Normalize or
  /// geometry follows it, a crop is larger than what it crops, the output would not have one size,
  /// a mean or deviation is missing for a channel or not finite and positive, or a number is out of
  /// range.
  AugmentationPlan(const Augmentation& operators, ImageShape input,
                   const AugmentationPlanOptions& options = {});

  const ImageShape& output_shape() const { return output_; }
  Layout layout() const { return options_.layout; }
  PixelType type() const { return options_.type; }
  std::int64_t output_bytes() const { return output_.elements() * bytes_of(options_.type); }

  /// Writes output_shape().elements() numbers to `output`. ConfigError when an image of its own
  /// size is too small for a crop. DataError when the image has not the shape that was declared, or
  /// the list makes it larger than 65,536 pixels a side or 2^28 bytes on the way.
  void apply(const ImageView& image, const SampleKey& key, void* output) const;
  /// As above, for a reader's image, of which only the part that the list needs is decoded, for a
  /// Resize perhaps at a reduced size (see ImageReader::reduced()). Throws what the reader throws.
  void apply(ImageReader& image, const SampleKey& key, void* output) const;

 private:
  ImageShape input_;
  ImageShape output_;
  AugmentationPlanOptions options_;
  Augmentation operators_;
  std::vector<ChannelScale> channels_;
};

}  // namespace lockstep
