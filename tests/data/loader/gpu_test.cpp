// Loaders on a GPU make the same batches as on the CPU. Skips without a GPU. loader_engine_test.cpp
// and gather_test.cpp test the same code with the copies and the kernel's work done on the CPU.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/cuda.h>

#include <atomic>
#include <memory>
#include <vector>

#include <lockstep/data/datasets/tensor_dataset.h>
#include <lockstep/data/loader/image_buffer.h>
#include <lockstep/data/loader/loader.h>

namespace lockstep::testing_support {
namespace {

class LoaderOnAGpu : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!torch::cuda::is_available()) GTEST_SKIP() << "needs a GPU, and a CUDA build of LibTorch";
  }

  static ImageDataset images() {
    torch::manual_seed(1);
    return image_dataset(torch::randint(256, {300, 3, 32, 32}, torch::kUInt8),
                         torch::arange(300).remainder(10), 10);
  }

  // Each batch is used on the GPU's stream behind work that keeps the GPU busy, as in a trainer's
  // forward pass: a buffer that is refilled too early shows in the sums.
  static std::vector<torch::Tensor> epoch(Loader& loader, bool busy) {
    const torch::Device gpu(torch::kCUDA, 0);
    torch::Tensor load = torch::rand({2048, 2048}, gpu);
    std::vector<torch::Tensor> copies;
    loader.set_epoch(1);
    for (const Batch& batch : loader) {
      if (busy) load = load.matmul(load).tanh();
      copies.push_back(batch.images.clone());
      copies.push_back(batch.labels.clone());
    }
    for (torch::Tensor& copy : copies) copy = copy.cpu();
    return copies;
  }

  static void expect_as_on_the_cpu(LoaderOptions options, const Augmentation& list) {
    LoaderOptions on_cpu = options;
    on_cpu.device = torch::kCPU;
    on_cpu.engine = LoaderEngineKind::kNative;
    const DistributedSampler sampler(300, {.seed = 2});
    Loader expected(images(), sampler, list, on_cpu);
    Loader loader(images(), sampler, list, options);
    const auto theirs = epoch(expected, false);
    const auto ours = epoch(loader, true);
    ASSERT_EQ(ours.size(), theirs.size());
    for (std::size_t i = 0; i < ours.size(); ++i) {
      EXPECT_EQ(ours[i].strides(), theirs[i].strides());
      EXPECT_TRUE(torch::equal(ours[i], theirs[i])) << "batch " << i / 2;
    }
  }
};

const Augmentation kList = {Pad{4}, RandomCrop{32}, RandomHorizontalFlip{}, Cutout{8},
                            Normalize{{0.5, 0.4, 0.3}, {0.2, 0.3, 0.4}}};

TEST_F(LoaderOnAGpu, EveryEngineAndTypeGivesTheBatchesOfTheCpu) {
  for (const LoaderEngineKind engine : {LoaderEngineKind::kNative, LoaderEngineKind::kCuda}) {
    for (const auto dtype : {torch::kFloat32, torch::kBFloat16, torch::kFloat16}) {
      for (const bool channels_last : {false, true}) {
        expect_as_on_the_cpu({.batch_size = 32,
                              .threads = 2,
                              .channels_last = channels_last,
                              .dtype = dtype,
                              .seed = 7,
                              .engine = engine,
                              .device = torch::Device(torch::kCUDA, 0)},
                             kList);
      }
    }
  }
}

TEST_F(LoaderOnAGpu, MixesOnTheGpu) {
  expect_as_on_the_cpu({.batch_size = 32,
                        .engine = LoaderEngineKind::kCuda,
                        .device = torch::Device(torch::kCUDA, 0),
                        .mix = RandomMix{}},
                       kList);
}

TEST_F(LoaderOnAGpu, BatchesOnTheirWayAreInPinnedMemory) {
  const Batch buffer = data::make_image_buffer(
      {.batch_size = 2, .device = torch::Device(torch::kCUDA, 0)}, {3, 4, 5});
  EXPECT_TRUE(buffer.images.is_pinned());
  EXPECT_TRUE(buffer.labels.is_pinned());
}

// Text with lengths, in a user-defined struct.
struct Words {
  torch::Tensor words;
  std::vector<torch::Tensor> lengths;
};

class Sentences final : public BatchDataset<Words> {
 public:
  std::int64_t size() const override { return 40; }
  void get(const BatchRequest& request, Words& batch) const override {
    if (batch.words.defined() && !batch.words.is_pinned()) unpinned = true;
    const auto numbers =
        torch::tensor(torch::IntArrayRef(request.indices.data(), request.indices.size()));
    batch.words = numbers.unsqueeze(1).expand({-1, 5});
    batch.lengths = {numbers.remainder(5), numbers.to(torch::kFloat16)};
  }
  mutable std::atomic<bool> unpinned = false;
};

TEST_F(LoaderOnAGpu, BatchesOfAnyStructureArePinnedAndMovedAsAWhole) {
  for (const int threads : {0, 2}) {
    const auto data = std::make_shared<const Sentences>();
    BatchLoader loader(
        data, EvaluationSampler(40),
        {.batch_size = 3, .threads = threads, .device = torch::Device(torch::kCUDA, 0)});
    std::int64_t next = 0;
    for (const Words& batch : loader) {
      const auto numbers = torch::arange(next, next + batch.words.size(0));
      next += batch.words.size(0);
      ASSERT_TRUE(batch.words.is_cuda());
      EXPECT_TRUE(torch::equal(batch.words.cpu(), numbers.unsqueeze(1).expand({-1, 5})));
      EXPECT_TRUE(torch::equal(batch.lengths.at(0).cpu(), numbers.remainder(5)));
      EXPECT_TRUE(torch::equal(batch.lengths.at(1).cpu(), numbers.to(torch::kFloat16)));
    }
    EXPECT_EQ(next, 40);
    EXPECT_FALSE(data->unpinned) << "buffers on their way to a GPU are pinned";
  }
}

}  // namespace
}  // namespace lockstep::testing_support
