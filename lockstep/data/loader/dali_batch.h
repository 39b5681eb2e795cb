// DALI's inputs for one batch.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include <lockstep/data/augment/dali/pipeline.h>
#include <lockstep/data/augment/dali/plan.h>
#include <lockstep/data/datasets/dataset.h>

namespace lockstep::data {

/// Selects DALI's input: files, if all images of the data set are files; else pixels, in the layout
/// of the first image. In a mixed data set, this library decodes the files. Throws a DataError if
/// the first image cannot be read.
DaliPlanOptions dali_input_of(const ImageDataset& dataset);

/// The images, choices and labels of a batch, in memory that is reused from one batch to the next.
/// Pixels that already have the layout for DALI are not copied.
class DaliBatch {
 public:
  /// Reads the image of each key and makes its random choices. Throws what reading an image or
  /// DaliPlan::choose() throws.
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
  std::vector<std::byte> copies_;  // files, and pixels that had to be decoded, padded or packed
  std::vector<const void*> pointers_;
  std::vector<std::ptrdiff_t>
      offsets_;  // place of each image in copies_; -1: the image is elsewhere
  std::vector<std::int64_t> shapes_;
  DaliNumbers numbers_;
  std::vector<std::int64_t> indices_;
  std::vector<std::int64_t> labels_;
};

}  // namespace lockstep::data
