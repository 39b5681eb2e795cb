// Tests of Loader beyond the images' pixels: damaged images, user-defined data sets, devices and
// threads.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sched.h>

#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <numeric>
#include <set>
#include <stdexcept>
#include <string>
#include <vector>

#include <lockstep/core/cpu.h>
#include <lockstep/core/error.h>
#include <lockstep/data/loader/device_stage.h>
#include <lockstep/data/loader/loader.h>
#include <lockstep/data/loader/ring_engine.h>
#include <tests/support/captured_log.h>
#include <tests/support/messages.h>

namespace lockstep::testing_support {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// Image i has one pixel, with the value i. Images in `damaged` cannot be read.
class Pixels final : public ImageSource {
 public:
  Pixels(std::int64_t size, std::set<std::int64_t> damaged)
      : pixels_(size), damaged_(std::move(damaged)) {
    std::iota(pixels_.begin(), pixels_.end(), std::uint8_t{0});
  }
  std::int64_t size() const override { return static_cast<std::int64_t>(pixels_.size()); }
  void read(std::int64_t index, ImageReader& reader) const override {
    if (damaged_.contains(index)) throw DataError(lockstep::str("image", index, ".jpg: damaged"));
    reader.show(ImageView::planar(&pixels_[index], {1, 1, 1}));
  }
  std::int64_t label(std::int64_t index) const override { return index; }

 private:
  std::vector<std::uint8_t> pixels_;
  std::set<std::int64_t> damaged_;
};

const Augmentation kPlain = {Normalize{{0}, {1}}};

ImageDataset pixels(std::int64_t size, std::set<std::int64_t> damaged) {
  return ImageDataset("pixels", {1, 1, 1}, size,
                      std::make_shared<const Pixels>(size, std::move(damaged)));
}

std::vector<std::int64_t> to_vector(const torch::Tensor& labels) {
  return {labels.data_ptr<std::int64_t>(), labels.data_ptr<std::int64_t>() + labels.numel()};
}

TEST(LoaderCorruptImage, StopsTheRunAndNamesTheFile) {
  for (const int threads : {0, 2}) {
    Loader loader(pixels(8, {5}), EvaluationSampler(8), kPlain,
                  {.batch_size = 2, .threads = threads});
    Batch batch;
    EXPECT_TRUE(loader.next(batch));
    EXPECT_TRUE(loader.next(batch));
    EXPECT_THAT(message_of<DataError>([&] { loader.next(batch); }),
                HasSubstr("image5.jpg: damaged"));
  }
}

TEST(LoaderCorruptImage, IsSkippedNamedAndCounted) {
  for (const int threads : {0, 2}) {
    const testing_support::CapturedLog log;
    Loader loader(pixels(8, {3, 4, 6}), EvaluationSampler(8), kPlain,
                  {.batch_size = 3, .threads = threads, .on_corrupt_image = OnCorruptImage::kSkip});
    std::vector<std::vector<std::int64_t>> labels;
    for (const Batch& batch : loader) {
      EXPECT_EQ(batch.images.size(0), batch.size);
      EXPECT_TRUE(torch::allclose(batch.images.flatten() * 255, batch.labels.to(torch::kFloat32)));
      labels.push_back(to_vector(batch.labels));
    }
    EXPECT_THAT(labels, ElementsAre(ElementsAre(0, 1, 2), ElementsAre(5), ElementsAre(7)));
    EXPECT_EQ(loader.skipped_images(), 3);
    EXPECT_THAT(log.lines(),
                ElementsAre(HasSubstr("skipped image 3 of pixels: image3.jpg: damaged"),
                            HasSubstr("image4.jpg"), HasSubstr("image6.jpg")));
    // Positions in the epoch count skipped images, so a restored run sees the same batches.
    loader.set_epoch(1);
    Batch batch;
    loader.next(batch);
    loader.next(batch);
    loader.restore(loader.position());
    ASSERT_TRUE(loader.next(batch));
    EXPECT_THAT(to_vector(batch.labels), ElementsAre(7));
  }
}

TEST(LoaderCorruptImage, ManyAreNotAllNamed) {
  const testing_support::CapturedLog log;
  std::set<std::int64_t> odd;
  for (int i = 1; i < 60; i += 2) odd.insert(i);
  Loader loader(pixels(60, odd), EvaluationSampler(60), kPlain,
                {.batch_size = 4, .on_corrupt_image = OnCorruptImage::kSkip});
  for (const Batch& batch : loader) EXPECT_EQ(batch.size, 2);
  EXPECT_EQ(loader.skipped_images(), 30);
  ASSERT_EQ(log.lines().size(), 10U);
  EXPECT_THAT(log.lines().back(), HasSubstr("others are only counted"));
}

TEST(LoaderCorruptImage, ABatchWithoutAnyImageIsAnError) {
  Loader loader(pixels(4, {2, 3}), EvaluationSampler(4), kPlain,
                {.batch_size = 2, .on_corrupt_image = OnCorruptImage::kSkip});
  Batch batch;
  EXPECT_TRUE(loader.next(batch));
  EXPECT_THAT(
      message_of<DataError>([&] { loader.next(batch); }),
      HasSubstr("none of the 2 images of a batch can be read; the first: image2.jpg: damaged"));
}

// Only damaged files are skipped. An error of a source is a defect of the program.
TEST(LoaderCorruptImage, AWrongSourceIsNotSkipped) {
  class Wrong final : public ImageSource {
   public:
    std::int64_t size() const override { return 4; }
    void read(std::int64_t index, ImageReader& reader) const override {
      static constexpr std::uint8_t kPixel = 7;
      if (index != 3) reader.show(ImageView::planar(&kPixel, {1, 1, 1}));
    }
    std::int64_t label(std::int64_t index) const override { return index == 1 ? 10 : 0; }
  };
  const ImageDataset dataset("wrong", {1, 1, 1}, 10, std::make_shared<const Wrong>());
  for (const int threads : {0, 2}) {
    Loader loader(dataset, EvaluationSampler(4), kPlain,
                  {.batch_size = 2, .threads = threads, .on_corrupt_image = OnCorruptImage::kSkip});
    Batch batch;
    EXPECT_THAT(message_of<DataError>([&] { loader.next(batch); }),
                HasSubstr("data set wrong: image 1 has label 10, expected 0 to 9"));
    loader.set_epoch(0, 1);
    EXPECT_THAT(message_of<ConfigError>([&] { loader.next(batch); }),
                HasSubstr("read() of its ImageSource showed no image 3"));
  }
}

// The squares of the indices. Records the processors on which its threads run.
class Squares final : public BatchDataset<Batch> {
 public:
  std::int64_t size() const override { return 10; }
  void get(const BatchRequest& request, Batch& batch) const override {
    {
      const std::lock_guard lock(mutex_);
      cpus.insert(available_cpus());
    }
    batch.labels = torch::empty({request.size()}, torch::kInt64);
    std::copy(request.indices.begin(), request.indices.end(),
              batch.labels.data_ptr<std::int64_t>());
    batch.images = batch.labels.square().to(torch::kFloat64).unsqueeze(1);
  }
  mutable std::set<std::vector<int>> cpus;

 private:
  mutable std::mutex mutex_;
};

TEST(LoaderOfBatches, GivesWhatTheDataSetMakes) {
  for (const int threads : {0, 3}) {
    Loader loader(std::make_shared<const Squares>(), DistributedSampler(10, {.seed = 3}),
                  {.batch_size = 4, .threads = threads});
    EXPECT_EQ(loader.steps_per_epoch(), 3);
    std::vector<std::int64_t> seen;
    for (const Batch& batch : loader) {
      EXPECT_EQ(batch.images.scalar_type(), torch::kFloat64);
      EXPECT_TRUE(torch::equal(batch.images.squeeze(1), batch.labels.square().to(torch::kFloat64)));
      for (const std::int64_t label : to_vector(batch.labels)) seen.push_back(label);
    }
    EXPECT_EQ(seen, DistributedSampler(10, {.seed = 3}).indices(0));
  }
}

TEST(LoaderOfBatches, RefusesWhatDoesNotFit) {
  class Short final : public BatchDataset<Batch> {
   public:
    std::int64_t size() const override { return 4; }
    void get(const BatchRequest&, Batch& batch) const override {
      batch.images = torch::zeros({1, 2});
    }
  };
  const auto data = std::make_shared<const Short>();
  Loader loader(data, EvaluationSampler(4), {.batch_size = 2});
  Batch batch;
  EXPECT_THAT(message_of<ConfigError>([&] { loader.next(batch); }),
              HasSubstr("asked for 2 samples, made [1, 2]"));
  EXPECT_THAT(message_of<ConfigError>(
                  [&] { Loader(data, EvaluationSampler(4), {.engine = LoaderEngineKind::kDali}); }),
              HasSubstr("the dali engine makes batches of images"));
  EXPECT_THAT(
      message_of<ConfigError>([&] { Loader(data, EvaluationSampler(4), {.mix = MixUp{}}); }),
      HasSubstr("a mix needs the classes of an ImageDataset"));
  for (const auto& [option, options] : std::map<const char*, LoaderOptions>{
           {"on_corrupt_image", {.on_corrupt_image = OnCorruptImage::kSkip}},
           {"channels_last", {.channels_last = true}},
           {"dtype", {.dtype = torch::kBFloat16}}}) {
    EXPECT_THAT(message_of<ConfigError>([&] { Loader(data, EvaluationSampler(4), options); }),
                HasSubstr(lockstep::str(option, " is about images")));
  }
  EXPECT_THAT(message_of<ConfigError>([&] {
                Loader(std::shared_ptr<const BatchDataset<Batch>>(), EvaluationSampler(4), {});
              }),
              HasSubstr("got no data set"));
}

// Makes the tensors that it was given, whatever the loader asks for.
class Given final : public BatchDataset<Batch> {
 public:
  Given(torch::Tensor images, torch::Tensor labels)
      : images_(std::move(images)), labels_(std::move(labels)) {}
  std::int64_t size() const override { return 4; }
  void get(const BatchRequest&, Batch& batch) const override {
    batch.images = images_;
    batch.labels = labels_;
  }

 private:
  torch::Tensor images_;
  torch::Tensor labels_;
};

TEST(LoaderOfBatches, RefusesImagesAndLabelsOfAnotherSize) {
  const torch::Tensor images = torch::zeros({2, 5});
  const torch::Tensor labels = torch::zeros({2}, torch::kInt64);
  const struct {
    torch::Tensor images;
    torch::Tensor labels;
    const char* made;
  } cases[] = {{images, torch::zeros({3}, torch::kInt64), "made [3]"},
               {images, torch::zeros({0, 2}, torch::kInt64), "made [0, 2]"},
               {images, torch::zeros({}, torch::kInt64), "made []"},
               {images, torch::Tensor(), "made no tensor"},
               {torch::Tensor(), labels, "made no tensor"},
               {torch::zeros({}), labels, "made []"}};
  for (const int threads : {0, 1}) {
    for (const auto& wrong : cases) {
      Loader loader(std::make_shared<const Given>(wrong.images, wrong.labels), EvaluationSampler(4),
                    {.batch_size = 2, .threads = threads});
      Batch batch;
      EXPECT_EQ(message_of<ConfigError>([&] { loader.next(batch); }),
                lockstep::str("BatchDataset::get: was asked for 2 samples, ", wrong.made));
    }
    Loader loader(std::make_shared<const Given>(images, labels), EvaluationSampler(4),
                  {.batch_size = 2, .threads = threads});
    Batch batch;
    ASSERT_TRUE(loader.next(batch));
    EXPECT_EQ(batch.size, 2);
  }
}

TEST(LoaderOfBatches, PassesOnWhatTheDataSetThrows) {
  class Sensor final : public BatchDataset<Batch> {
   public:
    std::int64_t size() const override { return 8; }
    void get(const BatchRequest& request, Batch& batch) const override {
      if (silent && request.indices.front() == 4) throw std::runtime_error("sensor 4 is silent");
      batch.labels = torch::full({request.size()}, request.indices.front());
      batch.images = batch.labels;
    }
    std::atomic<bool> silent = true;
  };
  for (const int threads : {0, 2}) {
    const auto sensor = std::make_shared<Sensor>();
    Loader loader(sensor, EvaluationSampler(8), {.batch_size = 2, .threads = threads});
    Batch batch;
    ASSERT_TRUE(loader.next(batch));
    ASSERT_TRUE(loader.next(batch));
    EXPECT_EQ(message_of<std::runtime_error>([&] { loader.next(batch); }), "sensor 4 is silent");
    sensor->silent = false;
    loader.set_epoch(1);
    std::vector<std::int64_t> seen;
    while (loader.next(batch)) seen.push_back(batch.labels[0].item<std::int64_t>());
    EXPECT_THAT(seen, ElementsAre(0, 2, 4, 6));
  }
}

TEST(LoaderMix, MixesEachBatchInItsOwnWay) {
  const LoaderOptions options = {.batch_size = 4, .threads = 1, .seed = 5, .mix = MixUp{}};
  Loader loader(pixels(12, {}), DistributedSampler(12, {.seed = 1}), kPlain, options);
  std::vector<double> shares;
  torch::Tensor second;
  for (const Batch& batch : loader) {
    ASSERT_EQ(batch.labels.sizes(), (torch::IntArrayRef{4, 12}));
    EXPECT_TRUE(torch::allclose(batch.labels.sum(1), torch::ones({4})));
    // A pixel's value is its image's number, so a mixed pixel is the mean of the mixed labels.
    const auto numbers = torch::arange(12, torch::kFloat32);
    EXPECT_TRUE(
        torch::allclose(batch.images.flatten() * 255, batch.labels.matmul(numbers), 1e-4, 1e-4));
    shares.push_back(batch.labels.amax().item<double>());
    if (shares.size() == 2) second = batch.images.clone();
  }
  EXPECT_EQ(std::set(shares.begin(), shares.end()).size(), 3U) << "the choice is of the batch";
  Batch batch;
  loader.set_epoch(0);
  ASSERT_TRUE(loader.next(batch));
  Loader resumed(pixels(12, {}), DistributedSampler(12, {.seed = 1}), kPlain, options);
  resumed.restore(loader.position());
  ASSERT_TRUE(resumed.next(batch));
  EXPECT_TRUE(torch::equal(batch.images, second)) << "and a function of its place";
}

// Gives the first four images, then the same four again.
class Twice final : public Sampler {
 public:
  std::vector<std::int64_t> indices(std::int64_t) const override {
    return {0, 1, 2, 3, 0, 1, 2, 3};
  }
  std::int64_t size() const override { return 8; }
};

TEST(LoaderMix, DependsOnSeedEpochPlaceAndFirstImage) {
  // All labels differ, so the largest probability in a batch is the larger share of its mix.
  const auto shares_of = [](const Sampler& sampler, std::uint64_t seed, std::int64_t epoch) {
    Loader loader(pixels(12, {}), std::shared_ptr<const Sampler>(&sampler, [](const Sampler*) {}),
                  kPlain, {.batch_size = 4, .seed = seed, .mix = MixUp{}});
    loader.set_epoch(epoch);
    std::vector<double> shares;
    for (const Batch& batch : loader) shares.push_back(batch.labels.amax().item<double>());
    return shares;
  };
  const EvaluationSampler first(8, 0, 2);  // images 0, 2, 4, 6
  const EvaluationSampler second(8, 1, 2);
  const std::vector<double> shares = shares_of(first, 5, 1);
  ASSERT_EQ(shares.size(), 1U);
  EXPECT_EQ(shares_of(first, 5, 1), shares);
  EXPECT_NE(shares_of(first, 6, 1), shares) << "another seed";
  EXPECT_NE(shares_of(first, 5, 2), shares) << "another epoch";
  EXPECT_NE(shares_of(second, 5, 1), shares) << "another rank";
  const std::vector<double> twice = shares_of(Twice(), 5, 1);
  ASSERT_EQ(twice.size(), 2U);
  EXPECT_NE(twice[0], twice[1]) << "another place";
  EXPECT_EQ(twice[0], shares[0]) << "the same first image in the same place";
}

// Under SCHED_OTHER, a loader thread that wakes up could preempt the trainer on a shared processor.
TEST(LoaderThreads, DoNotPreemptTheTrainer) {
  class Policies final : public BatchDataset<Batch> {
   public:
    std::int64_t size() const override { return 2; }
    void get(const BatchRequest& request, Batch& batch) const override {
      batch.images = torch::full({request.size()}, sched_getscheduler(0));
      batch.labels = batch.images;
    }
  };
  Loader loader(std::make_shared<const Policies>(), EvaluationSampler(2),
                {.batch_size = 2, .threads = 1});
  Batch batch;
  ASSERT_TRUE(loader.next(batch));
  EXPECT_EQ(batch.images[0].item<int>(), SCHED_BATCH);
  EXPECT_EQ(sched_getscheduler(0), SCHED_OTHER);
}

TEST(LoaderThreads, StayBesideTheirRank) {
  const std::vector<int> all = available_cpus();
  const std::vector<int> last = {all.back()};
  const auto seen_by = [](const LoaderOptions& options) {
    const auto data = std::make_shared<const Squares>();
    Loader loader(data, EvaluationSampler(10), options);
    Batch batch;
    while (loader.next(batch)) continue;
    return data->cpus;
  };
  EXPECT_THAT(seen_by({.batch_size = 2, .threads = 2, .cpus = last}), ElementsAre(last));
  std::thread rank([&] {  // pinned as by the launcher
    ASSERT_TRUE(pin_to_cpus(last));
    EXPECT_THAT(seen_by({.batch_size = 2, .threads = 2}), ElementsAre(last));
  });
  rank.join();
  EXPECT_EQ(available_cpus(), all);
  // If the engine has no threads, the copying thread does the host's work.
  const auto data = std::make_shared<const Squares>();
  const LoaderOptions options = {.batch_size = 2, .cpus = last};
  const auto copies =
      data::copy_to_device(std::make_unique<data::RingEngine>(
                               options,
                               [&](int, const BatchRequest& request, LoadedBatch& loaded) {
                                 Batch batch;
                                 data->get(request, batch);
                                 loaded.store(batch);
                               }),
                           options);
  const std::vector<std::int64_t> indices = {1, 2};
  copies->start({.indices = indices, .batches = 1});
  LoadedBatch loaded;
  ASSERT_TRUE(copies->next(loaded));
  EXPECT_THAT(data->cpus, ElementsAre(last));
}

// Without a GPU, batches are copied to other memory of the CPU through the same two rings.
class DeviceCopy : public ::testing::TestWithParam<int> {
 protected:
  std::unique_ptr<detail::LoaderEngine> engine(std::set<std::int64_t> damaged = {}) const {
    return data::copy_to_device(
        detail::make_native_engine(pixels(20, std::move(damaged)), kPlain,
                                   {.batch_size = 3, .threads = GetParam()}),
        {});
  }
  // The labels of each batch, and the address of its images.
  std::vector<std::vector<std::int64_t>> read(detail::LoaderEngine& engine,
                                              std::size_t most = 100) {
    std::vector<std::vector<std::int64_t>> labels;
    for (LoadedBatch loaded; labels.size() < most && engine.next(loaded);) {
      const Batch batch = loaded.batch<Batch>();
      labels.push_back(to_vector(batch.labels));
      memory_.insert(batch.images.data_ptr());
      EXPECT_TRUE(torch::allclose(batch.images.flatten() * 255, batch.labels.to(torch::kFloat32)));
    }
    return labels;
  }
  detail::LoaderEpoch epoch(std::int64_t first = 0) const {
    return {.indices = std::span(indices_).subspan(first),
            .batches = (static_cast<std::int64_t>(indices_.size()) - first + 2) / 3};
  }

  std::vector<std::int64_t> indices_ = {7, 3, 9, 1, 0, 2, 19, 18};
  std::set<const void*> memory_;
};

TEST_P(DeviceCopy, GivesTheSameBatchesInMemoryOfItsOwn) {
  const auto copies = engine();
  for (int round = 0; round < 20; ++round) {
    copies->start(epoch());
    EXPECT_THAT(read(*copies),
                ElementsAre(ElementsAre(7, 3, 9), ElementsAre(1, 0, 2), ElementsAre(19, 18)));
    copies->start(epoch());
    EXPECT_EQ(read(*copies, 1).size(), 1U);  // the epoch is abandoned halfway
    copies->start(epoch(6));
    EXPECT_THAT(read(*copies), ElementsAre(ElementsAre(19, 18)));
    copies->stop();
    EXPECT_TRUE(read(*copies).empty());
  }
  EXPECT_LE(memory_.size(), 3U);
}

TEST_P(DeviceCopy, PassesErrorsOn) {
  const auto copies = engine({0});
  copies->start(epoch());
  EXPECT_EQ(read(*copies, 1).size(), 1U);
  LoadedBatch loaded;
  EXPECT_THAT(message_of<DataError>([&] { copies->next(loaded); }), HasSubstr("image0.jpg"));
  EXPECT_FALSE(copies->next(loaded));
}

// Slots are reused: what one batch has left out must not be said of a later one.
TEST_P(DeviceCopy, SaysOfEachBatchWhatWasLeftOut) {
  const auto copies = data::copy_to_device(
      detail::make_native_engine(
          pixels(20, {1, 9}), kPlain,
          {.batch_size = 2, .threads = GetParam(), .on_corrupt_image = OnCorruptImage::kSkip}),
      {});
  std::vector<std::int64_t> all(20);
  std::iota(all.begin(), all.end(), 0);
  for (int round = 0; round < 2; ++round) {
    copies->start({.indices = all, .batches = 10});
    for (std::int64_t batch = 0; batch < 10; ++batch) {
      LoadedBatch loaded;
      ASSERT_TRUE(copies->next(loaded));
      const bool is_damaged = batch == 0 || batch == 4;
      ASSERT_EQ(loaded.skipped.size(), is_damaged ? 1U : 0U) << "batch " << batch;
      EXPECT_EQ(loaded.batch<Batch>().size, is_damaged ? 1 : 2);
      if (!is_damaged) continue;
      EXPECT_EQ(loaded.skipped[0].index, 2 * batch + 1);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Threads, DeviceCopy, ::testing::Values(0, 2));

// On the CPU and in a build without CUDA, the message shows which engine was asked for.
TEST(LoaderEngines, AreThoseOfTheOption) {
  EXPECT_THAT(message_of<ConfigError>([] {
                Loader(pixels(4, {}), EvaluationSampler(4), kPlain,
                       {.engine = LoaderEngineKind::kCuda});
              }),
              HasSubstr("Loader: the cuda engine "));
}

TEST(LoaderEngines, HaveNames) {
  for (const std::string name : {"native", "cuda", "dali"}) {
    EXPECT_EQ(to_string(parse_loader_engine(name)), name);
  }
  EXPECT_THAT(message_of<ConfigError>([] { parse_loader_engine("gpu"); }),
              HasSubstr("engine must be one of native, cuda, dali"));
}

}  // namespace
}  // namespace lockstep::testing_support
