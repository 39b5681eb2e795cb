// Runs the fuzz targets over mutated seeds.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include <lockstep/core/philox.h>
#include <tests/formats/fuzz/harness.h>
#include <tests/formats/fuzz/seeds.h>
#include <tests/formats/fuzz/targets.h>

namespace lockstep::testing_support {
namespace {

// Fewer mutations when an input costs more or a format has more seeds.
int mutations_of(const Seed& seed) {
  const std::string target = seed.target;
  if (target == "cifar" || target == "cifar100") return 2000;
  if (target == "safetensors" || target == "pickle") return 20000;
  if (target == "jpeg" || target == "png") return 1000;
  return 5000;
}

class Fuzz : public ::testing::TestWithParam<const char*> {
 protected:
  std::vector<Seed> seeds() const {
    std::vector<Seed> all = fuzz_seeds();
    std::erase_if(all, [](const Seed& seed) { return std::string(seed.target) != GetParam(); });
    return all;
  }
};

TEST_P(Fuzz, MutatedSeedsMeetOnlyLockstepsErrors) {
  for (const Seed& seed : seeds()) {
    ASSERT_TRUE(run_on_exact_copy(seed, seed.content)) << seed.name << ": the seed itself is right";
    const int mutations = mutations_of(seed);
    int refused = 0;
    for (int i = 0; i < mutations; ++i) {
      PhiloxStream random(0, 0, i);
      const std::string text = mutate(seed.content, random);
      ASSERT_NO_THROW(refused += run_on_exact_copy(seed, text) ? 0 : 1)
          << seed.name << ", mutation " << i;
    }
    EXPECT_GT(refused, mutations / 10) << seed.name;
  }
}

TEST_P(Fuzz, EveryTruncationIsRefused) {
  for (const Seed& seed : seeds()) {
    const std::size_t step = seed.content.size() / 500 + 1;
    for (std::size_t size = 0; size < seed.content.size(); size += step) {
      // Whole CIFAR records are valid.
      if (seed.run == fuzz_cifar && size % 3073 == 0) continue;
      if (seed.run == fuzz_cifar100 && size % 3074 == 0) continue;
      // A PNG that lacks only its last chunk, which has 12 bytes, has all its pixels.
      if (seed.run == fuzz_png && size + 12 >= seed.content.size()) continue;
      EXPECT_FALSE(run_on_exact_copy(seed, seed.content.substr(0, size)))
          << seed.name << ", " << size << " bytes";
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Parsers, Fuzz,
                         ::testing::Values("checkpoint_manifest", "cifar", "cifar100", "gzip",
                                           "idx", "jpeg", "npy", "pack", "pickle", "png",
                                           "safetensors", "torch_file"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace lockstep::testing_support
