#include <lockstep/data/datasets/mnist.h>

#include <string>
#include <utility>

#include <lockstep/core/error.h>
#include <lockstep/data/files/data_file.h>
#include <lockstep/formats/idx.h>

namespace lockstep {
namespace {

constexpr std::int64_t kDigits = 10;
// Bounds memory, not the format: EMNIST, the largest of the family, has 814,255 images of 28x28.
constexpr std::size_t kMaximumIdxBytes = std::size_t{1} << 30;

void check_labels(const formats::IdxLabels& labels, const std::string& path) {
  for (std::int64_t i = 0; i < labels.count; ++i) {
    if (labels.labels[i] >= kDigits) {
      throw DataError(
          str(path, ": label ", i, " is ", int{labels.labels[i]}, ", expected 0 to ", kDigits - 1));
    }
  }
}

struct Pair {
  std::shared_ptr<const void> images;
  std::shared_ptr<const void> labels;
};

struct FileNames {
  std::string images;
  std::string labels;
};

FileNames file_names(Split split) {
  const std::string prefix = split == Split::kTrain ? "train" : "t10k";
  return {prefix + "-images-idx3-ubyte", prefix + "-labels-idx1-ubyte"};
}

}  // namespace

ImageDataset load_mnist(const std::filesystem::path& directory, Split split) {
  const FileNames names = file_names(split);
  const data::DataFile label_file = data::open_data_file(directory, names.labels, kMaximumIdxBytes);
  const formats::IdxLabels labels = formats::parse_idx_labels(label_file.bytes, label_file.path);
  check_labels(labels, label_file.path);

  const data::DataFile image_file = data::open_data_file(directory, names.images, kMaximumIdxBytes);
  const formats::IdxImages images = formats::parse_idx_images(image_file.bytes, image_file.path);
  if (images.count != labels.count) {
    throw DataError(str(image_file.path, " holds ", images.count, " images, but ", label_file.path,
                        " ", labels.count, " labels"));
  }

  ImageShard shard;
  shard.images = images.pixels;
  shard.image_stride = images.height * images.width;
  shard.labels = labels.labels;
  shard.label_stride = 1;
  shard.count = images.count;
  shard.keep_alive =
      std::make_shared<const Pair>(Pair{image_file.keep_alive, label_file.keep_alive});
  return ImageDataset(split == Split::kTrain ? "MNIST train" : "MNIST test",
                      {1, images.height, images.width}, kDigits, {std::move(shard)},
                      {"0", "1", "2", "3", "4", "5", "6", "7", "8", "9"});
}

void check_mnist(const std::filesystem::path& directory, Split split, const ImageShape& shape) {
  const FileNames names = file_names(split);
  const data::DataSize labels = data::data_file_size(directory, names.labels);
  const data::DataSize images = data::data_file_size(directory, names.images);
  if (labels.bytes <= formats::kIdxLabelsHeaderBytes) {
    throw DataError(str(labels.path, ": holds ", labels.bytes, " bytes, which are not labels"));
  }
  const std::uint64_t count = labels.bytes - formats::kIdxLabelsHeaderBytes;
  const std::uint64_t expected =
      formats::kIdxImagesHeaderBytes + count * static_cast<std::uint64_t>(shape.elements());
  if (images.bytes != expected) {
    throw DataError(str(images.path, ": holds ", images.bytes, " bytes, expected ", expected,
                        " for ", count, " images of ", shape.height, "x", shape.width,
                        ", one for each label in ", labels.path, "; it is truncated or another's"));
  }
}

}  // namespace lockstep
