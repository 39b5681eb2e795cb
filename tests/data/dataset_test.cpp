#include <lockstep/data/datasets/dataset.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <iterator>
#include <memory>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

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

// Consecutive files of different layouts, one of which holds a single image.
TEST(ImageDataset, FindsEachImageInItsShard) {
  std::uint8_t bytes[64];
  std::iota(std::begin(bytes), std::end(bytes), std::uint8_t{0});
  const std::uint8_t labels[] = {3, 1, 4, 1, 5, 9};
  const ImageDataset dataset(
      "mine", {1, 1, 2}, 10,
      std::vector<ImageShard>{
          {.images = bytes, .image_stride = 2, .labels = labels, .label_stride = 1, .count = 2},
          {.images = bytes + 20,
           .image_stride = 7,
           .labels = labels + 2,
           .label_stride = 5,
           .count = 1},
          {.images = bytes + 30,
           .image_stride = 11,
           .labels = labels + 1,
           .label_stride = 2,
           .count = 3}});
  ASSERT_EQ(dataset.size(), 6);
  const int first_pixels[] = {0, 2, 20, 30, 41, 52};
  const int expected_labels[] = {3, 1, 4, 1, 1, 9};
  for (std::int64_t i = 0; i < 6; ++i) {
    const ImageView view = dataset.image(i);
    EXPECT_EQ(view.pixels[0], first_pixels[i]);
    EXPECT_EQ(view.pixels[view.pixel_stride], first_pixels[i] + 1);
    EXPECT_EQ(dataset.label(i), expected_labels[i]);
    EXPECT_FALSE(dataset.is_file(i));
    dataset.prefetch(i);
  }
}

// A source of 6 images, each of whose functions notes the index that it gets.
class Noting final : public ImageSource {
 public:
  std::int64_t size() const override { return 6; }
  void read(std::int64_t index, ImageReader& reader) const override {
    note("read", index);
    reader.show(ImageView::planar(&pixel_, {1, 1, 1}));
  }
  std::int64_t label(std::int64_t index) const override {
    note("label", index);
    return index;
  }
  bool is_file(std::int64_t index) const override {
    note("is_file", index);
    return index % 2 == 0;
  }
  void prefetch(std::int64_t index) const override { note("prefetch", index); }

  mutable std::vector<std::string> calls;

 private:
  void note(const char* function, std::int64_t index) const {
    calls.push_back(str(function, ' ', index));
  }
  std::uint8_t pixel_ = 7;
};

TEST(ImageDataset, PassesEveryQuestionOnToTheSourceOfTheImage) {
  const auto first = std::make_shared<const Noting>();
  const auto second = std::make_shared<const Noting>();
  const ImageDataset one("one", {1, 1, 1}, 6, first);
  const ImageDataset two("two", {1, 1, 1}, 6, second);
  const ImageDataset dataset = concatenate({subset(one, {5, 0}), two, subset(two, {4})});
  ASSERT_EQ(dataset.size(), 9);
  const std::pair<const Noting*, std::int64_t> places[] = {
      {first.get(), 5},  {first.get(), 0},  {second.get(), 0}, {second.get(), 1}, {second.get(), 2},
      {second.get(), 3}, {second.get(), 4}, {second.get(), 5}, {second.get(), 4}};
  ImageReader reader;
  for (std::int64_t i = 0; i < dataset.size(); ++i) {
    const auto& [source, index] = places[i];
    first->calls.clear();
    second->calls.clear();
    dataset.prefetch(i);
    EXPECT_EQ(dataset.is_file(i), index % 2 == 0);
    dataset.read(i, reader);
    EXPECT_EQ(dataset.label(i), index);
    EXPECT_EQ(dataset.origin(i).index, index);
    EXPECT_THAT(source->calls,
                ::testing::ElementsAre(str("prefetch ", index), str("is_file ", index),
                                       str("read ", index), str("label ", index)));
    EXPECT_EQ(first->calls.size() + second->calls.size(), 4U) << i;
  }
}

TEST(ImageDataset, RefusesWhatHoldsNothing) {
  const auto source = std::make_shared<const Noting>();
  const auto refusal = [&](ImageShape shape, std::int64_t num_classes,
                           std::vector<std::string> names = {}) {
    return message_of<ConfigError>(
        [&] { ImageDataset("mine", shape, num_classes, source, std::move(names)); });
  };
  const auto of_each = [](const char* found) {
    return str("data set mine: got ", found, ", expected at least one of each");
  };
  EXPECT_EQ(refusal({1, 2, 3}, 0), of_each("6 images of 1x2x3 in 0 classes"));
  EXPECT_EQ(refusal({0, 2, 3}, 4), of_each("6 images of 0x2x3 in 4 classes"));
  EXPECT_EQ(refusal({1, 0, 3}, 4), of_each("6 images of 1x0x3 in 4 classes"));
  EXPECT_EQ(refusal({1, 2, 0}, 4), of_each("6 images of 1x2x0 in 4 classes"));
  EXPECT_EQ(refusal({1, 2, 3}, 3, {"one", "two"}), "data set mine: got 2 names for 3 classes");
  EXPECT_EQ(refusal({1, 0, 0}, 6), "nothing was thrown") << "each image has a size of its own";
  EXPECT_EQ(message_of<ConfigError>(
                [] { ImageDataset("mine", {1, 2, 3}, 4, std::shared_ptr<const ImageSource>()); }),
            of_each("0 images of 1x2x3 in 4 classes"));
}

TEST(ImageDataset, CombinesWhatFitsTogether) {
  const auto source = std::make_shared<const Noting>();
  const ImageDataset one("one", {1, 1, 2}, 6, source, {"a", "b", "c", "d", "e", "f"});
  const ImageDataset two("two", {1, 1, 2}, 6, source);
  const ImageDataset both = concatenate({subset(one, {5, 0}), two});
  EXPECT_EQ(both.name(), "2 of one + two");
  EXPECT_EQ(both.size(), 8);
  EXPECT_EQ(both.shape(), one.shape());
  EXPECT_EQ(both.num_classes(), 6);
  EXPECT_EQ(both.class_names(), one.class_names());
  for (const std::int64_t index : {-1, 6}) {
    EXPECT_EQ(message_of<ConfigError>([&] { subset(one, {0, index}); }),
              str("subset of one: there is no image ", index, ", it has 6"));
  }
  EXPECT_EQ(message_of<ConfigError>([] { concatenate({}); }), "concatenate: got no data sets");
  const auto beside_one = [&](const ImageDataset& other) {
    return message_of<ConfigError>([&] { concatenate({one, other}); });
  };
  EXPECT_EQ(beside_one(ImageDataset("coloured", {3, 1, 2}, 6, source)),
            "concatenate: coloured has images of 3x1x2 in 6 classes, one of 1x1x2 in 6");
  EXPECT_EQ(beside_one(ImageDataset("more", {1, 1, 2}, 7, source)),
            "concatenate: more has images of 1x1x2 in 7 classes, one of 1x1x2 in 6");
  const ImageDataset tall("tall", {1, 3, 2}, 6, source);
  for (const auto& mixed : {concatenate({one, tall}), concatenate({tall, one, one})}) {
    EXPECT_EQ(mixed.shape(), (ImageShape{1, 0, 0})) << "each image has its own size";
  }
}

}  // namespace
}  // namespace lockstep::testing_support
