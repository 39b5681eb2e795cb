// Names of traces, the note about other programs, and lists of words.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <optional>
#include <string>
#include <utility>

#include <lockstep/bench/other_programs_note.h>
#include <lockstep/bench/trace_folder.h>
#include <lockstep/bench/word_list.h>
#include <lockstep/core/strings.h>

namespace lockstep::bench {
namespace {

using ::testing::ElementsAre;

TEST(TraceFile, IsNamedAfterItsRow) {
  const std::pair<const char*, const char*> cases[] = {
      {"ddp", "ddp.json"},
      {"ddp as-is, buckets 0.01 MiB", "ddp-as-is-buckets-0.01-MiB.json"},
      {"PyTorch's ddp, dataloader", "PyTorch-s-ddp-dataloader.json"},
      {" /a//b__c: ", "a-b__c.json"},
      {"r\xe9sum\xe9", "r-sum.json"}};
  for (const auto& [row, file] : cases) {
    EXPECT_EQ(trace_file_of("/traces", row), std::filesystem::path("/traces") / file) << row;
  }
}

TEST(OtherProgramsNote, IsForSharesThatMatter) {
  const auto note = [](int percent) {
    return lockstep::str("Other programs used ", percent,
                         "% of the processors meanwhile: measure again without them.");
  };
  EXPECT_EQ(other_programs_note(std::nullopt), "");
  EXPECT_EQ(other_programs_note(0), "");
  EXPECT_EQ(other_programs_note(0.0499), "");
  EXPECT_EQ(other_programs_note(0.05), note(5));
  EXPECT_EQ(other_programs_note(0.376), note(38));
  EXPECT_EQ(other_programs_note(1), note(100));
}

TEST(WordList, HasAWordBetweenEachTwoSeparators) {
  EXPECT_THAT(words_of(""), ElementsAre(""));
  EXPECT_THAT(words_of("a"), ElementsAre("a"));
  EXPECT_THAT(words_of("ddp,zero1"), ElementsAre("ddp", "zero1"));
  EXPECT_THAT(words_of(",a,,b,"), ElementsAre("", "a", "", "b", ""));
  EXPECT_THAT(words_of("loss:3:min", ':'), ElementsAre("loss", "3", "min"));
  EXPECT_THAT(words_of("a,b", ':'), ElementsAre("a,b"));
}

}  // namespace
}  // namespace lockstep::bench
