#include <lockstep/core/philox.h>

#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <set>
#include <vector>

namespace lockstep {
namespace {

using Counter = std::array<std::uint32_t, 4>;
using Key = std::array<std::uint32_t, 2>;

// kat_vectors of the Random123 distribution, philox4x32 with 10 rounds.
TEST(Philox, KnownAnswers) {
  struct Case {
    Counter counter;
    Key key;
    Counter expected;
  };
  const Case cases[] = {
      {{0, 0, 0, 0}, {0, 0}, {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
      {{0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff},
       {0xffffffff, 0xffffffff},
       {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
      {{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344},
       {0xa4093822, 0x299f31d0},
       {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}},
  };
  for (const Case& c : cases) EXPECT_EQ(philox4x32(c.counter, c.key), c.expected);
}

TEST(PhiloxStream, IsTheBlocksOfItsCounterInOrder) {
  const std::uint64_t seed = 0x299f31d0a4093822;
  const std::uint64_t item = 0x0370734413198a2e;
  PhiloxStream stream(seed, 7, item);
  for (std::uint32_t block = 0; block < 3; ++block) {
    const Counter expected =
        philox4x32({block, 7, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0});
    for (std::uint32_t word : expected) EXPECT_EQ(stream.next(), word);
  }
}

TEST(PhiloxStream, EachPartOfTheKeyGivesAnotherStream) {
  std::set<std::uint32_t> first;
  for (PhiloxStream stream :
       {PhiloxStream(1, 1, 1), PhiloxStream(2, 1, 1), PhiloxStream(1, 2, 1), PhiloxStream(1, 1, 2),
        PhiloxStream(1ULL << 32, 1, 1), PhiloxStream(1, 1, 1ULL << 32)}) {
    first.insert(stream.next());
  }
  EXPECT_EQ(first.size(), 6U);
}

TEST(PhiloxStream, NumbersStayInTheirRangeAndFillIt) {
  PhiloxStream stream(3, 0, 0);
  constexpr int kDraws = 60'000;
  std::vector<int> counts(6);
  double sum = 0;
  for (int i = 0; i < kDraws; ++i) {
    const float uniform = stream.uniform();
    ASSERT_GE(uniform, 0.0F);
    ASSERT_LT(uniform, 1.0F);
    sum += uniform;
    const std::uint32_t face = stream.below(6);
    ASSERT_LT(face, 6U);
    ++counts[face];
  }
  // Five standard deviations of the mean (0.289 / sqrt n) and of a count (sqrt of n * 5/36).
  EXPECT_NEAR(sum / kDraws, 0.5, 5 * 0.00118);
  for (int count : counts) EXPECT_NEAR(count, kDraws / 6, 5 * 92);
}

}  // namespace
}  // namespace lockstep
