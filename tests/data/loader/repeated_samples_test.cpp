// How a Loader augments an image that occurs several times in an epoch, on one or several ranks.
#include <gtest/gtest.h>

#include <memory>
#include <set>
#include <string>
#include <vector>

#include <lockstep/core/strings.h>
#include <lockstep/data/loader/loader.h>
#include <lockstep/data/samplers/random_sampler.h>
#include <lockstep/data/samplers/weighted_sampler.h>
#include <tests/data/loader/epoch_batches.h>
#include <tests/support/data_bytes.h>

namespace lockstep::testing_support {
namespace {

// `count` images of 3x8x8 with labels 0, 1, ...
ImageDataset patterned_photos(std::int64_t count) {
  auto bytes = std::make_shared<std::string>(pattern(static_cast<std::size_t>(count * 193), 3));
  for (std::int64_t i = 0; i < count; ++i) (*bytes)[i * 193] = static_cast<char>(i);
  ImageShard shard;
  shard.labels = reinterpret_cast<const std::uint8_t*>(bytes->data());
  shard.images = shard.labels + 1;
  shard.image_stride = shard.label_stride = 193;
  shard.count = count;
  shard.keep_alive = bytes;
  return ImageDataset("photos", {3, 8, 8}, count, {shard});
}

// 81 places, flipped or not. No crop is empty.
const Augmentation kRepeatedAugmentation = {Pad{4}, RandomCrop{8}, RandomHorizontalFlip{},
                                            Normalize{{0.5, 0.4, 0.3}, {0.2, 0.3, 0.4}}};

struct Shown {
  std::int64_t label;
  std::vector<float> pixels;
  bool operator==(const Shown&) const = default;
  bool operator<(const Shown& other) const { return pixels < other.pixels; }
};

std::vector<Shown> shown(const std::vector<Batch>& batches) {
  std::vector<Shown> images;
  for (const Batch& batch : batches) {
    for (std::int64_t i = 0; i < batch.size; ++i) {
      const torch::Tensor image = batch.images[i].contiguous();
      const float* pixels = image.const_data_ptr<float>();
      images.push_back({batch.labels[i].item<std::int64_t>(), {pixels, pixels + image.numel()}});
    }
  }
  return images;
}

template <class S>
std::vector<Shown> epoch_of(const ImageDataset& dataset, const S& sampler,
                            LoaderOptions options = {}) {
  options.seed = 2;
  Loader loader(dataset, sampler, kRepeatedAugmentation, options);
  return shown(read_epoch(loader, 1));
}

TEST(RepeatedSamples, AreAugmentedAnewEachTime) {
  const ImageDataset dataset = patterned_photos(4);
  // Image 2 alone, 32 times.
  const WeightedRandomSampler only({0, 0, 1, 0}, {.num_samples = 32});
  const std::vector<Shown> images = epoch_of(dataset, only, {.batch_size = 5});
  ASSERT_EQ(images.size(), 32U);
  EXPECT_GT(std::set<Shown>(images.begin(), images.end()).size(), 24U);
  for (const Shown& image : images) EXPECT_EQ(image.label, 2);
  // Its first occurrence looks as in an epoch in which it occurs only once.
  EXPECT_EQ(images[0], epoch_of(dataset, EvaluationSampler(4))[2]);
  for (const int threads : {1, 3}) {
    EXPECT_EQ(epoch_of(dataset, only, {.batch_size = 7, .threads = threads}), images);
  }
}

TEST(RepeatedSamples, OfAllSamplersAreAugmentedAnew) {
  const ImageDataset dataset = patterned_photos(3);
  const auto expect_all_differ = [&](const auto& sampler) {
    SCOPED_TRACE(sampler.describe());
    const std::vector<Shown> images = epoch_of(dataset, sampler, {.batch_size = 4});
    ASSERT_EQ(images.size(), 9U);
    EXPECT_EQ(std::set<Shown>(images.begin(), images.end()).size(), 9U);
  };
  expect_all_differ(RandomSampler(3, {.num_samples = 9}));
  expect_all_differ(RandomSampler(3, {.replacement = true, .num_samples = 9}));
  expect_all_differ(SubsetRandomSampler({0, 1, 2, 0, 1, 2, 0, 1, 2}));
  expect_all_differ(WeightedRandomSampler({1, 2, 3}, {.num_samples = 9}));
}

TEST(RepeatedSamples, GoOnInMidEpochAsIfTheyHadNotStopped) {
  const ImageDataset dataset = patterned_photos(6);
  const WeightedRandomSampler sampler({1, 1, 8, 1, 4, 1}, {.num_samples = 40, .seed = 5});
  Loader before(dataset, sampler, kRepeatedAugmentation, {.batch_size = 4, .threads = 2});
  const std::vector<Batch> whole = read_epoch(before, 3);
  for (const std::int64_t steps : {1, 4, 9}) {
    before.set_epoch(3);
    Batch batch;
    for (std::int64_t step = 0; step < steps; ++step) ASSERT_TRUE(before.next(batch));
    Loader after(dataset, sampler, kRepeatedAugmentation, {.batch_size = 4});
    after.restore(sampler_position(to_settings(before.position())));
    expect_equal(read_rest(after), {whole.begin() + steps, whole.end()});
    expect_equal(read_epoch(after, 3, steps), {whole.begin() + steps, whole.end()});
  }
}

// With fewer images than ranks, the padding shows some images again, on other ranks.
TEST(RepeatedSamples, AreCountedOverAllRanks) {
  const ImageDataset dataset = patterned_photos(3);
  std::set<Shown> all;
  for (int rank = 0; rank < 8; ++rank) {
    const DistributedSampler sampler(3, {.rank = rank, .world_size = 8, .shuffle = false});
    const std::vector<Shown> images = epoch_of(dataset, sampler);
    ASSERT_EQ(images.size(), 1U);
    EXPECT_EQ(images[0].label, rank % 3);
    all.insert(images[0]);
  }
  EXPECT_EQ(all.size(), 8U);
}

// 18 of 48 images were taken, by any number of ranks. Each of five ranks shows 6 of the rest,
// exactly as a single rank would.
TEST(RestoredLoader, ShowsTheSamePixelsOnAnyNumberOfRanks) {
  const ImageDataset dataset = patterned_photos(48);
  const auto sampler_of = [](int rank, int ranks) {
    return DistributedSampler(48, {.rank = rank, .world_size = ranks, .seed = 6});
  };
  Loader one(dataset, sampler_of(0, 1), kRepeatedAugmentation, {.batch_size = 1, .seed = 2});
  const std::vector<Shown> order = shown(read_epoch(one, 1));
  for (const int ranks : {1, 2, 4, 5, 7}) {
    for (int rank = 0; rank < ranks; ++rank) {
      SCOPED_TRACE(lockstep::str("rank ", rank, " of ", ranks));
      Loader loader(dataset, sampler_of(rank, ranks), kRepeatedAugmentation,
                    {.batch_size = 4, .threads = 1, .seed = 2});
      loader.restore({one.sampler().describe(), 1, 18});
      const std::int64_t share = (30 + ranks - 1) / ranks;
      EXPECT_EQ(loader.steps_left(), (share + 3) / 4);
      const std::vector<Shown> images = shown(read_rest(loader));
      ASSERT_EQ(static_cast<std::int64_t>(images.size()), share);
      for (std::int64_t i = 0; i < share && 18 + rank + i * ranks < 48; ++i) {
        EXPECT_EQ(images[i], order[18 + rank + i * ranks]) << i;
      }
      EXPECT_EQ(loader.steps_left(), 0);
      EXPECT_EQ(loader.position().taken, 48);
      loader.set_epoch(2);  // the epoch is complete again
      EXPECT_EQ(loader.steps_left(), loader.steps_per_epoch());
    }
  }
}

}  // namespace
}  // namespace lockstep::testing_support
