// The dali engine makes the batches of the native one on the CPU. All tests but those of refusals
// skip without DALI. dali_gpu_test.cpp has those of a GPU, so that they alone need both.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include <lockstep/core/cpu.h>
#include <lockstep/core/error.h>
#include <lockstep/data/datasets/image_folder.h>
#include <lockstep/data/datasets/packed_images.h>
#include <lockstep/data/datasets/tensor_dataset.h>
#include <lockstep/data/loader/dali_batch.h>
#include <lockstep/data/loader/loader.h>
#include <lockstep/data/preparation/pack_images.h>
#include <tests/data/loader/dali_cases.h>
#include <tests/data/loader/epoch_batches.h>
#include <tests/data/photo_folder.h>
#include <tests/support/data_bytes.h>
#include <tests/support/devices/dali.h>
#include <tests/support/messages.h>
#include <tests/support/real_data.h>
#include <tests/support/temporary_directory.h>

namespace lockstep::testing_support {
namespace {

using ::testing::AllOf;
using ::testing::EndsWith;
using ::testing::HasSubstr;

struct ExactCase {
  const char* name;
  Augmentation operators;
  LoaderOptions options;
  double most = kRounding;
};

class DaliEngineExact : public ::testing::TestWithParam<ExactCase> {};

TEST_P(DaliEngineExact, MakesTheNativeBatches) {
  LOCKSTEP_SKIP_WITHOUT_DALI;
  EXPECT_LT(compare(records(53), GetParam().operators, GetParam().options).worst, GetParam().most);
}

INSTANTIATE_TEST_SUITE_P(
    Lists, DaliEngineExact,
    ::testing::Values(
        ExactCase{"Cifar", kCifar, {.batch_size = 20, .threads = 2}},
        ExactCase{"InlineAndChannelsLast", kCifar, {.batch_size = 20, .channels_last = true}},
        ExactCase{
            "Float16", kCifar, {.batch_size = 20, .threads = 1, .dtype = torch::kFloat16}, 0.13},
        ExactCase{"Erased",
                  {Pad{4}, RandomCrop{32}, RandomErasing{0.7, {0.02, 0.33}, {0.3, 3.3}, 0.4},
                   Cutout{9}, kNormalize, Cutout{8}, RandomErasing{0.7}},
                  {.batch_size = 20, .threads = 1}},
        ExactCase{"OnlyCropped",
                  {RandomCrop{{20, 27}}, RandomHorizontalFlip{}, kNormalize},
                  {.batch_size = 20, .threads = 1}},
        ExactCase{
            "EveryMove",
            {RandomVerticalFlip{}, CenterCrop{{20, 40}}, Pad{2, 9}, Pad{1, 7}, RandomCrop{{21, 30}},
             RandomHorizontalFlip{}, Pad{2, 7}, Cutout{6}, RandomCrop{18}, kNormalize},
            {.batch_size = 20, .threads = 1}}),
    [](const auto& info) { return std::string(info.param.name); });

TEST(DaliEngine, TakesImagesOfOneChannel) {
  LOCKSTEP_SKIP_WITHOUT_DALI;
  const Augmentation digits = {RandomCrop{24}, Normalize{{0.1307}, {0.3081}}, Cutout{5}};
  EXPECT_LT(compare(records(30, {1, 28, 28}), digits, {.batch_size = 8, .threads = 1}).worst,
            kRounding);
}

void expect_close(const ImageDataset& dataset, const Augmentation& operators) {
  const Difference difference = compare(dataset, operators, {.batch_size = 16, .threads = 2});
  EXPECT_LT(difference.mean, 2);
}

class DaliEngineFiles : public ::testing::Test {
 protected:
  ImageDataset dataset() const { return folder.dataset(); }
  PhotoFolder folder;
};

// The images of a data set through a source that does not declare their shape.
class AsSource final : public ImageSource {
 public:
  explicit AsSource(ImageDataset dataset) : dataset_(std::move(dataset)) {}
  std::int64_t size() const override { return dataset_.size(); }
  void read(std::int64_t index, ImageReader& reader) const override {
    dataset_.read(index, reader);
  }
  std::int64_t label(std::int64_t index) const override { return dataset_.label(index); }

 private:
  const ImageDataset dataset_;
};

TEST_F(DaliEngineFiles, AgreeOnResizedCrops) {
  LOCKSTEP_SKIP_WITHOUT_DALI;
  expect_close(dataset(), kPhoto);
  expect_close(dataset(), kValidation);
}

// DALI gets pixels, planar as in a tensor and interleaved as in a pack, and crops and resizes them.
TEST_F(DaliEngineFiles, AgreeOnResizedCropsOfPixels) {
  LOCKSTEP_SKIP_WITHOUT_DALI;
  pack_images(dataset(), folder / "pack", {});
  for (const ImageDataset& pixels :
       {load_packed_images(folder / "pack"), records(20, {3, 90, 70}), records(20)}) {
    EXPECT_FALSE(data::dali_input_of(pixels).encoded);
    expect_close(pixels, kPhoto);
    expect_close(pixels, kValidation);
  }
}

TEST_F(DaliEngineFiles, AreCutExactly) {
  LOCKSTEP_SKIP_WITHOUT_DALI;
  const Augmentation cut = {RandomCrop{40}, RandomHorizontalFlip{}, kNormalize};
  EXPECT_LT(compare(dataset(), cut, {.batch_size = 16, .threads = 1}).worst, kRounding);
  const Augmentation padded = {Pad{3}, RandomCrop{40}, kNormalize, Cutout{7}};
  EXPECT_LT(compare(dataset(), padded, {.batch_size = 16, .threads = 1}).worst, kRounding);
}

TEST_F(DaliEngineFiles, AndPixelsMayBeMixed) {
  LOCKSTEP_SKIP_WITHOUT_DALI;
  const ImageDataset files = dataset();
  const auto tensor = torch::arange(7 * 3 * 50 * 60).remainder(251).to(torch::kUInt8);
  const ImageDataset pixels =
      image_dataset(tensor.view({7, 3, 50, 60}), torch::arange(7).remainder(3), 3);
  const ImageDataset of_own_sizes("pixels", {3, 0, 0}, 3, std::make_shared<const AsSource>(pixels));
  const Augmentation cut = {RandomCrop{40}, RandomHorizontalFlip{}, kNormalize};
  for (const auto& mixed : {concatenate({files, of_own_sizes}), concatenate({of_own_sizes, files}),
                            subset(concatenate({files, of_own_sizes}), {0, 22, 1, 25, 3})}) {
    EXPECT_FALSE(data::dali_input_of(mixed).encoded);
    EXPECT_LT(compare(mixed, cut, {.batch_size = 4, .threads = 1}).worst, kRounding);
  }
  EXPECT_TRUE(data::dali_input_of(files).encoded);
  EXPECT_TRUE(data::dali_input_of(subset(concatenate({files, of_own_sizes}), {0, 1, 3})).encoded);
}

TEST_F(DaliEngineFiles, DamagedOnesAreNamedAndTheNextEpochGoesOn) {
  LOCKSTEP_SKIP_WITHOUT_DALI;
  Loader loader = make(dataset(), kPhoto, LoaderEngineKind::kDali, {.batch_size = 4, .threads = 1});
  for (const char* name : {"1/4.png", "1/7.jpg"}) {
    const std::string whole = read_text(folder / name);
    for (const std::size_t left : {std::size_t{20}, whole.size() / 2}) {
      folder.write(name, whole.substr(0, left));
      EXPECT_THAT(message_of<DataError>([&] { read_epoch(loader, 0); }), HasSubstr(name)) << left;
      folder.write(name, whole);
      EXPECT_EQ(read_epoch(loader, 0).size(), 6U) << name << left;
    }
  }
}

TEST(DaliEngine, AgreesOnPhotosOfTrashNet) {
  LOCKSTEP_SKIP_WITHOUT_DALI;
  LOCKSTEP_SKIP_WITHOUT("trashnet");
  const ImageDataset photos = load_image_folder(*real_data("trashnet"));
  std::vector<std::int64_t> some;
  for (std::int64_t i = 0; i < photos.size(); i += photos.size() / 40) some.push_back(i);
  expect_close(subset(photos, some), kPhoto);
  expect_close(subset(photos, some), kValidation);
}

TEST(DaliEngine, ThreadsAndPrefetchDoNotChangeTheBatches) {
  LOCKSTEP_SKIP_WITHOUT_DALI;
  const ImageDataset dataset = records(53);
  const auto epoch = [&](LoaderOptions options) {
    options.batch_size = 10;
    Loader loader = make(dataset, kCifar, LoaderEngineKind::kDali, options);
    return read_epoch(loader, 2);
  };
  const auto inline_batches = epoch({.threads = 0});
  ASSERT_EQ(inline_batches.size(), 6U);
  EXPECT_EQ(inline_batches.back().size, 3);
  expect_equal(inline_batches, epoch({.threads = 1, .prefetch = 1}));
  expect_equal(inline_batches, epoch({.threads = 3, .prefetch = 5}));
}

TEST(DaliEngine, GoesOnInMidEpoch) {
  LOCKSTEP_SKIP_WITHOUT_DALI;
  Loader loader =
      make(records(53), kCifar, LoaderEngineKind::kDali, {.batch_size = 10, .threads = 1});
  const auto whole = read_epoch(loader, 4);
  loader.set_epoch(1);
  Batch given_up;
  ASSERT_TRUE(loader.next(given_up));
  const auto rest = read_epoch(loader, 4, 2);
  expect_equal({whole.begin() + 2, whole.end()}, rest);
}

// What /proc reports about the threads whose names contain `word`.
std::set<std::string> processors_of_threads(const std::string& word) {
  std::set<std::string> processors;
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
    if (read_text(task.path() / "comm").find(word) == std::string::npos) continue;
    const std::string status = read_text(task.path() / "status");
    const std::string key = "Cpus_allowed_list:\t";
    const std::size_t begin = status.find(key) + key.size();
    processors.insert(status.substr(begin, status.find('\n', begin) - begin));
  }
  return processors;
}

TEST(DaliEngine, DalisThreadsKeepToTheLoadersProcessors) {
  LOCKSTEP_SKIP_WITHOUT_DALI;
  const std::vector<int> before = available_cpus();
  Loader loader = make(records(8), kCifar, LoaderEngineKind::kDali,
                       {.batch_size = 4, .threads = 2, .cpus = {before.back()}});
  EXPECT_THAT(processors_of_threads("DALI"), ::testing::ElementsAre(std::to_string(before.back())));
  EXPECT_EQ(available_cpus(), before);
}

TEST(DaliEngine, RefusesByName) {
  const ImageDataset dataset = records(8);
  const auto refusal = [&](Augmentation operators, LoaderOptions options) {
    return message_of<ConfigError>(
        [&] { make(dataset, operators, LoaderEngineKind::kDali, options); });
  };
  EXPECT_EQ(
      refusal({RandomRotation{10}, kNormalize}, {}),
      "Loader: the dali engine cannot execute RandomRotation; set LoaderOptions::engine to native");
  EXPECT_EQ(refusal(kCifar, {.dtype = torch::kBFloat16}),
            "Loader: the dali engine cannot make bfloat16 images; use float32 or float16, or "
            "set LoaderOptions::engine to native");
  EXPECT_THAT(refusal(kCifar, {.on_corrupt_image = OnCorruptImage::kSkip}),
              AllOf(HasSubstr("Loader: the dali engine cannot skip damaged images"),
                    EndsWith("leave LoaderOptions::on_corrupt_image at stop, or set "
                             "LoaderOptions::engine to native")));
}

#ifndef LOCKSTEP_HAS_DALI
TEST(DaliEngine, SaysHowToGetDali) {
  EXPECT_THAT(
      message_of<ConfigError>([] { make(records(8), kCifar, LoaderEngineKind::kDali, {}); }),
      AllOf(HasSubstr("Loader: the dali engine needs NVIDIA DALI"), HasSubstr("run `make dali`")));
}
#endif

}  // namespace
}  // namespace lockstep::testing_support
