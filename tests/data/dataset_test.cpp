#include <lockstep/data/datasets/dataset.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>

#include <lockstep/core/error.h>
#include <lockstep/core/strings.h>
#include <tests/support/messages.h>

namespace lockstep::testing_support {
namespace {

TEST(ImageDataset, SaysWhatIsWrongWithItsShards) {
  const std::uint8_t bytes[4] = {};
  const ImageShard right{
      .images = bytes, .image_stride = 1, .labels = bytes, .label_stride = 1, .count = 4};
  const auto with = [&](auto change) {
    ImageShard shard = right;
    change(shard);
    return std::vector<ImageShard>{right, shard};
  };
  struct Case {
    ImageShape shape;
    std::vector<ImageShard> shards;
    const char* message;
  };
  const ImageShape pixel{1, 1, 1};
  const Case cases[] = {
      {pixel, {}, "got no shards"},
      {pixel, with([](auto& s) { s.count = 0; }), "shard 1 has 0 images, expected at least 1"},
      {pixel, with([](auto& s) { s.images = nullptr; }), "shard 1 has no images, got a null"},
      {pixel, with([](auto& s) { s.labels = nullptr; }), "shard 1 has no labels, got a null"},
      {{1, 0, 0}, {right}, "got images of 1x0x0 in memory, expected one shape for all"},
      {{0, 1, 1}, {right}, "got images of 0x1x1 in memory"},
      {{1, -1, -1}, {right}, "got images of 1x-1x-1 in memory"},
  };
  for (const Case& c : cases) {
    EXPECT_THAT(message_of<ConfigError>([&] { ImageDataset("mine", c.shape, 1, c.shards); }),
                ::testing::AllOf(::testing::StartsWith("data set mine: "),
                                 ::testing::HasSubstr(c.message)));
  }
}

// The errors that a user-defined source can make with an image.
class Careless final : public ImageSource {
 public:
  std::int64_t size() const override { return 5; }
  void read(std::int64_t index, ImageReader& reader) const override {
    static constexpr std::uint8_t kPixel = 7;
    if (index == 0 || index == 4) reader.show(ImageView::planar(&kPixel, {1, 1, 1}));
    if (index == 2) reader.show(ImageView::planar(nullptr, {1, 1, 1}));
    if (index == 3) reader.show(ImageView::planar(&kPixel, {1, 0, 1}));
  }
  std::int64_t label(std::int64_t index) const override { return index - 1; }
};

TEST(ImageDataset, RefusesWhatASourceGetsWrong) {
  const ImageDataset mine("mine", {1, 0, 0}, 3, std::make_shared<const Careless>());
  for (const ImageDataset& dataset :
       {mine, subset(mine, {0, 1, 2, 3, 4}), concatenate({mine, mine})}) {
    ImageReader reader;
    for (std::int64_t i = 1; i <= 3; ++i) {
      dataset.read(0, reader);
      EXPECT_EQ(message_of<ConfigError>([&] { dataset.read(i, reader); }),
                str("data set mine: read() of its ImageSource showed no image ", i,
                    "; it must call show() with at least one pixel, or open()"))
          << "the image before must not pass for it";
      EXPECT_FALSE(reader.has_image());
      EXPECT_EQ(dataset.label(i), i - 1);
    }
    dataset.read(4, reader);
    EXPECT_EQ(reader.shape(), (ImageShape{1, 1, 1}));
    for (const std::int64_t i : {0, 4}) {
      EXPECT_EQ(message_of<DataError>([&] { dataset.label(i); }),
                str("data set mine: image ", i, " has label ", i - 1, ", expected 0 to 2"));
    }
  }
}

}  // namespace
}  // namespace lockstep::testing_support
