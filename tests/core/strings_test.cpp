#include <lockstep/core/strings.h>

#include <gtest/gtest.h>

namespace lockstep {
namespace {

TEST(Strings, AreMadeOfValues) {
  EXPECT_EQ(str("rank ", 3, ": ", 0.5), "rank 3: 0.5");
  EXPECT_EQ(str(), "");
  EXPECT_EQ(join(std::vector<int>{1, 2}), "1, 2");
  EXPECT_EQ(join(std::vector<std::string>{"a"}, ","), "a");
}

TEST(Strings, CountNouns) {
  EXPECT_EQ(amount_of(1, "stage"), "1 stage");
  EXPECT_EQ(amount_of(0, "stage"), "0 stages");
  EXPECT_EQ(amount_of(2, "process"), "2 processes");
  EXPECT_EQ(amount_of(1, "micro-batch"), "1 micro-batch");
  EXPECT_EQ(amount_of(4, "micro-batch"), "4 micro-batches");
  EXPECT_EQ(noun_for(1, "process"), "process");
}

}  // namespace
}  // namespace lockstep
