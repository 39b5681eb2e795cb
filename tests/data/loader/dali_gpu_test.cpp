// The dali engine on a GPU makes the batches of the native one: DALI's GPU operators and its mixed
// decoder. These are the only tests that need a GPU and DALI. The kit of `make gpu` has them, but
// not DALI, which is too large for it (docs/benchmarks/gpu.md).
#include <string>

#include <gtest/gtest.h>
#include <torch/cuda.h>

#include <lockstep/data/datasets/packed_images.h>
#include <lockstep/data/preparation/pack_images.h>
#include <tests/data/loader/dali_cases.h>
#include <tests/data/photo_folder.h>
#include <tests/support/devices/dali.h>
#include <tests/support/devices/gpu.h>

namespace lockstep::testing_support {
namespace {

LoaderOptions on_gpu(LoaderOptions options) {
  options.device = kGpu;
  return options;
}

struct DaliGpuCase {
  const char* name;
  Augmentation operators;
  LoaderOptions options{.batch_size = 20, .threads = 2};
  double most = kRounding;
};

class DaliOnAGpu : public ::testing::TestWithParam<DaliGpuCase> {
 protected:
  void SetUp() override {
    if (!torch::cuda::is_available()) GTEST_SKIP() << "needs a GPU";
    LOCKSTEP_SKIP_WITHOUT_DALI;
  }
};

TEST_P(DaliOnAGpu, MakesTheNativeBatches) {
  const DaliGpuCase& given = GetParam();
  EXPECT_LT(compare(records(53), given.operators, on_gpu(given.options)).worst, given.most);
}

INSTANTIATE_TEST_SUITE_P(
    Lists, DaliOnAGpu,
    ::testing::Values(
        DaliGpuCase{"Cifar", kCifar},
        DaliGpuCase{"InlineAndChannelsLast", kCifar, {.batch_size = 20, .channels_last = true}},
        DaliGpuCase{"Float16", kCifar, {.batch_size = 20, .dtype = torch::kFloat16}, 0.13},
        DaliGpuCase{"Erased",
                    {Pad{4}, RandomCrop{32}, RandomErasing{0.7, {0.02, 0.33}, {0.3, 3.3}, 0.4},
                     Cutout{9}, kNormalize, Cutout{8}, RandomErasing{0.7}}},
        DaliGpuCase{
            "EveryMove",
            {RandomVerticalFlip{}, CenterCrop{{20, 40}}, Pad{2, 9}, Pad{1, 7}, RandomCrop{{21, 30}},
             RandomHorizontalFlip{}, Pad{2, 7}, Cutout{6}, RandomCrop{18}, kNormalize}}),
    [](const auto& info) { return std::string(info.param.name); });

class DaliFilesOnAGpu : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!torch::cuda::is_available()) GTEST_SKIP() << "needs a GPU";
    LOCKSTEP_SKIP_WITHOUT_DALI;
  }
  static double mean_difference(const ImageDataset& images, const Augmentation& operators) {
    return compare(images, operators, on_gpu({.batch_size = 16, .threads = 2})).mean;
  }
  PhotoFolder folder;
};

// Resampling differs between the engines, as on the CPU.
TEST_F(DaliFilesOnAGpu, AgreeOnResizedCrops) {
  EXPECT_LT(mean_difference(folder.dataset(), kPhoto), 2);
  EXPECT_LT(mean_difference(folder.dataset(), kValidation), 2);
}

TEST_F(DaliFilesOnAGpu, AgreeOnResizedCropsOfPixels) {
  pack_images(folder.dataset(), folder / "pack", {});
  EXPECT_LT(mean_difference(load_packed_images(folder / "pack"), kPhoto), 2);
  EXPECT_LT(mean_difference(records(20, {3, 90, 70}), kValidation), 2);
}

TEST_F(DaliFilesOnAGpu, AreTheSameWithAnyThreadsAndPrefetch) {
  const auto epoch = [](LoaderOptions options) {
    options.batch_size = 10;
    Loader loader = make(records(53), kCifar, LoaderEngineKind::kDali, on_gpu(options));
    auto batches = read_epoch(loader, 2);
    for (auto& batch : batches) {
      batch.images = batch.images.cpu();
      batch.labels = batch.labels.cpu();
    }
    return batches;
  };
  const auto inline_batches = epoch({.threads = 0});
  expect_equal(inline_batches, epoch({.threads = 1, .prefetch = 1}));
  expect_equal(inline_batches, epoch({.threads = 3, .prefetch = 5}));
}

}  // namespace
}  // namespace lockstep::testing_support
