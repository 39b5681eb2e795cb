// An image classification data set.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <lockstep/core/export.h>
#include <lockstep/data/images/image.h>
#include <lockstep/data/images/image_reader.h>

namespace lockstep {

enum class Split { kTrain, kTest };

/// Where an image is kept.
struct LOCKSTEP_API ImageOrigin {
  std::string file{};      ///< the file that holds many images; empty for all other images
  std::int64_t index = 0;  ///< among the images of the file, or of the data set that was opened
};

/// The images and labels behind a data set. Immutable and thread-safe. Indices run from 0 to
/// size() - 1; they are not checked.
class LOCKSTEP_API ImageSource {
 public:
  virtual ~ImageSource() = default;
  virtual std::int64_t size() const = 0;
  /// Calls reader.show() with pixels that live as long as the source, or reader.open() with a file.
  virtual void read(std::int64_t index, ImageReader& reader) const = 0;
  /// The class of an image, 0 to the data set's num_classes() - 1.
  virtual std::int64_t label(std::int64_t index) const = 0;
  /// Whether read() opens a file. An engine's own decoder is used only if this is true for all
  /// images.
  virtual bool is_file(std::int64_t index) const {
    static_cast<void>(index);
    return false;
  }
  /// Where the image is kept, whichever part of a data set this source is.
  virtual ImageOrigin origin(std::int64_t index) const { return {.index = index}; }
  /// A hash that identifies the images and their order, by their names or their contents; 0 for a
  /// source that knows neither.
  virtual std::uint64_t fingerprint() const { return 0; }
  /// Announces that an image will soon be read. A source in memory may prefetch it into the
  /// processor's cache, where an image read in random order would not be.
  virtual void prefetch(std::int64_t index) const { static_cast<void>(index); }
};

/// Consecutive images of one file. Strides are in bytes, so that records that mix labels and pixels
/// need no copy. `keep_alive` owns the memory behind the pointers.
struct LOCKSTEP_API ImageShard {
  const std::uint8_t* images = nullptr;  ///< CHW
  std::int64_t image_stride = 0;
  const std::uint8_t* labels = nullptr;
  std::int64_t label_stride = 0;
  std::int64_t count = 0;
  std::shared_ptr<const void> keep_alive{};
};

/// Images with one class each.
///
/// An immutable value: copies share the source and cost one pointer. Thread-safe. Indices are not
/// checked here: the Loader checks a sampler's indices once per epoch.
class LOCKSTEP_API ImageDataset {
 public:
  /// A data set without images.
  ImageDataset();
  /// A data set over any source. `shape` is the shape of all images; a height and width of 0 mean
  /// that each image has its own size. Throws a ConfigError if the shape is empty, there are no
  /// images or classes, or the number of class names is neither 0 nor num_classes.
  ImageDataset(std::string name, ImageShape shape, std::int64_t num_classes,
               std::shared_ptr<const ImageSource> source,
               std::vector<std::string> class_names = {});
  /// A data set over records in memory. Throws a ConfigError as above, and also if the shape has no
  /// height or width, there are no shards, or a shard is empty or has a null pointer.
  ImageDataset(std::string name, ImageShape shape, std::int64_t num_classes,
               std::vector<ImageShard> shards, std::vector<std::string> class_names = {});

  const std::string& name() const { return state_->name; }  ///< A description: "MNIST train".
  const ImageShape& shape() const { return state_->shape; }
  std::int64_t num_classes() const { return state_->num_classes; }
  /// The name of each class; empty if the data set has no names.
  const std::vector<std::string>& class_names() const { return state_->class_names; }
  std::int64_t size() const { return state_->size; }

  /// Loads image `index` into the reader. Throws a DataError that names the file if it cannot be
  /// read, and a ConfigError if the source provided no image.
  void read(std::int64_t index, ImageReader& reader) const {
    reader.clear();  // forget the previous image
    state_->source->read(index, reader);
    if (!reader.has_image()) refuse_read(index);
  }
  bool is_file(std::int64_t index) const { return state_->source->is_file(index); }
  void prefetch(std::int64_t index) const { state_->source->prefetch(index); }
  /// ImageSource::origin().
  ImageOrigin origin(std::int64_t index) const { return state_->source->origin(index); }
  /// ImageSource::fingerprint().
  std::uint64_t fingerprint() const { return state_->source->fingerprint(); }
  /// The pixels of image `index` of a data set in memory. Throws a ConfigError for a data set of
  /// files.
  ImageView image(std::int64_t index) const;
  /// The class of image `index`, 0 to num_classes() - 1. Throws a DataError if the source returns
  /// another number.
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

/// The images at `indices`, in that order; an index may occur several times. Throws a ConfigError
/// if an index is out of range or `indices` is empty.
LOCKSTEP_API ImageDataset subset(const ImageDataset& dataset, std::vector<std::int64_t> indices);

/// All images of the first data set, then all of the next, and so on. The names of the classes are
/// those of the first. If the data sets have images of different sizes, each image has its own.
/// Throws a ConfigError if their numbers of channels or of classes differ, or `datasets` is empty.
LOCKSTEP_API ImageDataset concatenate(const std::vector<ImageDataset>& datasets);

}  // namespace lockstep
