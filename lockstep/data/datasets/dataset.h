// An image classification data set.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <lockstep/data/images/image.h>
#include <lockstep/data/images/image_reader.h>

namespace lockstep {

enum class Split { kTrain, kTest };

/// Where a data set's images and labels come from. Immutable: any thread may read. Indices are from
/// 0 to size() - 1 and not checked.
class ImageSource {
 public:
  virtual ~ImageSource() = default;
  virtual std::int64_t size() const = 0;
  /// Calls reader.show() with pixels that live as long as the source, or reader.open() with a file.
  virtual void read(std::int64_t index, ImageReader& reader) const = 0;
  /// 0 to the data set's num_classes() - 1.
  virtual std::int64_t label(std::int64_t index) const = 0;
  /// Whether read() opens a file. A decoder of the engine's own is used only where all images are
  /// files and say so.
  virtual bool is_file(std::int64_t index) const {
    static_cast<void>(index);
    return false;
  }
  /// A number that stands for the names of the images in their order: equal where they are equal. 0
  /// from a source whose images have no names.
  virtual std::uint64_t fingerprint() const { return 0; }
  /// Told of an image that will soon be read: a source in memory may ask the processor for it. In
  /// random order an image is in no cache.
  virtual void prefetch(std::int64_t index) const { static_cast<void>(index); }
};

/// Consecutive images of one file. Strides are in bytes, so that records that mix labels and pixels
/// need no copy. `keep_alive` owns what the pointers point into.
struct ImageShard {
  const std::uint8_t* images = nullptr;  ///< CHW
  std::int64_t image_stride = 0;
  const std::uint8_t* labels = nullptr;
  std::int64_t label_stride = 0;
  std::int64_t count = 0;
  std::shared_ptr<const void> keep_alive{};
};

/// Images with a class each.
///
/// An immutable value: copies share the source and cost a pointer; any thread may read. Indices are
/// not checked: the Loader checks what a sampler gives it once an epoch.
class ImageDataset {
 public:
  /// A data set over any source. `shape` is that of all images; with a height and width of 0 each
  /// has its own. ConfigError when the shape is empty, there are no images or classes, or the names
  /// of classes are neither none nor one for each.
  ImageDataset(std::string name, ImageShape shape, std::int64_t num_classes,
               std::shared_ptr<const ImageSource> source,
               std::vector<std::string> class_names = {});
  /// A data set over records in memory. ConfigError when the shape or a shard is empty, or there
  /// are no shards.
  ImageDataset(std::string name, ImageShape shape, std::int64_t num_classes,
               std::vector<ImageShard> shards, std::vector<std::string> class_names = {});

  const std::string& name() const { return state_->name; }  ///< In words: "MNIST train".
  const ImageShape& shape() const { return state_->shape; }
  std::int64_t num_classes() const { return state_->num_classes; }
  /// The name of each class, if the data set has names; else empty.
  const std::vector<std::string>& class_names() const { return state_->class_names; }
  std::int64_t size() const { return state_->size; }

  /// Makes image `index` the reader's. DataError, naming the file, when it cannot be read;
  /// ConfigError when the source showed no image.
  void read(std::int64_t index, ImageReader& reader) const {
    reader.clear();  // what the reader held is not this image
    state_->source->read(index, reader);
    if (!reader.has_image()) refuse_read(index);
  }
  bool is_file(std::int64_t index) const { return state_->source->is_file(index); }
  void prefetch(std::int64_t index) const { state_->source->prefetch(index); }
  /// ImageSource::fingerprint().
  std::uint64_t fingerprint() const { return state_->source->fingerprint(); }
  /// Pixels of image `index` of a data set in memory; ConfigError for one of files.
  ImageView image(std::int64_t index) const;
  /// Class of image `index`, 0 to num_classes() - 1. DataError when the source gives another
  /// number.
  std::int64_t label(std::int64_t index) const {
    const std::int64_t label = state_->source->label(index);
    if (label < 0 || label >= state_->num_classes) refuse_label(index, label);
    return label;
  }

 private:
  [[noreturn]] void refuse_read(std::int64_t index) const;
  [[noreturn]] void refuse_label(std::int64_t index, std::int64_t label) const;

  struct State {
    std::string name;
    ImageShape shape;
    std::int64_t num_classes = 0;
    std::int64_t size = 0;
    std::shared_ptr<const ImageSource> source;
    std::vector<std::string> class_names;
  };

  std::shared_ptr<const State> state_;
};

/// The images at `indices`, in that order; an index may come several times. ConfigError for an
/// index that the data set does not have, or none at all.
ImageDataset subset(const ImageDataset& dataset, std::vector<std::int64_t> indices);

/// All images of the first data set, then all of the next, and so on; the classes have the names of
/// the first. ConfigError when their shapes or numbers of classes differ, or there are none.
ImageDataset concatenate(const std::vector<ImageDataset>& datasets);

}  // namespace lockstep
