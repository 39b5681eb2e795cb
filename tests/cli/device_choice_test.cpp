#include <lockstep/cli/device_choice.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <lockstep/core/error.h>
#include <tests/support/messages.h>

namespace lockstep::cli {
namespace {

using testing_support::message_of;

constexpr int kCpu = -1;
constexpr int kRefused = -2;

struct Case {
  const char* accelerator;
  int gpu_count, local_rank, local_world_size;
  int expected;
};

TEST(ChooseGpu, DecidesAlikeOnAllRanks) {
  const Case cases[] = {
      {"cpu", 8, 0, 2, kCpu},  {"auto", 0, 0, 1, kCpu},     {"auto", 1, 0, 1, 0},
      {"auto", 1, 0, 2, kCpu}, {"auto", 1, 1, 2, kCpu},     {"auto", 2, 1, 2, 1},
      {"auto", 8, 3, 4, 3},    {"cuda", 0, 0, 1, kRefused}, {"cuda", 2, 1, 2, 1},
      {"cuda", 1, 1, 2, 0},    {"cuda", 3, 0, 4, kRefused}, {"cuda", 3, 3, 4, kRefused},
  };
  for (const Case& c : cases) {
    int chosen = kRefused;
    try {
      chosen =
          choose_gpu(c.accelerator, c.gpu_count, c.local_rank, c.local_world_size).value_or(kCpu);
    } catch (const ConfigError&) {
    }
    EXPECT_EQ(chosen, c.expected) << c.accelerator << ' ' << c.gpu_count << " GPUs, rank "
                                  << c.local_rank << " of " << c.local_world_size;
  }
}

TEST(ChooseGpu, DealsTheGpusOutToRanksThatShareThem) {
  for (const char* accelerator : {"auto", "cuda"}) {
    for (int rank = 0; rank < 8; ++rank) {
      EXPECT_EQ(choose_gpu(accelerator, 1, rank, 8, /*share=*/true), 0) << rank;
      EXPECT_EQ(choose_gpu(accelerator, 3, rank, 8, /*share=*/true), rank % 3) << rank;
      EXPECT_EQ(choose_gpu(accelerator, 8, rank, 8, /*share=*/true), rank) << rank;
    }
    EXPECT_EQ(message_of<ConfigError>([&] { choose_gpu(accelerator, 0, 0, 2, /*share=*/true); }),
              "train: --share-gpu needs a GPU, but this process sees none; remove it");
  }
}

TEST(ChooseGpu, NamesTheOptionThatLetsRanksShare) {
  EXPECT_EQ(message_of<ConfigError>([] { choose_gpu("cuda", 3, 0, 4); }),
            "train: --accelerator cuda needs as many GPUs as this host has ranks (4), but this "
            "process sees 3; use --accelerator auto or cpu, or --share-gpu to run several ranks on "
            "each GPU");
  EXPECT_EQ(message_of<ConfigError>([] { choose_gpu("cuda", 0, 0, 4); }),
            "train: --accelerator cuda needs as many GPUs as this host has ranks (4), but this "
            "process sees 0; use --accelerator auto or cpu");
}

TEST(ChooseGpuSharing, IsNotedInWords) {
  EXPECT_EQ(note_on(nccl::GpuSharing::kOwnHosts),
            "note: --share-gpu: ranks on one GPU take turns and exchange data through sockets; "
            "such a run is for correctness, not for speed");
  EXPECT_EQ(note_on(nccl::GpuSharing::kOnRequest),
            "note: --share-gpu: ranks on one GPU take turns; such a run is for correctness, not "
            "for speed");
}

TEST(CheckAccelerator, RefusesOtherNames) {
  for (const char* name : {"auto", "cpu", "cuda"}) check_accelerator("train", name);
  EXPECT_EQ(message_of<ConfigError>([] { check_accelerator("train", "gpu"); }),
            "train: write --accelerator cuda instead of gpu");
  EXPECT_THAT(message_of<ConfigError>([] { check_accelerator("bench step", "tpu"); }),
              testing::StartsWith("bench step: --accelerator must be one of auto, cpu, cuda, got "
                                  "'tpu'"));
}

TEST(ChooseGpuSharing, FollowsNccl) {
  EXPECT_EQ(choose_gpu_sharing("train", 22907), nccl::GpuSharing::kOwnHosts);
  EXPECT_EQ(choose_gpu_sharing("train", 23007), nccl::GpuSharing::kOnRequest);
  EXPECT_THAT(message_of<ConfigError>([] { choose_gpu_sharing("train", 22705); }),
              testing::StartsWith("train: --share-gpu needs NCCL 2.28 or newer, but this is NCCL "
                                  "2.27.5"));
  EXPECT_THAT(message_of<ConfigError>([] { choose_gpu_sharing("run", std::nullopt); }),
              testing::StartsWith("run: --share-gpu needs NCCL 2.28 or newer, which only a build "
                                  "with CUDA has"));
}

TEST(ChooseGpus, TakesTheFirstOrNone) {
  struct SeveralCase {
    const char* accelerator;
    int gpu_count;
    std::optional<int> wanted;
    std::vector<int> expected;
  };
  const SeveralCase cases[] = {
      {"cpu", 4, 2, {}},
      {"auto", 0, {}, {}},
      {"auto", 3, {}, {0, 1, 2}},
      {"auto", 3, 2, {0, 1}},
      {"auto", 1, 2, {}},
      {"cuda", 2, 2, {0, 1}},
      {"cuda", 4, {}, {0, 1, 2, 3}},
  };
  for (const SeveralCase& c : cases) {
    EXPECT_EQ(choose_gpus(c.accelerator, c.gpu_count, c.wanted), c.expected)
        << c.accelerator << ' ' << c.gpu_count << " GPUs";
  }
  EXPECT_EQ(message_of<ConfigError>([] { choose_gpus("cuda", 0, {}); }),
            "train: --accelerator cuda needs 1 GPU, but this process sees 0");
  EXPECT_EQ(message_of<ConfigError>([] { choose_gpus("cuda", 1, 2); }),
            "train: --accelerator cuda needs 2 GPUs, but this process sees 1");
}

}  // namespace
}  // namespace lockstep::cli
