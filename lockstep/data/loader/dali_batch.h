// What DALI is fed for one batch.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include <lockstep/data/augment/dali/pipeline.h>
#include <lockstep/data/augment/dali/plan.h>
#include <lockstep/data/datasets/dataset.h>

namespace lockstep {

/// What DALI is fed: files, where all of the data set's images are; else pixels, in the order that
/// its first image has them. Files among pixels are decoded by us. DataError when that image cannot
/// be read.
DaliPlanOptions dali_input_of(const ImageDataset& dataset);

/// The images, choices and labels of a batch, in memory that is reused from one to the next. Pixels
/// that lie in memory as DALI wants them are not copied.
class DaliBatch {
 public:
  /// The image of each key, with the choices that follow from it. Throws what reading an image
  /// throws.
  void fill(const ImageDataset& dataset, std::span<const SampleKey> keys, const DaliPlan& plan,
            const DaliPlanOptions& options);

  /// Valid until the next fill().
  DaliImages images() const { return {pointers_, shapes_}; }
  const DaliNumbers& numbers() const { return numbers_; }
  std::span<const std::int64_t> indices() const { return indices_; }
  const std::vector<std::int64_t>& labels() const { return labels_; }

 private:
  void add_file(const ImageReader& reader);
  void add_pixels(ImageReader& reader, Layout layout, const Pad& border);

  ImageReader reader_;
  std::vector<std::byte> copies_;  // of files, and of pixels that are padded or not dense
  std::vector<const void*> pointers_;
  std::vector<std::ptrdiff_t> offsets_;  // of each image in copies_; -1: it lies elsewhere
  std::vector<std::int64_t> shapes_;
  DaliNumbers numbers_;
  std::vector<std::int64_t> indices_;
  std::vector<std::int64_t> labels_;
};

}  // namespace lockstep
