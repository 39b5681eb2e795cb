// Which weights a command loads from a file.
#include <lockstep/cli/train/weights_file.h>

#include <gtest/gtest.h>
#include <torch/types.h>

#include <lockstep/train/checkpoints/checkpoint_content.h>
#include <lockstep/train/checkpoints/checkpoint_store.h>
#include <tests/support/temporary_directory.h>

namespace lockstep::cli {
namespace {

namespace fs = std::filesystem;

const StateDict kModel = {{"fc.weight", torch::tensor({1.0, 2.0})},
                          {"fc.running", torch::tensor({3.0})}};
const StateDict kAveraged = {{"exp_avg.fc.weight", torch::tensor({7.0, 7.0})},
                             {"ema.fc.weight", torch::tensor({5.0, 6.0})}};
const StateDict kPlain = {{"exp_avg.fc.weight", torch::tensor({7.0, 7.0})}};

torch::Tensor weight_of(const StateDict& state) {
  for (const auto& [name, tensor] : state) {
    if (name == "fc.weight") return tensor;
  }
  return {};
}

// Writes a checkpoint folder and, beside it, a link to its weights.
fs::path stored(const testing_support::TemporaryDirectory& scratch, const StateDict& training) {
  train::CheckpointStore store(
      {.directory = scratch / "checkpoints", .link = scratch / "weights.safetensors"});
  store.prepare();
  const train::CheckpointContent content(kModel, training, {.recipe = "mnist"});
  store.save(content.files(), {.step = 3});
  return scratch / "weights.safetensors";
}

void expect_average_of(const fs::path& path) {
  const WeightsOfFile evaluated = load_weights_file(path);
  EXPECT_TRUE(evaluated.averaged);
  EXPECT_EQ(evaluated.state.size(), kModel.size()) << "and nothing of the optimizer";
  EXPECT_TRUE(weight_of(evaluated.state).equal(torch::tensor({5.0, 6.0})));
  const WeightsOfFile trained = load_weights_file(path, WeightsKind::kTrained);
  EXPECT_FALSE(trained.averaged);
  EXPECT_TRUE(weight_of(trained.state).equal(torch::tensor({1.0, 2.0})));
}

TEST(WeightsFile, HasTheAverageThatTheRunEvaluated) {
  const testing_support::TemporaryDirectory scratch;
  const fs::path link = stored(scratch, kAveraged);
  expect_average_of(link);
  expect_average_of(fs::canonical(link));
}

TEST(WeightsFile, OfOneFileHasTheAverage) {
  const testing_support::TemporaryDirectory scratch;
  StateDict all = train::named_for_file(kAveraged);
  all.insert(all.end(), kModel.begin(), kModel.end());
  const train::FileTensors tensors(all);
  write_safetensors(scratch / "one.safetensors", tensors.views());
  expect_average_of(scratch / "one.safetensors");
}

TEST(WeightsFile, HasTheWeightsOfARunWithoutAnAverage) {
  const testing_support::TemporaryDirectory scratch;
  const WeightsOfFile weights = load_weights_file(stored(scratch, kPlain));
  EXPECT_FALSE(weights.averaged);
  EXPECT_TRUE(weight_of(weights.state).equal(torch::tensor({1.0, 2.0})));
}

}  // namespace
}  // namespace lockstep::cli
