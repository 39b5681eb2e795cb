// How a pipeline cuts a batch into micro-batches and joins what they give, without a pipeline.
#include <lockstep/parallel/pipeline/micro_batches.h>

#include <algorithm>
#include <cstdint>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/types.h>

#include <lockstep/core/error.h>
#include <lockstep/parallel/pipeline/pipeline_setup.h>
#include <tests/support/messages.h>

namespace lockstep::pipeline {
namespace {

using testing::ElementsAre;
using testing_support::message_of;

TEST(MicroBatches, DifferByOneSampleAtMostAndTheLargerOnesComeFirst) {
  EXPECT_THAT(part_sizes(7, 3), ElementsAre(3, 2, 2));
  EXPECT_THAT(part_sizes(8, 3), ElementsAre(3, 3, 2));
  EXPECT_THAT(part_sizes(6, 3), ElementsAre(2, 2, 2));
  EXPECT_THAT(part_sizes(5, 1), ElementsAre(5));
  EXPECT_THAT(part_sizes(2, 3), ElementsAre(1, 1, 0));
}

TEST(MicroBatches, AreViewsOfTheBatch) {
  const auto batch = torch::arange(10).view({5, 2});
  const Tensors parts = split_batch(batch, {2, 2, 1}, "x");
  ASSERT_EQ(parts.size(), 3U);
  for (std::int64_t i = 0; i < 3; ++i) {
    const torch::Tensor expected = batch.slice(0, 2 * i, std::min<std::int64_t>(2 * i + 2, 5));
    const torch::Tensor& part = parts[static_cast<std::size_t>(i)];
    EXPECT_TRUE(part.equal(expected)) << i;
    EXPECT_EQ(part.const_data_ptr(), expected.const_data_ptr()) << i;
  }
  for (const torch::Tensor& part : split_batch({}, {2, 2, 1}, "x")) EXPECT_FALSE(part.defined());
  EXPECT_EQ(message_of<ConfigError>([&] { split_batch(batch, {2, 2}, "y"); }),
            "pipeline: y has shape [5, 2], expected 4 samples along dimension 0");
  EXPECT_EQ(message_of<ConfigError>([] { split_batch(torch::ones({}), {1}, "x"); }),
            "pipeline: x has shape [], expected 1 samples along dimension 0");
}

TEST(MicroBatches, HaveTheirPartOfEachInput) {
  const auto first = torch::arange(3), last = torch::arange(6).view({3, 2});
  const std::vector<Tensors> inputs = split_inputs({first, {}, last}, {2, 1});
  ASSERT_EQ(inputs.size(), 2U);
  for (const Tensors& each : inputs) {
    ASSERT_EQ(each.size(), 3U);
    EXPECT_FALSE(each[1].defined());
  }
  EXPECT_TRUE(inputs[0][0].equal(first.slice(0, 0, 2)));
  EXPECT_TRUE(inputs[0][2].equal(last.slice(0, 0, 2)));
  EXPECT_TRUE(inputs[1][0].equal(first.slice(0, 2, 3)));
  EXPECT_TRUE(inputs[1][2].equal(last.slice(0, 2, 3)));
}

// The second tensor has memory of its own, and the third shares that of the first.
TEST(MicroBatches, HaveVersionsOfTheirOwnWhichMemoryInCommonShares) {
  const auto first = torch::zeros({2}), second = torch::zeros({2});
  const auto view = first.view({2, 1});
  const Tensors parts{first, second, view, torch::Tensor()};
  const Tensors own = with_own_versions(parts);
  ASSERT_EQ(own.size(), 4U);
  EXPECT_FALSE(own[3].defined());
  for (std::size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(own[i].const_data_ptr(), parts[i].const_data_ptr()) << i;
    EXPECT_EQ(own[i].sizes(), parts[i].sizes()) << i;
    EXPECT_EQ(own[i]._version(), 0) << i;
  }
  EXPECT_FALSE(pass_changes_on(own, parts)) << "nothing has changed";
  EXPECT_EQ(first._version(), 0);
  own[0].add_(1);
  EXPECT_EQ(own[0]._version(), 1);
  EXPECT_EQ(own[1]._version(), 0);
  EXPECT_EQ(own[2]._version(), 1) << "the same memory";
  EXPECT_EQ(first._version(), 0) << "not the caller's";
  EXPECT_TRUE(pass_changes_on(own, parts));
  EXPECT_GT(first._version(), 0);
  EXPECT_EQ(second._version(), 0);
  EXPECT_TRUE(first.equal(torch::ones({2})));
}

TEST(MicroBatches, HaveNoGraphOfTheCaller) {
  const auto leaf = torch::ones({2}, torch::requires_grad());
  const Tensors own = with_own_versions({leaf * 2});
  EXPECT_FALSE(own[0].requires_grad());
  EXPECT_TRUE(own[0].equal(torch::full({2}, 2.0F)));
}

// Such tensors have no version at all.
TEST(MicroBatches, OfInferenceModeStayAsTheyAre) {
  torch::Tensor made;
  {
    const c10::InferenceMode inference;
    made = torch::ones({2});
  }
  const Tensors own = with_own_versions({made});
  EXPECT_TRUE(own[0].is_same(made));
  EXPECT_FALSE(pass_changes_on(own, {made}));
}

TEST(MicroBatches, ShareMemoryOnlyIfBothAreThere) {
  const auto a = torch::zeros({4});
  EXPECT_TRUE(share_memory(a, a.slice(0, 2, 4)));
  EXPECT_FALSE(share_memory(a, torch::zeros({4})));
  EXPECT_FALSE(share_memory(a, {}));
  EXPECT_FALSE(share_memory({}, a));
  EXPECT_FALSE(share_memory(a, torch::zeros({4}, torch::kMeta)));
}

TEST(LossesOfMicroBatches, AreWeightedBySamplesForAMean) {
  EXPECT_THAT(loss_weights({3, 1}, LossReduction::kMean), ElementsAre(0.75, 0.25));
  EXPECT_THAT(loss_weights({4}, LossReduction::kMean), ElementsAre(1.0));
  EXPECT_THAT(loss_weights({3, 1}, LossReduction::kSum), ElementsAre(1.0, 1.0));
}

TEST(LossesOfMicroBatches, AreAddedUpWithoutAGraph) {
  const auto loss = [](float value) {
    return Tensors{torch::full({}, value, torch::requires_grad()), torch::ones({})};
  };
  const torch::Tensor sum = sum_of_losses({loss(1), loss(2), loss(4)});
  EXPECT_EQ(sum.item<float>(), 7);
  EXPECT_FALSE(sum.requires_grad());
  EXPECT_FALSE(sum_of_losses({}).defined());
}

TEST(OutputsOfMicroBatches, AreJoinedAlongTheSamples) {
  const auto outputs = [](std::int64_t samples, float value) {
    return Tensors{torch::full({samples, 3}, value), torch::full({}, value), {}};
  };
  const Tensors joined = joined_outputs({outputs(2, 5), outputs(1, 6)});
  ASSERT_EQ(joined.size(), 3U);
  EXPECT_TRUE(joined[0].equal(torch::cat({torch::full({2, 3}, 5.0F), torch::full({1, 3}, 6.0F)})));
  EXPECT_TRUE(joined[1].equal(torch::tensor({5.0F, 6.0F})));
  EXPECT_FALSE(joined[2].defined());
  const Tensors given = outputs(2, 5);
  const Tensors alone = joined_outputs({given});
  EXPECT_TRUE(alone[0].is_same(given[0])) << "a single one needs no copy";
  EXPECT_EQ(alone[1].sizes(), torch::IntArrayRef({1}));
}

}  // namespace
}  // namespace lockstep::pipeline
