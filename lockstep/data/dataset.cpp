#include <lockstep/data/dataset.h>

#include <utility>

#include <lockstep/core/error.h>

namespace lockstep {

ImageDataset::ImageDataset(std::string name, ImageShape shape, std::int64_t num_classes,
                           std::vector<ImageShard> shards) {
  if (shape.channels <= 0 || shape.height <= 0 || shape.width <= 0 || shards.empty()) {
    throw ConfigError(str("data set ", name, ": got images of ", shape.channels, "x", shape.height,
                          "x", shape.width, " in ", shards.size(),
                          " shards, expected at least one pixel and shard"));
  }
  std::int64_t size = 0;
  for (const ImageShard& shard : shards) {
    if (shard.count <= 0 || shard.images == nullptr || shard.labels == nullptr) {
      throw ConfigError(
          str("data set ", name, ": a shard has ", shard.count, " images, expected at least 1"));
    }
    size += shard.count;
  }
  state_ = std::make_shared<const State>(
      State{std::move(name), shape, num_classes, size, std::move(shards)});
}

}  // namespace lockstep
