#include <lockstep/data/datasets/dataset.h>

#include <algorithm>
#include <utility>

#include <lockstep/core/error.h>

namespace lockstep {
namespace {

// Finds which of consecutive parts holds an index, and makes the index relative to it.
template <class Part>
const Part& find_part(const std::vector<Part>& parts, std::int64_t& index) {
  const Part* part = parts.data();
  while (index >= part->count) index -= (part++)->count;
  return *part;
}

class ShardSource final : public ImageSource {
 public:
  ShardSource(const ImageShape& shape, std::vector<ImageShard> shards)
      : shape_(shape), shards_(std::move(shards)) {
    for (const ImageShard& shard : shards_) size_ += shard.count;
  }
  std::int64_t size() const override { return size_; }
  void read(std::int64_t index, ImageReader& reader) const override {
    const ImageShard& shard = find_part(shards_, index);
    reader.show(ImageView::planar(shard.images + index * shard.image_stride, shape_));
  }
  std::int64_t label(std::int64_t index) const override {
    const ImageShard& shard = find_part(shards_, index);
    return shard.labels[index * shard.label_stride];
  }
  void prefetch(std::int64_t index) const override {
    constexpr std::int64_t kCacheLine = 64;
    constexpr std::int64_t kMost = 4096;  // beyond this, the processor detects a stream
    const ImageShard& shard = find_part(shards_, index);
    const std::uint8_t* pixels = shard.images + index * shard.image_stride;
    const std::int64_t bytes = std::min(shape_.elements(), kMost);
    for (std::int64_t i = 0; i < bytes; i += kCacheLine) __builtin_prefetch(pixels + i);
  }

 private:
  ImageShape shape_;
  std::vector<ImageShard> shards_;
  std::int64_t size_ = 0;
};

class SubsetSource final : public ImageSource {
 public:
  SubsetSource(ImageDataset dataset, std::vector<std::int64_t> indices)
      : dataset_(std::move(dataset)), indices_(std::move(indices)) {}
  std::int64_t size() const override { return static_cast<std::int64_t>(indices_.size()); }
  void read(std::int64_t index, ImageReader& reader) const override {
    dataset_.read(indices_[index], reader);
  }
  std::int64_t label(std::int64_t index) const override { return dataset_.label(indices_[index]); }
  bool is_file(std::int64_t index) const override { return dataset_.is_file(indices_[index]); }
  void prefetch(std::int64_t index) const override { dataset_.prefetch(indices_[index]); }
  ImageOrigin origin(std::int64_t index) const override { return dataset_.origin(indices_[index]); }

 private:
  ImageDataset dataset_;
  std::vector<std::int64_t> indices_;
};

class Concatenation final : public ImageSource {
 public:
  explicit Concatenation(const std::vector<ImageDataset>& datasets) {
    for (const ImageDataset& dataset : datasets) {
      parts_.push_back({dataset, dataset.size()});
      size_ += dataset.size();
    }
  }
  std::int64_t size() const override { return size_; }
  void read(std::int64_t index, ImageReader& reader) const override {
    const Part& part = find_part(parts_, index);
    part.dataset.read(index, reader);
  }
  std::int64_t label(std::int64_t index) const override {
    const Part& part = find_part(parts_, index);
    return part.dataset.label(index);
  }
  bool is_file(std::int64_t index) const override {
    const Part& part = find_part(parts_, index);
    return part.dataset.is_file(index);
  }
  void prefetch(std::int64_t index) const override {
    const Part& part = find_part(parts_, index);
    part.dataset.prefetch(index);
  }
  ImageOrigin origin(std::int64_t index) const override {
    const Part& part = find_part(parts_, index);
    return part.dataset.origin(index);
  }

 private:
  struct Part {
    ImageDataset dataset;
    std::int64_t count;
  };
  std::vector<Part> parts_;
  std::int64_t size_ = 0;
};

std::shared_ptr<const ImageSource> make_shard_source(const std::string& name,
                                                     const ImageShape& shape,
                                                     std::vector<ImageShard> shards) {
  if (shards.empty()) throw ConfigError(str("data set ", name, ": got no shards"));
  if (std::min({shape.channels, shape.height, shape.width}) <= 0) {
    throw ConfigError(str("data set ", name, ": got images of ", shape.channels, "x", shape.height,
                          "x", shape.width, " in memory, expected one shape for all"));
  }
  for (std::size_t i = 0; i < shards.size(); ++i) {
    const ImageShard& shard = shards[i];
    if (shard.count <= 0) {
      throw ConfigError(str("data set ", name, ": shard ", i, " has ", shard.count,
                            " images, expected at least 1"));
    }
    if (shard.images == nullptr || shard.labels == nullptr) {
      throw ConfigError(str("data set ", name, ": shard ", i, " has no ",
                            shard.images == nullptr ? "images" : "labels", ", got a null pointer"));
    }
  }
  return std::make_shared<const ShardSource>(shape, std::move(shards));
}

}  // namespace

ImageDataset::ImageDataset() : state_(std::make_shared<const State>()) {}

ImageDataset::ImageDataset(std::string name, ImageShape shape, std::int64_t num_classes,
                           std::shared_ptr<const ImageSource> source,
                           std::vector<std::string> class_names) {
  const std::int64_t size = source ? source->size() : 0;
  const bool own_sizes = shape.height == 0 && shape.width == 0;
  if (std::min({shape.channels, num_classes, size}) <= 0 ||
      (!own_sizes && std::min(shape.height, shape.width) <= 0)) {
    throw ConfigError(str("data set ", name, ": got ", size, " images of ", shape.channels, "x",
                          shape.height, "x", shape.width, " in ", num_classes,
                          " classes, expected at least one of each"));
  }
  const auto names = static_cast<std::int64_t>(class_names.size());
  if (names != 0 && names != num_classes) {
    throw ConfigError(
        str("data set ", name, ": got ", names, " names for ", num_classes, " classes"));
  }
  state_ = std::make_shared<const State>(
      State{std::move(name), shape, num_classes, size, std::move(source), std::move(class_names)});
}

ImageDataset::ImageDataset(std::string name, ImageShape shape, std::int64_t num_classes,
                           std::vector<ImageShard> shards, std::vector<std::string> class_names)
    : ImageDataset(name, shape, num_classes, make_shard_source(name, shape, std::move(shards)),
                   std::move(class_names)) {}

ImageView ImageDataset::image(std::int64_t index) const {
  ImageReader reader;
  read(index, reader);
  if (!reader.is_decoded()) {
    throw ConfigError(
        str("data set ", name(), ": its images are files, which an ImageReader decodes"));
  }
  return reader.pixels({0, 0, reader.shape().height, reader.shape().width});
}

void ImageDataset::refuse_read(std::int64_t index) const {
  throw ConfigError(str("data set ", name(), ": read() of its ImageSource showed no image ", index,
                        "; it must call show() with at least one pixel, or open()"));
}

void ImageDataset::refuse_label(std::int64_t index, std::int64_t label) const {
  throw DataError(str("data set ", name(), ": image ", index, " has label ", label,
                      ", expected 0 to ", num_classes() - 1));
}

ImageDataset subset(const ImageDataset& dataset, std::vector<std::int64_t> indices) {
  for (const std::int64_t index : indices) {
    if (index < 0 || index >= dataset.size()) {
      throw ConfigError(str("subset of ", dataset.name(), ": there is no image ", index,
                            ", it has ", dataset.size()));
    }
  }
  std::string name = str(indices.size(), " of ", dataset.name());
  return ImageDataset(std::move(name), dataset.shape(), dataset.num_classes(),
                      std::make_shared<const SubsetSource>(dataset, std::move(indices)),
                      dataset.class_names());
}

ImageDataset concatenate(const std::vector<ImageDataset>& datasets) {
  if (datasets.empty()) throw ConfigError("concatenate: got no data sets");
  const ImageDataset& first = datasets.front();
  ImageShape shape = first.shape();
  std::string name;
  for (const ImageDataset& dataset : datasets) {
    name += (name.empty() ? "" : " + ") + dataset.name();
    if (dataset.shape() != shape) shape.height = shape.width = 0;
    if (dataset.shape().channels != shape.channels ||
        dataset.num_classes() != first.num_classes()) {
      const auto& [channels, height, width] = dataset.shape();
      throw ConfigError(str("concatenate: ", dataset.name(), " has images of ", channels, "x",
                            height, "x", width, " in ", dataset.num_classes(), " classes, ",
                            first.name(), " of ", first.shape().channels, "x", first.shape().height,
                            "x", first.shape().width, " in ", first.num_classes()));
    }
  }
  return ImageDataset(std::move(name), shape, first.num_classes(),
                      std::make_shared<const Concatenation>(datasets), first.class_names());
}

}  // namespace lockstep
