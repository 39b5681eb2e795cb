#include <lockstep/data/datasets/random_images.h>

#include <memory>
#include <utility>
#include <vector>

#include <lockstep/core/options.h>
#include <lockstep/core/philox.h>

namespace lockstep::data {
namespace {

class RandomImages final : public ImageSource {
 public:
  RandomImages(Split split, std::int64_t count, const RandomImagesOptions& options)
      : shape_(options.shape) {
    const std::int64_t bytes = shape_.elements();
    pixels_.reserve(static_cast<std::size_t>(count * bytes));
    for (std::int64_t i = 0; i < count; ++i) {
      PhiloxStream random(options.seed, split == Split::kTrain ? 0 : 1,
                          static_cast<std::uint64_t>(i));
      labels_.push_back(random.below(static_cast<std::uint32_t>(options.num_classes)));
      std::uint32_t word = 0;
      for (std::int64_t at = 0; at < bytes; ++at) {
        word = at % 4 == 0 ? random.next() : word >> 8;
        pixels_.push_back(static_cast<std::uint8_t>(word & 0xff));
      }
    }
  }

  std::int64_t size() const override { return static_cast<std::int64_t>(labels_.size()); }
  void read(std::int64_t index, ImageReader& reader) const override {
    reader.show(ImageView::planar(pixels_.data() + index * shape_.elements(), shape_));
  }
  std::int64_t label(std::int64_t index) const override {
    return labels_[static_cast<std::size_t>(index)];
  }

 private:
  const ImageShape shape_;
  std::vector<std::uint8_t> pixels_;
  std::vector<std::int64_t> labels_;
};

}  // namespace

ImageDataset make_random_images(Split split, const RandomImagesOptions& options) {
  const OptionCheck check("make_random_images");
  check.in_range("count", static_cast<double>(options.count), 0, 1'000'000);
  check.in_range("channels", static_cast<double>(options.shape.channels), 1, 4);
  check.in_range("height", static_cast<double>(options.shape.height), 1, 4096);
  check.in_range("width", static_cast<double>(options.shape.width), 1, 4096);
  check.in_range("num_classes", static_cast<double>(options.num_classes), 1, 1'000'000);
  const std::int64_t standard = split == Split::kTrain ? 360 : 120;
  const std::int64_t count = options.count > 0 ? options.count : standard;
  return ImageDataset(
      split == Split::kTrain ? "generated images (train)" : "generated images (test)",
      options.shape, options.num_classes,
      std::make_shared<const RandomImages>(split, count, options));
}

}  // namespace lockstep::data
