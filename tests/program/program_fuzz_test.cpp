// Runs the fuzz targets of the room over mutated seeds.
#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <vector>

#include <lockstep/core/philox.h>
#include <tests/formats/fuzz/harness.h>
#include <tests/formats/fuzz/seeds.h>
#include <tests/program/fuzz/program_targets.h>

namespace lockstep::testing_support {
namespace {

int mutations_of_program(const Seed& seed) {
  return seed.run == fuzz_size_expression ? 10'000 : seed.run == fuzz_pt2_file ? 200 : 500;
}

TEST(ProgramFuzz, MutatedSeedsMeetOnlyLockstepsErrors) {
  for (const Seed& seed : fuzz_seeds()) {
    ASSERT_TRUE(run_on_exact_copy(seed, seed.content)) << seed.name << ": the seed itself is right";
    const int mutations = mutations_of_program(seed);
    int refused = 0;
    for (int i = 0; i < mutations; ++i) {
      PhiloxStream random(0, 0, static_cast<std::uint64_t>(i));
      const std::string text = mutate(seed.content, random);
      ASSERT_NO_THROW(refused += run_on_exact_copy(seed, text) ? 0 : 1)
          << seed.name << ", mutation " << i;
    }
    EXPECT_GT(refused, mutations / 10) << seed.name;
  }
}

TEST(ProgramFuzz, EveryTruncationIsRefused) {
  for (const Seed& seed : fuzz_seeds()) {
    if (seed.run == fuzz_size_expression) continue;  // "s0" of "s0 + 1" is an expression
    const std::size_t step = seed.content.size() / 250 + 1;
    for (std::size_t size = 0; size < seed.content.size(); size += step) {
      EXPECT_FALSE(run_on_exact_copy(seed, seed.content.substr(0, size)))
          << seed.name << ", " << size << " bytes";
    }
  }
}

}  // namespace
}  // namespace lockstep::testing_support
