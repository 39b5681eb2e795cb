// An image classification data set in memory.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace lockstep {

enum class Split { kTrain, kTest };

struct ImageShape {
  std::int64_t channels = 0;
  std::int64_t height = 0;
  std::int64_t width = 0;

  std::int64_t elements() const { return channels * height * width; }
  bool operator==(const ImageShape&) const = default;
};

/// Consecutive images of one file. Strides are in bytes, so that records that mix labels and pixels
/// need no copy. `keep_alive` owns what the pointers point into.
struct ImageShard {
  const std::uint8_t* images = nullptr;
  std::int64_t image_stride = 0;
  const std::uint8_t* labels = nullptr;
  std::int64_t label_stride = 0;
  std::int64_t count = 0;
  std::shared_ptr<const void> keep_alive;
};

/// Images of equal shape with a class each, from one or several shards.
///
/// An immutable value: copies share the bytes and cost a pointer; any thread may read. Indices are
/// not checked: the Loader checks what a sampler gives it once an epoch.
class ImageDataset {
 public:
  /// ConfigError when the shape or a shard is empty, or there are no shards.
  ImageDataset(std::string name, ImageShape shape, std::int64_t num_classes,
               std::vector<ImageShard> shards);

  const std::string& name() const { return state_->name; }  ///< In words: "MNIST train".
  const ImageShape& shape() const { return state_->shape; }
  std::int64_t num_classes() const { return state_->num_classes; }
  std::int64_t size() const { return state_->size; }

  /// Pixels of image `index`, channel by channel, row by row (CHW), 0 to 255.
  const std::uint8_t* image(std::int64_t index) const {
    const ImageShard& shard = find(index);
    return shard.images + index * shard.image_stride;
  }
  /// Class of image `index`, 0 to num_classes() - 1.
  std::int64_t label(std::int64_t index) const {
    const ImageShard& shard = find(index);
    return shard.labels[index * shard.label_stride];
  }

 private:
  struct State {
    std::string name;
    ImageShape shape;
    std::int64_t num_classes = 0;
    std::int64_t size = 0;
    std::vector<ImageShard> shards;
  };

  // The shard that holds `index`, which becomes relative to it.
  const ImageShard& find(std::int64_t& index) const {
    const ImageShard* shard = state_->shards.data();
    while (index >= shard->count) index -= (shard++)->count;
    return *shard;
  }

  std::shared_ptr<const State> state_;
};

}  // namespace lockstep
