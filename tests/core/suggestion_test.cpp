#include <lockstep/core/suggestion.h>

#include <gtest/gtest.h>

namespace lockstep {
namespace {

TEST(Suggestion, FindsTheNearestWord) {
  const std::vector<std::string> words{"train", "doctor",       "--max-epochs", "--max-steps",
                                       "--lr",  "--batch-size", "mnist",        "cifar10"};
  const std::pair<const char*, const char*> cases[] = {
      {"trian", "train"},
      {"tran", "train"},
      {"docter", "doctor"},
      {"--max-epoch", "--max-epochs"},
      {"--max-step", "--max-steps"},
      {"--epochs", "--max-epochs"},
      {"--batchsize", "--batch-size"},
      {"--batch", "--batch-size"},
      {"cifar", "cifar10"},
      {"mnits", "mnist"},
      {"CIFAR10", "cifar10"},
      {"--learning-rate", ""},
      {"export", ""},
      {"x", ""},
      {"", ""},
      {"--", ""},
  };
  for (const auto& [word, expected] : cases) EXPECT_EQ(nearest_word(word, words), expected) << word;
  EXPECT_EQ(nearest_word("gpu", {"auto", "cpu", "cuda"}), "");
  EXPECT_EQ(nearest_word("cuad", {"auto", "cpu", "cuda"}), "cuda");
  EXPECT_EQ(nearest_word("dpp", {"single", "dp", "ddp"}), "ddp") << "is as near, and as long";
  // Two errors at most, however long the word is.
  EXPECT_EQ(nearest_word("batch-sixx", words), "--batch-size");
  EXPECT_EQ(nearest_word("batch-xixx", words), "");
  EXPECT_EQ(did_you_mean("trian", words), "; did you mean 'train'?");
  EXPECT_EQ(did_you_mean("export", words), "");
  EXPECT_EQ(did_you_mean("train", words), "") << "is known";
  EXPECT_EQ(did_you_mean("Train", words), "; did you mean 'train'?");
}

}  // namespace
}  // namespace lockstep
