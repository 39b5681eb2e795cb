// The cuda engine with its kernel's work done on the CPU must make the native engine's batches, bit
// for bit. The tests on a GPU then only need to show that the kernel calls the same function for
// every pixel.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include <lockstep/core/error.h>
#include <lockstep/data/loader/cuda/gather_engine.h>
#include <lockstep/data/loader/loader.h>
#include <tests/support/data_bytes.h>
#include <tests/support/messages.h>

namespace lockstep::testing_support {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

// Images of 10x12, planar or interleaved.
class Photos final : public ImageSource {
 public:
  Photos(std::int64_t channels, bool interleaved)
      : channels_(channels),
        interleaved_(interleaved),
        bytes_(pattern(kCount * 120 * channels, 3)) {}
  std::int64_t size() const override { return kCount; }
  void read(std::int64_t index, ImageReader& reader) const override {
    const auto* pixels =
        reinterpret_cast<const std::uint8_t*>(bytes_.data()) + index * 120 * channels_;
    ImageView view = ImageView::planar(pixels, {channels_, 10, 12});
    if (interleaved_) view = {pixels, {channels_, 10, 12}, 1, 12 * channels_, channels_};
    reader.show(view);
  }
  std::int64_t label(std::int64_t index) const override { return index % 7; }

  static constexpr std::int64_t kCount = 40;

 private:
  const std::int64_t channels_;
  const bool interleaved_;
  const std::string bytes_;
};

ImageDataset photos(std::int64_t channels, bool interleaved = false) {
  return ImageDataset("photos", {channels, 10, 12}, 7,
                      std::make_shared<const Photos>(channels, interleaved));
}

Normalize normalize(std::int64_t channels) {
  const std::vector<double> mean = {0.5, 0.4, 0.3};
  const std::vector<double> std = {0.2, 0.3, 0.4};
  return {{mean.begin(), mean.begin() + channels}, {std.begin(), std.begin() + channels}};
}

void expect_equal_epochs(detail::LoaderEngine& a, detail::LoaderEngine& b, std::int64_t first = 0) {
  std::vector<std::int64_t> indices(Photos::kCount);
  std::iota(indices.rbegin(), indices.rend(), 0);
  std::vector<std::uint32_t> occurrences(
      indices.size());  // as if every third image had occurred before
  for (std::size_t i = 0; i < occurrences.size(); i += 3) occurrences[i] = 1 + i % 2;
  const std::int64_t batches = (Photos::kCount - first + 8) / 9;
  for (std::int64_t epoch = 0; epoch < 2; ++epoch) {
    for (detail::LoaderEngine* engine : {&a, &b}) {
      engine->start({.epoch = epoch,
                     .indices = std::span(indices).subspan(first),
                     .occurrences = std::span(occurrences).subspan(first),
                     .batches = batches});
    }
    LoadedBatch from_a;
    LoadedBatch from_b;
    std::int64_t count = 0;
    while (a.next(from_a)) {
      ++count;
      ASSERT_TRUE(b.next(from_b));
      const Batch of_a = from_a.batch<Batch>();
      const Batch of_b = from_b.batch<Batch>();
      EXPECT_EQ(of_a.size, of_b.size);
      EXPECT_EQ(of_a.images.strides(), of_b.images.strides());
      EXPECT_TRUE(torch::equal(of_a.images, of_b.images));
      EXPECT_TRUE(torch::equal(of_a.labels, of_b.labels));
    }
    EXPECT_FALSE(b.next(from_b));
    EXPECT_EQ(count, batches);
  }
}

TEST(GatherEngine, GivesTheNativeEnginesBatchesBitForBit) {
  const std::vector<Augmentation> lists = {
      {},
      {Pad{3}, RandomCrop{{10, 12}}, RandomHorizontalFlip{}},
      {Pad{2, 77}, RandomCrop{8}, RandomVerticalFlip{}, Cutout{5},
       RandomErasing{.probability = 0.7, .value = 0.4}},
      {CenterCrop{{14, 6}}, RandomHorizontalFlip{1}, RandomVerticalFlip{1}},
      {RandomCrop{9}, Pad{1}, RandomCrop{8}},
  };
  for (const std::int64_t channels : {1, 3}) {
    for (const Augmentation& list : lists) {
      Augmentation whole = list;
      whole.push_back(normalize(channels));
      whole.push_back(RandomErasing{.probability = 0.5, .value = -1.5});
      whole.push_back(Cutout{3});
      for (const auto dtype : {torch::kFloat32, torch::kBFloat16, torch::kFloat16}) {
        const LoaderOptions options = {.batch_size = 9,
                                       .threads = dtype == torch::kFloat32 ? 2 : 0,
                                       .channels_last = dtype != torch::kBFloat16,
                                       .dtype = dtype,
                                       .seed = 11};
        const ImageDataset images = photos(channels, dtype == torch::kFloat16);
        const auto gather = data::make_gather_engine(images, whole, options, data::gather_on_cpu);
        const auto native = detail::make_native_engine(images, whole, options);
        expect_equal_epochs(*gather, *native);
        expect_equal_epochs(*gather, *native, 15);
      }
    }
  }
}

// As in a training step that has captured the kernel in its CUDA graph.
TEST(GatherEngine, GivesPlansWhileItsKernelIsDeferred) {
  const Augmentation list = {Pad{3}, RandomCrop{{10, 12}}, RandomHorizontalFlip{}, normalize(3)};
  const LoaderOptions options = {.batch_size = 9, .channels_last = true, .seed = 11};
  const auto gather = data::make_gather_engine(photos(3), list, options, data::gather_on_cpu);
  const auto native = detail::make_native_engine(photos(3), list, options);
  EXPECT_FALSE(native->defer_kernel(true));
  const auto kernel = gather->defer_kernel(true);
  ASSERT_TRUE(kernel);
  std::vector<std::int64_t> indices(Photos::kCount);
  std::iota(indices.begin(), indices.end(), 0);
  const std::vector<std::uint32_t> occurrences(indices.size());
  for (detail::LoaderEngine* engine : {&*gather, &*native}) {
    engine->start({.epoch = 1, .indices = indices, .occurrences = occurrences, .batches = 5});
  }
  LoadedBatch planned, loaded;
  Batch plan;  // always at the same address, as a graph requires
  for (int i = 0; i < 5; ++i) {
    ASSERT_TRUE(gather->next(planned) && native->next(loaded));
    const Batch given = planned.batch<Batch>(), expected = loaded.batch<Batch>();
    EXPECT_EQ(given.images.scalar_type(), torch::kUInt8);
    if (i == 0) plan = {given.images.clone(), given.labels.clone(), given.size};
    if (i < 4) plan.images.copy_(given.images), plan.labels.copy_(given.labels);
    const Batch made = kernel->make(i < 4 ? plan : given);  // the last batch is smaller
    EXPECT_EQ(made.size, expected.size);
    EXPECT_EQ(made.images.strides(), expected.images.strides());
    EXPECT_TRUE(torch::equal(made.images, expected.images)) << i;
    EXPECT_TRUE(torch::equal(made.labels, expected.labels)) << i;
  }
  EXPECT_FALSE(gather->next(planned));
  gather->stop();
  EXPECT_TRUE(gather->defer_kernel(false));
  expect_equal_epochs(*gather, *native);
}

TEST(GatherEngine, RefusesByNameWhatItCannotDo) {
  const auto refusal = [](const ImageDataset& images, Augmentation list,
                          LoaderOptions options = {}) {
    list.push_back(normalize(3));
    return message_of<ConfigError>(
        [&] { data::make_gather_engine(images, list, options, data::gather_on_cpu); });
  };
  EXPECT_THAT(refusal(photos(3), {Resize{8}}),
              HasSubstr("Resize is not among what it can execute"));
  EXPECT_THAT(refusal(photos(3), {Cutout{4}, RandomHorizontalFlip{}}),
              HasSubstr("RandomHorizontalFlip would move what was erased before it"));
  EXPECT_THAT(refusal(photos(3), {Pad{1}, Pad{1, 9}}), HasSubstr("Pad pads with another value"));
  EXPECT_THAT(refusal(photos(3), {Cutout{1}, Cutout{1}, Cutout{1}, Cutout{1}, Cutout{1}}),
              HasSubstr("Cutout is one erased area too many"));
  EXPECT_THAT(refusal(photos(3), {RandomCrop{11}}), HasSubstr("augmentation: RandomCrop"));
  EXPECT_THAT(refusal(photos(3), {}, {.on_corrupt_image = OnCorruptImage::kSkip}),
              HasSubstr("cannot skip one"));
  const ImageDataset files("files", {3, 0, 0}, 7, std::make_shared<const Photos>(3, false));
  EXPECT_THAT(refusal(files, {CenterCrop{4}}), HasSubstr("as pixels, and those of files are not"));
}

// Memory is allocated for images of the declared shape.
TEST(GatherEngine, RefusesAnImageOfAnotherShapeThanDeclared) {
  const ImageDataset smaller("smaller", {3, 10, 11}, 7, std::make_shared<const Photos>(3, false));
  EXPECT_THAT(message_of<DataError>([&] {
                data::make_gather_engine(smaller, {normalize(3)}, {.batch_size = 2},
                                         data::gather_on_cpu);
              }),
              HasSubstr("an image of 3x10x12 in a data set of 3x10x11 images (sample 0)"));
}

TEST(CudaEngine, NeedsAGpu) {
  EXPECT_THAT(
      message_of<ConfigError>(
          [] { detail::make_cuda_engine(photos(3), {normalize(3)}, {.batch_size = 2}); }),
      AllOf(HasSubstr("the cuda engine"), HasSubstr("set LoaderOptions::engine to native")));
}

}  // namespace
}  // namespace lockstep::testing_support
