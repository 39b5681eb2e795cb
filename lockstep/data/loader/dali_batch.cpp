#include <lockstep/data/loader/dali_batch.h>

#include <algorithm>
#include <cstring>

#include <lockstep/core/error.h>

namespace lockstep::data {
namespace {

ImageRegion whole(const ImageShape& shape) { return {0, 0, shape.height, shape.width}; }

// The strides of pixels in one of the two layouts.
struct Strides {
  std::int64_t channel;
  std::int64_t row;
  std::int64_t pixel;
};

Strides dense(const ImageShape& shape, Layout layout) {
  const auto [channels, height, width] = shape;
  if (layout == Layout::kPlanar) return {height * width, width, 1};
  return {1, width * channels, channels};
}

bool is_dense(const ImageView& image, Layout layout) {
  const Strides strides = dense(image.shape, layout);
  const bool channel = image.shape.channels == 1 || image.channel_stride == strides.channel;
  return channel && image.row_stride == strides.row && image.pixel_stride == strides.pixel;
}

ImageShape padded(const ImageShape& shape, const Pad& border) {
  return {shape.channels, shape.height + 2 * border.pixels, shape.width + 2 * border.pixels};
}

// Copies an image without gaps into the middle of the border.
void copy(const ImageView& image, Layout layout, const Pad& border, std::span<std::byte> to) {
  const Strides strides = dense(padded(image.shape, border), layout);
  const auto [channels, height, width] = image.shape;
  std::fill(to.begin(), to.end(), std::byte(border.fill));
  std::byte* corner = to.data() + border.pixels * (strides.row + strides.pixel);
  const bool same = image.pixel_stride == strides.pixel &&
                    (layout == Layout::kPlanar || image.channel_stride == 1);
  for (std::int64_t c = 0; c < channels; ++c) {
    for (std::int64_t y = 0; y < height; ++y) {
      const std::uint8_t* row = image.pixels + c * image.channel_stride + y * image.row_stride;
      std::byte* to_row = corner + c * strides.channel + y * strides.row;
      if (same && layout == Layout::kPlanar) {
        std::memcpy(to_row, row, static_cast<std::size_t>(width));
      } else if (same) {
        if (c == 0) std::memcpy(to_row, row, static_cast<std::size_t>(width * channels));
      } else {
        for (std::int64_t x = 0; x < width; ++x) {
          to_row[x * strides.pixel] = std::byte{row[x * image.pixel_stride]};
        }
      }
    }
  }
}

}  // namespace

DaliPlanOptions dali_input_of(const ImageDataset& dataset) {
  bool all_files = true;
  for (std::int64_t i = 0; i < dataset.size() && all_files; ++i) all_files = dataset.is_file(i);
  if (all_files) return {.encoded = true, .input_layout = Layout::kChannelsLast};
  ImageReader reader;
  dataset.read(0, reader);
  const bool planar = reader.pixels(whole(reader.shape())).pixel_stride == 1;
  return {.encoded = false, .input_layout = planar ? Layout::kPlanar : Layout::kChannelsLast};
}

void DaliBatch::fill(const ImageDataset& dataset, std::span<const SampleKey> keys,
                     const DaliPlan& plan, const DaliPlanOptions& options) {
  indices_.clear();
  copies_.clear();
  pointers_.clear();
  offsets_.clear();
  shapes_.clear();
  labels_.clear();
  plan.resize(numbers_, static_cast<std::int64_t>(keys.size()));
  for (const SampleKey& key : keys) {
    const auto index = static_cast<std::int64_t>(key.sample);
    indices_.push_back(index);
    dataset.read(index, reader_);
    plan.choose(reader_.shape(), key, static_cast<std::int64_t>(labels_.size()), numbers_,
                reader_.name());
    if (options.encoded) {
      LOCKSTEP_CHECK(!reader_.is_decoded(), "image ", index, " of ", dataset.name(),
                     " is not a file, contrary to its source's is_file()");
      add_file(reader_);
    } else {
      add_pixels(reader_, options.input_layout, plan.border());
    }
    labels_.push_back(dataset.label(index));
  }
  // Done last, because the memory moves while it grows.
  for (std::size_t i = 0; i < offsets_.size(); ++i) {
    if (offsets_[i] >= 0) pointers_[i] = copies_.data() + offsets_[i];
  }
}

void DaliBatch::add_file(const ImageReader& reader) {
  const std::span<const std::byte> file = reader.file();
  offsets_.push_back(static_cast<std::ptrdiff_t>(copies_.size()));
  pointers_.push_back(nullptr);
  shapes_.push_back(static_cast<std::int64_t>(file.size()));
  copies_.insert(copies_.end(), file.begin(), file.end());
}

void DaliBatch::add_pixels(ImageReader& reader, Layout layout, const Pad& border) {
  const bool outlives = reader.is_decoded();
  const ImageView image = reader.pixels(whole(reader.shape()));
  const ImageShape shape = padded(image.shape, border);
  const auto [channels, height, width] = shape;
  if (layout == Layout::kPlanar) {
    shapes_.insert(shapes_.end(), {channels, height, width});
  } else {
    shapes_.insert(shapes_.end(), {height, width, channels});
  }
  if (outlives && border.pixels == 0 && is_dense(image, layout)) {
    offsets_.push_back(-1);
    pointers_.push_back(image.pixels);
    return;
  }
  offsets_.push_back(static_cast<std::ptrdiff_t>(copies_.size()));
  pointers_.push_back(nullptr);
  copies_.resize(copies_.size() + static_cast<std::size_t>(shape.elements()));
  copy(image, layout, border,
       std::span(copies_).subspan(static_cast<std::size_t>(offsets_.back())));
}

}  // namespace lockstep::data
