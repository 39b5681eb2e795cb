#include <lockstep/data/dataset.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <lockstep/core/error.h>
#include <tests/support/messages.h>

namespace lockstep::testing {
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

}  // namespace
}  // namespace lockstep::testing
