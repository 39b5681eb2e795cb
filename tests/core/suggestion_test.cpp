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
      {"--learning-rate", "--lr"},
      {"--learning_rate", "--lr"},
      {"--batch_size", "--batch-size"},
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

// Words of PyTorch and the tools around it.
TEST(Suggestion, KnowsTheWordsOfOtherTools) {
  const std::vector<std::string> options{"--weights",     "--val-fraction", "--weight-decay",
                                         "--step-epochs", "--max-epochs",   "--precision",
                                         "--workers",     "--accelerator",  "--gradient-clip-norm"};
  const std::vector<std::string> precisions{"32", "bf16", "16"};
  EXPECT_EQ(did_you_mean("--pretrained", options), "; did you mean '--weights'?");
  EXPECT_EQ(nearest_word("--epochs", options), "--max-epochs") << "not the first with epochs";
  EXPECT_EQ(nearest_word("--amp", options), "--precision");
  EXPECT_EQ(nearest_word("--num_workers", options), "--workers");
  EXPECT_EQ(nearest_word("--device", options), "--accelerator");
  EXPECT_EQ(nearest_word("--max-grad-norm", options), "--gradient-clip-norm");
  EXPECT_EQ(nearest_word("fp16", precisions), "16");
  EXPECT_EQ(nearest_word("float32", precisions), "32");
  EXPECT_EQ(nearest_word("bfloat16", precisions), "bf16");
  EXPECT_EQ(nearest_word("bf16-mixed", precisions), "bf16");
  EXPECT_EQ(nearest_word("--devices", {"--nproc-per-node"}), "--nproc-per-node");
  EXPECT_EQ(nearest_word("fit", {"train", "predict"}), "train");
  EXPECT_EQ(nearest_word("fsdp", {"single", "dp", "ddp", "zero1"}), "zero1");
  EXPECT_EQ(nearest_word("fp16", options), "") << "there is no such option";
}

}  // namespace
}  // namespace lockstep
