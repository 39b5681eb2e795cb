#include <lockstep/core/strings.h>

#include <gtest/gtest.h>

#include <array>
#include <string>
#include <vector>

namespace lockstep {
namespace {

TEST(Strings, AreMadeOfValues) {
  EXPECT_EQ(str("rank ", 3, ": ", 0.5), "rank 3: 0.5");
  EXPECT_EQ(str(), "");
  EXPECT_EQ(join(std::vector<int>{1, 2}), "1, 2");
  EXPECT_EQ(join(std::vector<std::string>{"a"}, ","), "a");
}

TEST(Strings, AreTrimmed) {
  EXPECT_EQ(trimmed("\t a b \r"), "a b");
  EXPECT_EQ(trimmed("word"), "word");
  EXPECT_EQ(trimmed(" \t\r"), "");
  EXPECT_EQ(trimmed(""), "");
}

TEST(Strings, OfBytesAreHexadecimal) {
  EXPECT_EQ(hex_text(std::string("\x00\x0a\xff\x7f", 4)), "000aff7f");
  EXPECT_EQ(hex_text(std::array<unsigned char, 2>{0x12, 0xf0}), "12f0");
  EXPECT_EQ(hex_text(std::string()), "");
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
