#include <lockstep/data/preparation/check_images.h>

#include <optional>

#include <lockstep/core/error.h>
#include <lockstep/core/options.h>
#include <lockstep/data/augment/check_augmentation.h>
#include <lockstep/data/augment/choices.h>
#include <lockstep/data/loader/batch_ring.h>

namespace lockstep {
namespace {

// One image being checked, with the memory that it is decoded in.
class CheckedSlot {
 public:
  void fill(const ImageDataset& dataset, std::int64_t index) {
    damage_.reset();
    remark_.clear();
    try {
      dataset.read(index, reader_);
      reader_.pixels({0, 0, reader_.shape().height, reader_.shape().width});
      remark_ = reader_.remark();
      if (remark_.empty()) remark_ = problem_of_shape(index);
    } catch (const DataError& error) {
      damage_ = error.what();
    }
  }

  void add_to(ImagesCheck& check) const {
    const std::int64_t index = check.images++;
    if (damage_) check.corrupt.push_back({index, *damage_});
    if (!remark_.empty()) check.odd.push_back({index, remark_});
  }

 private:
  // Why Resize(256) of the shorter side, the usual one before an evaluation, refuses the image.
  std::string problem_of_shape(std::int64_t index) const {
    constexpr int kUsualSide = 256;
    const ImageShape& shape = reader_.shape();
    const ImageSize size =
        data::resized({kUsualSide, /*shorter_side=*/true}, shape.height, shape.width);
    try {
      data::check_made("resizing", shape, {shape.channels, size.height, size.width},
                       {.sample = static_cast<std::uint64_t>(index), .file = reader_.name()});
    } catch (const DataError& error) {
      return error.what();
    }
    return {};
  }

  ImageReader reader_{ImageReader::Remarks::kKeep};
  std::optional<std::string> damage_;
  std::string remark_;
};

}  // namespace

std::vector<std::int64_t> ImagesCheck::sound() const {
  std::vector<std::int64_t> indices;
  auto next = corrupt.begin();
  for (std::int64_t i = 0; i < images; ++i) {
    if (next != corrupt.end() && next->index == i) {
      ++next;
    } else {
      indices.push_back(i);
    }
  }
  return indices;
}

ImagesCheck check_images(const ImageDataset& dataset, const CheckImagesOptions& options) {
  OptionCheck("check_images").in_range("threads", options.threads, 0, 1024);
  std::vector<CheckedSlot> slots(static_cast<std::size_t>(2 * options.threads + 1));
  data::BatchRing ring(
      [&](int slot, std::int64_t index) {
        slots[static_cast<std::size_t>(slot)].fill(dataset, index);
      },
      {.threads = options.threads, .slots = static_cast<int>(slots.size())});
  ring.start(0, dataset.size());
  ImagesCheck check;
  while (const auto slot = ring.next()) {
    slots[static_cast<std::size_t>(*slot)].add_to(check);
    if (options.progress) options.progress(check.images);
  }
  return check;
}

}  // namespace lockstep
