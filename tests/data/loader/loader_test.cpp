#include <lockstep/data/loader/loader.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/cuda.h>

#include <chrono>
#include <cstring>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <lockstep/core/error.h>
#include <lockstep/data/datasets/synthetic_digits.h>
#include <tests/data/loader/epoch_batches.h>
#include <tests/support/data_bytes.h>
#include <tests/support/messages.h>

namespace lockstep::testing_support {
namespace {

const Augmentation kNormalize = {Normalize{{0.1307}, {0.3081}}};

// `count` images of 3x8x8 with labels 0, 1, ... All bytes differ from image to image.
ImageDataset small_dataset(std::int64_t count) {
  auto bytes = std::make_shared<std::string>(pattern(static_cast<std::size_t>(count * 193), 7));
  for (std::int64_t i = 0; i < count; ++i) (*bytes)[i * 193] = static_cast<char>(i);
  ImageShard shard;
  shard.labels = reinterpret_cast<const std::uint8_t*>(bytes->data());
  shard.images = shard.labels + 1;
  shard.image_stride = shard.label_stride = 193;
  shard.count = count;
  shard.keep_alive = bytes;
  return ImageDataset("small", {3, 8, 8}, count, {shard});
}

const Augmentation kAugmentation = {Pad{2}, RandomCrop{8}, RandomHorizontalFlip{},
                                    Normalize{{0.5, 0.4, 0.3}, {0.2, 0.3, 0.4}}};

TEST(Loader, GivesTheSamplersImagesNormalised) {
  const ImageDataset dataset = make_synthetic_digits(Split::kTest, {.count = 50});
  const DistributedSampler sampler(50, {.rank = 1, .world_size = 2, .seed = 4});
  Loader loader(dataset, sampler, kNormalize, {.batch_size = 8});
  ASSERT_EQ(loader.steps_per_epoch(), 4);
  const auto batches = read_epoch(loader, 3);
  ASSERT_EQ(batches.size(), 4U);
  EXPECT_EQ(batches[0].images.sizes(), (torch::IntArrayRef{8, 1, 28, 28}));
  EXPECT_EQ(batches[3].images.sizes(), (torch::IntArrayRef{1, 1, 28, 28}));
  EXPECT_EQ(batches[0].labels.scalar_type(), torch::kInt64);
  const auto indices = sampler.indices(3);
  for (std::size_t i = 0; i < indices.size(); ++i) {
    const Batch& batch = batches[i / 8];
    const auto place = static_cast<std::int64_t>(i % 8);
    EXPECT_EQ(batch.labels[place].item<std::int64_t>(), dataset.label(indices[i]));
    const auto pixels = torch::from_blob(
        const_cast<std::uint8_t*>(dataset.image(indices[i]).pixels), {1, 28, 28}, torch::kUInt8);
    const auto expected = (pixels.to(torch::kFloat32) / 255 - 0.1307) / 0.3081;
    EXPECT_TRUE(torch::allclose(batch.images[place], expected, 1e-6, 1e-6)) << "image " << i;
  }
}

// Only the cuda engine has a kernel (gather_test.cpp). Any other loader must stay where it is in
// its epoch.
TEST(Loader, WithoutAKernelThereIsNothingToDefer) {
  const ImageDataset dataset = small_dataset(20);
  const DistributedSampler sampler(20, {.seed = 1});
  for (const int threads : {0, 2}) {
    Loader loader(dataset, sampler, kAugmentation,
                  {.batch_size = 6, .threads = threads, .seed = 9});
    const auto expected = read_epoch(loader, 1);
    loader.set_epoch(1);
    Batch batch;
    for (const Batch& each : expected) {
      EXPECT_FALSE(loader.defer_kernel(true));
      ASSERT_TRUE(loader.next(batch));
      EXPECT_TRUE(torch::equal(batch.images, each.images));
    }
    EXPECT_FALSE(loader.defer_kernel(false));
    EXPECT_FALSE(loader.next(batch));
  }
}

TEST(Loader, ThreadsPrefetchAndLayoutDoNotChangeTheBatches) {
  const ImageDataset dataset = small_dataset(53);
  const DistributedSampler sampler(53, {.seed = 1});
  Loader plain(dataset, sampler, kAugmentation, {.batch_size = 10, .seed = 9});
  for (const int threads : {1, 3}) {
    for (const int prefetch : {1, 4}) {
      for (const bool channels_last : {false, true}) {
        Loader loader(dataset, sampler, kAugmentation,
                      {.batch_size = 10,
                       .threads = threads,
                       .prefetch = prefetch,
                       .channels_last = channels_last,
                       .seed = 9});
        for (std::int64_t epoch = 0; epoch < 3; ++epoch) {
          expect_equal(read_epoch(loader, epoch), read_epoch(plain, epoch));
        }
      }
    }
  }
}

TEST(Loader, RoundsToHalvesAsTensorsDo) {
  const ImageDataset dataset = small_dataset(64);
  const EvaluationSampler sampler(64);
  for (const bool channels_last : {false, true}) {
    LoaderOptions options{.batch_size = 64, .channels_last = channels_last, .seed = 9};
    Loader exact(dataset, sampler, kAugmentation, options);
    const torch::Tensor expected = read_epoch(exact, 1).at(0).images;
    for (const auto dtype : {torch::kBFloat16, torch::kFloat16}) {
      options.dtype = dtype;
      Loader loader(dataset, sampler, kAugmentation, options);
      const torch::Tensor images = read_epoch(loader, 1).at(0).images;
      ASSERT_EQ(images.scalar_type(), dtype);
      EXPECT_EQ(images.strides(), expected.strides());
      EXPECT_TRUE(torch::equal(images, expected.to(dtype)));
    }
  }
}

TEST(Loader, CountsTheSecondsThatItIsWaitedFor) {
  // The second half of the images is slow to read.
  class Slow final : public ImageSource {
   public:
    std::int64_t size() const override { return 4; }
    void read(std::int64_t index, ImageReader& reader) const override {
      if (index >= 2) std::this_thread::sleep_for(std::chrono::milliseconds(200));
      reader.show(ImageView::planar(pixels_.data(), {1, 2, 2}));
    }
    std::int64_t label(std::int64_t index) const override { return index; }

   private:
    std::vector<std::uint8_t> pixels_ = {1, 2, 3, 4};
  };
  const ImageDataset dataset("slow", {1, 2, 2}, 4, std::make_shared<const Slow>());
  for (const int threads : {0, 1}) {
    Loader loader(dataset, EvaluationSampler(4), {Normalize{{0}, {1}}},
                  {.batch_size = 2, .threads = threads});
    const auto start = std::chrono::steady_clock::now();
    loader.set_epoch(0);
    EXPECT_GT(loader.waited_seconds(), 0);  // at least for the order of the epoch
    Batch batch;
    ASSERT_TRUE(loader.next(batch));
    ASSERT_TRUE(loader.next(batch));
    const std::chrono::duration<double> all = std::chrono::steady_clock::now() - start;
    EXPECT_EQ(batch.labels[1].item<int>(), 3);
    EXPECT_GE(loader.waited_seconds(), 0.02);
    EXPECT_LE(loader.waited_seconds(), all.count());
  }
}

TEST(ImageDataset, SubsetsAndConcatenationsAreDataSets) {
  const ImageDataset dataset = small_dataset(9);
  const ImageDataset odd = subset(dataset, {7, 1, 1, 5});
  EXPECT_EQ(odd.name(), "4 of small");
  const ImageDataset both = concatenate({odd, dataset, odd});
  EXPECT_EQ(both.name(), "4 of small + small + 4 of small");
  ASSERT_EQ(both.size(), 17);
  EXPECT_EQ(both.num_classes(), 9);
  const int expected[] = {7, 1, 1, 5, 0, 1, 2, 3, 4, 5, 6, 7, 8, 7, 1, 1, 5};
  for (std::int64_t i = 0; i < both.size(); ++i) {
    EXPECT_EQ(both.label(i), expected[i]);
    EXPECT_EQ(both.image(i).pixels, dataset.image(expected[i]).pixels) << "no copies";
  }
  EXPECT_THAT(message_of<ConfigError>([&] { subset(dataset, {0, 9}); }),
              ::testing::StrEq("subset of small: there is no image 9, it has 9"));
  EXPECT_THAT(message_of<ConfigError>([&] { subset(dataset, {}); }),
              ::testing::HasSubstr("0 of small: got 0 images"));
  EXPECT_THAT(message_of<ConfigError>([&] { concatenate({}); }),
              ::testing::HasSubstr("no data sets"));
  EXPECT_THAT(message_of<ConfigError>([&] { concatenate({dataset, small_dataset(8)}); }),
              ::testing::HasSubstr("small has images of 3x8x8 in 8 classes, small of 3x8x8 in 9"));
}

TEST(Loader, SeedAndEpochChangeTheBatches) {
  const ImageDataset dataset = small_dataset(40);
  const EvaluationSampler in_order(40);
  const auto first_batch = [&](std::uint64_t seed, std::int64_t epoch) {
    Loader loader(dataset, in_order, kAugmentation, {.batch_size = 40, .seed = seed});
    return read_epoch(loader, epoch).at(0).images;
  };
  EXPECT_TRUE(torch::equal(first_batch(1, 1), first_batch(1, 1)));
  EXPECT_FALSE(torch::equal(first_batch(1, 1), first_batch(2, 1)));
  EXPECT_FALSE(torch::equal(first_batch(1, 1), first_batch(1, 2)));
}

TEST(Loader, GoesOnAtAnyStepAsIfItHadNotStopped) {
  const ImageDataset dataset = small_dataset(53);
  const DistributedSampler sampler(53, {.seed = 1});
  for (const int threads : {0, 2}) {
    Loader loader(dataset, sampler, kAugmentation, {.batch_size = 10, .threads = threads});
    const auto whole = read_epoch(loader, 2);
    for (std::int64_t step = 0; step <= 6; ++step) {
      expect_equal(read_epoch(loader, 2, step), {whole.begin() + step, whole.end()});
    }
    loader.set_epoch(2);  // an epoch that is abandoned halfway must leave no trace
    Batch batch;
    loader.next(batch);
    expect_equal(read_epoch(loader, 2), whole);
  }
}

// The rest of an epoch after `steps` batches, restored from the text of a checkpoint.
std::vector<Batch> read_restored(Loader& before, std::int64_t steps, Loader& after) {
  before.set_epoch(2);
  Batch batch;
  for (std::int64_t step = 0; step < steps; ++step) before.next(batch);
  after.restore(sampler_position(to_settings(before.position())));
  std::vector<Batch> rest = read_rest(after);
  EXPECT_EQ(after.position(), position_of(after.sampler(), 2, after.sampler().size()));
  return rest;
}

TEST(Loader, APositionGoesOnBitForBitWithAnyThreads) {
  const ImageDataset dataset = small_dataset(53);
  const DistributedSampler sampler(53, {.rank = 1, .world_size = 2, .seed = 1});
  Loader before(dataset, sampler, kAugmentation, {.batch_size = 5, .threads = 1});
  const auto whole = read_epoch(before, 2);
  for (const int threads : {0, 2}) {
    Loader after(dataset, sampler, kAugmentation, {.batch_size = 5, .threads = threads});
    for (const std::int64_t steps : {0, 1, 5, 6}) {
      expect_equal(read_restored(before, steps, after), {whole.begin() + steps, whole.end()});
    }
  }
}

TEST(Loader, APositionGoesOnWithAnotherBatchSizeAndNumberOfRanks) {
  const ImageDataset dataset = small_dataset(48);
  const auto loader_of = [&](int rank, int ranks, std::int64_t batch_size) {
    return Loader(dataset, DistributedSampler(48, {.rank = rank, .world_size = ranks, .seed = 1}),
                  kAugmentation, {.batch_size = batch_size});
  };
  Loader before = loader_of(0, 2, 6);
  std::set<std::int64_t> left;  // the labels are the images' numbers
  for (int rank = 0; rank < 2; ++rank) {
    Loader whole = loader_of(rank, 2, 6);
    for (const Batch& batch : read_epoch(whole, 2, 2)) {
      for (int i = 0; i < 6; ++i) left.insert(batch.labels[i].item<std::int64_t>());
    }
  }
  ASSERT_EQ(left.size(), 24U);
  for (int rank = 0; rank < 3; ++rank) {
    Loader after = loader_of(rank, 3, 5);
    const auto rest = read_restored(before, 2, after);
    ASSERT_EQ(rest.size(), 2U);
    EXPECT_EQ(rest[1].labels.size(0), 3);
    for (const Batch& batch : rest) {
      for (int i = 0; i < batch.labels.size(0); ++i) {
        EXPECT_EQ(left.erase(batch.labels[i].item<std::int64_t>()), 1U);
      }
    }
  }
  EXPECT_TRUE(left.empty());
}

TEST(Loader, RefusesAPositionOfAnotherSampler) {
  Loader before(small_dataset(20), DistributedSampler(20, {.seed = 1}), kAugmentation, {});
  Loader after(small_dataset(20), DistributedSampler(20, {.seed = 2}), kAugmentation, {});
  EXPECT_THROW(after.restore(before.position()), CheckpointError);
}

TEST(Loader, StepsAndDropLast) {
  struct Case {
    std::int64_t images;
    std::int64_t batch_size;
    bool drop_last;
    std::vector<std::int64_t> sizes;
  };
  const Case cases[] = {
      {10, 4, false, {4, 4, 2}}, {10, 4, true, {4, 4}}, {8, 4, false, {4, 4}},
      {3, 4, false, {3}},        {3, 4, true, {}},
  };
  for (const Case& c : cases) {
    for (const int threads : {0, 2}) {
      Loader loader(small_dataset(c.images), EvaluationSampler(c.images), kAugmentation,
                    {.batch_size = c.batch_size, .threads = threads, .drop_last = c.drop_last});
      EXPECT_EQ(loader.steps_per_epoch(), static_cast<std::int64_t>(c.sizes.size()));
      std::vector<std::int64_t> sizes;
      for (const Batch& batch : loader) sizes.push_back(batch.size);  // epoch 0 is the default
      EXPECT_EQ(sizes, c.sizes);
    }
  }
}

TEST(Loader, ARankWithoutImagesHasNoBatches) {
  Loader loader(small_dataset(2), EvaluationSampler(2, 2, 3), kAugmentation, {.batch_size = 4});
  EXPECT_EQ(loader.steps_per_epoch(), 0);
  Batch batch;
  EXPECT_FALSE(loader.next(batch));
}

TEST(Loader, ChannelsLastStridesAreExplicitEvenWithOneChannel) {
  Loader grey(make_synthetic_digits(Split::kTest, {.count = 6}), EvaluationSampler(6), kNormalize,
              {.batch_size = 4, .channels_last = true});
  Loader colour(small_dataset(6), EvaluationSampler(6), kAugmentation,
                {.batch_size = 4, .channels_last = true});
  for (const Batch& batch : grey)
    EXPECT_EQ(batch.images.strides(), (torch::IntArrayRef{784, 1, 28, 1}));
  for (const Batch& batch : colour) {
    EXPECT_EQ(batch.images.strides(), (torch::IntArrayRef{192, 1, 24, 3}));
    EXPECT_TRUE(batch.images.is_contiguous(torch::MemoryFormat::ChannelsLast));
  }
}

TEST(Loader, ReusesItsBuffers) {
  Loader loader(small_dataset(40), EvaluationSampler(40), kAugmentation,
                {.batch_size = 4, .threads = 1, .prefetch = 2});
  std::set<const void*> addresses;
  for (int epoch = 0; epoch < 3; ++epoch) {
    loader.set_epoch(epoch);
    for (const Batch& batch : loader) addresses.insert(batch.images.const_data_ptr());
  }
  EXPECT_EQ(addresses.size(), 3U);
}

class FixedSampler : public Sampler {
 public:
  explicit FixedSampler(std::vector<std::int64_t> indices) : indices_(std::move(indices)) {}
  std::vector<std::int64_t> indices(std::int64_t) const override { return indices_; }
  std::int64_t size() const override { return static_cast<std::int64_t>(indices_.size()); }

 private:
  std::vector<std::int64_t> indices_;
};

TEST(Loader, RefusesWhatDoesNotFit) {
  const auto load = [](const Sampler& sampler, const Augmentation& augmentation,
                       const LoaderOptions& options, std::int64_t epoch, std::int64_t step) {
    const std::shared_ptr<const Sampler> borrowed(&sampler, [](const Sampler*) {});
    Loader loader(small_dataset(5), borrowed, augmentation, options);
    loader.set_epoch(epoch, step);
  };
  const EvaluationSampler good(5);
  const FixedSampler beyond({0, 5});
  const FixedSampler negative({-1});
  const Augmentation grey = kNormalize;
  EXPECT_NO_THROW(load(good, kAugmentation, {.batch_size = 2}, 0, 3));
  const std::pair<LoaderOptions, const char*> wrong[] = {
      {{.batch_size = 0}, "Loader: batch_size must be from 1 to 16777216, got 0"},
      {{.batch_size = (1 << 24) + 1},
       "Loader: batch_size must be from 1 to 16777216, got 16777217"},
      {{.threads = -1}, "Loader: threads must be from 0 to 1024, got -1"},
      {{.threads = 1025}, "Loader: threads must be from 0 to 1024, got 1025"},
      {{.prefetch = 0}, "Loader: prefetch must be from 1 to 1024, got 0"},
      {{.prefetch = 1025}, "Loader: prefetch must be from 1 to 1024, got 1025"}};
  for (const auto& [options, message] : wrong) {
    EXPECT_EQ(message_of<ConfigError>([&, &o = options] { load(good, kAugmentation, o, 0, 0); }),
              message);
  }
  EXPECT_NO_THROW(load(good, kAugmentation, {.prefetch = 1024}, 0, 0));
  EXPECT_THAT(message_of<ConfigError>([&] { load(good, grey, {}, 0, 0); }),
              ::testing::HasSubstr("Normalize has 1 means and 1 deviations, the images have 3"));
  if (!torch::cuda::is_available()) {
    EXPECT_THAT(message_of<ConfigError>([&] {
                  load(good, kAugmentation, {.device = torch::Device(torch::kCUDA, 1)}, 0, 0);
                }),
                ::testing::StartsWith("Loader: device is cuda:1, and there is no GPU"));
  }
  EXPECT_NO_THROW(load(good, kAugmentation, {}, (std::int64_t{1} << 32) - 1, 0));
  const struct {
    std::int64_t epoch, step;
    const char* message;
  } places[] = {{-1, 0, "epoch must be from 0 to 4294967295, got -1"},
                {std::int64_t{1} << 32, 0, "epoch must be from 0 to 4294967295, got 4294967296"},
                {0, -1, "first_step must be from 0 to 3, got -1"},
                {0, 4, "first_step must be from 0 to 3, got 4"}};
  for (const auto& place : places) {
    EXPECT_EQ(message_of<ConfigError>(
                  [&] { load(good, kAugmentation, {.batch_size = 2}, place.epoch, place.step); }),
              std::string("Loader::set_epoch: ") + place.message);
  }
  EXPECT_THAT(message_of<ConfigError>([&] { load(beyond, kAugmentation, {}, 0, 0); }),
              ::testing::HasSubstr("index 5, the data set small has 5 samples"));
  EXPECT_EQ(message_of<ConfigError>([&] { load(negative, kAugmentation, {}, 0, 0); }),
            "Loader: the sampler gave index -1, the data set small has 5 samples");
  EXPECT_EQ(message_of<ConfigError>([] {
              Loader(small_dataset(5), std::shared_ptr<const Sampler>(), kAugmentation, {});
            }),
            "Loader: got no sampler");
}

// The second epoch of this sampler holds an index beyond the data set.
class WrongLater : public Sampler {
 public:
  std::vector<std::int64_t> indices(std::int64_t epoch) const override {
    return {0, 1, 2, 3, 4, 5, epoch == 0 ? 6 : 99};
  }
  std::int64_t size() const override { return 7; }
};

TEST(Loader, KeepsItsPlaceAfterARefusal) {
  for (const int threads : {0, 2}) {
    Loader loader(small_dataset(8), WrongLater(), kAugmentation,
                  {.batch_size = 2, .threads = threads});
    const auto whole = read_epoch(loader, 0);
    ASSERT_EQ(whole.size(), 4U);
    loader.set_epoch(0);
    Batch batch;
    ASSERT_TRUE(loader.next(batch));
    const SamplerPosition place = loader.position();
    constexpr const char* kBeyond =
        "Loader: the sampler gave index 99, the data set small has 8 samples";
    EXPECT_EQ(message_of<ConfigError>([&] { loader.set_epoch(1); }), kBeyond);
    EXPECT_EQ(message_of<ConfigError>([&] { loader.set_epoch(0, 5); }),
              "Loader::set_epoch: first_step must be from 0 to 4, got 5");
    SamplerPosition wrong = place;
    wrong.epoch = std::int64_t{1} << 32;
    EXPECT_THAT(message_of<ConfigError>([&] { loader.restore(wrong); }),
                ::testing::StartsWith("Loader::restore: epoch must be from 0 to "));
    wrong.epoch = 1;
    EXPECT_EQ(message_of<ConfigError>([&] { loader.restore(wrong); }), kBeyond);
    wrong = place;
    wrong.taken = 8;
    EXPECT_EQ(message_of<CheckpointError>([&] { loader.restore(wrong); }),
              "sampler position: epoch 0 index 8 is not a place in Sampler(size=7)");
    EXPECT_EQ(loader.position(), place);
    EXPECT_EQ(loader.steps_left(), 3);
    expect_equal(read_rest(loader), {whole.begin() + 1, whole.end()});
    EXPECT_EQ(loader.steps_left(), 0);
  }
}

TEST(Loader, SkipsAndDropsTheRestOfAnEpoch) {
  for (const int threads : {0, 2}) {
    Loader loader(small_dataset(10), EvaluationSampler(10), kAugmentation,
                  {.batch_size = 4, .threads = threads, .drop_last = true});
    const auto whole = read_epoch(loader, 3);
    ASSERT_EQ(whole.size(), 2U);
    expect_equal(read_epoch(loader, 3, 1), {whole.begin() + 1, whole.end()});
    EXPECT_TRUE(read_epoch(loader, 3, 2).empty());
    EXPECT_EQ(message_of<ConfigError>([&] { loader.set_epoch(3, 3); }),
              "Loader::set_epoch: first_step must be from 0 to 2, got 3");
  }
}

}  // namespace
}  // namespace lockstep::testing_support
