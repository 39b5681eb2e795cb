#include <lockstep/core/suggestion.h>

#include <string>
#include <utility>
#include <vector>

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

// Each is the only candidate, so that only the list of synonyms leads to it.
TEST(Suggestion, KnowsEachWordOfItsList) {
  const std::pair<const char*, const char*> words[] = {
      {"learning-rate", "lr"},
      {"epochs", "max-epochs"},
      {"num-epochs", "max-epochs"},
      {"num-train-epochs", "max-epochs"},
      {"train-batch-size", "batch-size"},
      {"pretrained", "weights"},
      {"checkpoint", "weights"},
      {"num-workers", "workers"},
      {"arch", "model"},
      {"opt", "optimizer"},
      {"sched", "schedule"},
      {"lr-scheduler", "schedule"},
      {"amp", "precision"},
      {"dtype", "precision"},
      {"device", "accelerator"},
      {"img-size", "image-size"},
      {"output-dir", "out"},
      {"data-path", "data"},
      {"data-dir", "data"},
      {"max-grad-norm", "gradient-clip-norm"},
      {"clip-grad", "gradient-clip-norm"},
      {"clip-grad-norm", "gradient-clip-norm"},
      {"gradient-accumulation-steps", "accumulate-grad-batches"},
      {"grad-accum-steps", "accumulate-grad-batches"},
      {"sync-bn", "sync-batchnorm"},
      {"resume-from-checkpoint", "resume"},
      {"ckpt-path", "resume"},
      {"gpus", "nproc-per-node"},
      {"devices", "nproc-per-node"},
      {"patience", "early-stopping"},
      {"fit", "train"},
      {"fp16", "16"},
      {"half", "16"},
      {"float16", "16"},
      {"16-mixed", "16"},
      {"bfloat16", "bf16"},
      {"bf16-mixed", "bf16"},
      {"fp32", "32"},
      {"float32", "32"},
      {"32-true", "32"},
      {"dataparallel", "dp"},
      {"distributeddataparallel", "ddp"},
      {"zero", "zero1"},
      {"fsdp", "zero1"}};
  for (const auto& [theirs, ours] : words) {
    const std::string option = std::string("--") + theirs;
    EXPECT_EQ(nearest_word(option, {"--unlike", std::string("--") + ours}),
              std::string("--") + ours)
        << theirs;
  }
}

}  // namespace
}  // namespace lockstep
