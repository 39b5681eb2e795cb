// Copies of one weight on several ranks of a pipeline.
#include <lockstep/parallel/pipeline/tied_copies.h>

#include <cstdint>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/activation.h>

#include <lockstep/core/error.h>
#include <lockstep/train/strategies/named_stages.h>
#include <tests/support/groups.h>

namespace lockstep::train {
namespace {

using testing::Each;
using testing::HasSubstr;
using testing_support::no_errors;
using testing_support::run_group;

NamedStage stage_with(const NamedTensors& parameters) {
  return {.module = torch::nn::Tanh(), .parameters = parameters};
}

torch::Tensor zero_weight() { return torch::zeros({2, 3}, torch::requires_grad()); }

void set_gradient(const torch::Tensor& weight, double value) {
  weight.mutable_grad() = torch::full({2, 3}, value);
}

void require_gradient(const torch::Tensor& weight, double value, const char* name) {
  LOCKSTEP_CHECK(weight.grad().defined(), name, " has no gradient");
  LOCKSTEP_CHECK(weight.grad().equal(torch::full({2, 3}, value)), "another gradient of ", name);
}

TEST(TiedCopiesOfRanks, AddUpTheGradientsThatAreThere) {
  const auto errors = run_group(3, "shm", [](ProcessGroup group) {
    const int rank = group.rank();
    const torch::Tensor ends = zero_weight(), all = zero_weight(), unused = zero_weight(),
                        middle = zero_weight();
    const std::vector<NamedStage> stages = {
        stage_with({{"ends", ends}, {"all", all}, {"unused", unused}}),
        stage_with({{"all", all}, {"middle", middle}}),
        stage_with({{"unused", unused}, {"all", all}, {"ends", ends}})};
    pipeline::TiedCopies copies("strategy pipeline", copies_of_ranks(stages, {0, 1, 2}), group);
    if (rank != 1) set_gradient(ends, rank + 1);
    if (rank != 2) set_gradient(all, rank + 1);
    if (rank == 1) set_gradient(middle, 7);
    copies.add_up();
    require_gradient(all, 1 + 2, "all");
    if (rank != 1) require_gradient(ends, 1 + 3, "ends");
    if (rank == 1) require_gradient(middle, 7, "middle");
    LOCKSTEP_CHECK(!unused.grad().defined(), "a weight that is not used has a gradient");
    const std::vector<std::set<std::string>> expected = {{}, {"all"}, {"all", "ends", "unused"}};
    LOCKSTEP_CHECK(copies.counted_elsewhere() == expected[static_cast<std::size_t>(rank)], "rank ",
                   rank, " counts other weights");
  });
  EXPECT_EQ(errors, no_errors(3));
}

TEST(TiedCopiesOfRanks, AddUpLazyGradients) {
  const auto errors = run_group(2, "shm", [](ProcessGroup group) {
    const torch::Tensor weight = zero_weight();
    const std::vector<NamedStage> stages = {stage_with({{"weight", weight}}),
                                            stage_with({{"weight", weight}})};
    pipeline::TiedCopies copies("strategy pipeline", copies_of_ranks(stages, {0, 1}), group);
    set_gradient(weight, group.rank() + 1);
    if (group.rank() == 1) weight.mutable_grad() = at::_neg_view(torch::full({2, 3}, -2.0));
    copies.add_up();
    require_gradient(weight, 1 + 2, "weight");
  });
  EXPECT_EQ(errors, no_errors(2));
}

// Existing gradients are left unchanged.
TEST(TiedCopiesOfRanks, FillInTheGradientsThatAreMissing) {
  const auto errors = run_group(2, "shm", [](ProcessGroup group) {
    const torch::Tensor both = zero_weight(), one = zero_weight(), unused = zero_weight();
    const NamedTensors all = {{"both", both}, {"one", one}, {"unused", unused}};
    const std::vector<NamedStage> stages = {stage_with(all), stage_with(all)};
    pipeline::TiedCopies copies("strategy hybrid", copies_of_ranks(stages, {0, 1}), group);
    set_gradient(both, group.rank() + 1);
    if (group.rank() == 1) set_gradient(one, 7);
    copies.fill_in();
    require_gradient(both, group.rank() + 1, "both");
    require_gradient(one, group.rank() == 1 ? 7 : 0, "one");
    LOCKSTEP_CHECK(!unused.grad().defined(), "a weight that is not used has a gradient");
  });
  EXPECT_EQ(errors, no_errors(2));
}

// Stages on one rank share their tensors, and frozen weights have no gradient.
TEST(TiedCopiesOfRanks, AreOnlyOfTrainableWeightsOnSeveralRanks) {
  const auto errors = run_group(2, "shm", [](ProcessGroup group) {
    const torch::Tensor own = zero_weight();
    const torch::Tensor frozen = torch::zeros({2, 3});
    const std::vector<NamedStage> stages = {stage_with({{"own", own}, {"frozen", frozen}}),
                                            stage_with({{"frozen", frozen}}),
                                            stage_with({{"own", own}})};
    pipeline::TiedCopies copies("strategy pipeline", copies_of_ranks(stages, {0, 1, 0}), group);
    set_gradient(own, group.rank() + 1);
    copies.add_up();
    require_gradient(own, group.rank() + 1, "own");
    LOCKSTEP_CHECK(!frozen.grad().defined(), "a frozen weight has a gradient");
    LOCKSTEP_CHECK(copies.counted_elsewhere().empty(), "weights are taken for copies");
  });
  EXPECT_EQ(errors, no_errors(2));
}

TEST(TiedCopiesOfRanks, RefuseSparseGradients) {
  const auto errors = run_group(2, "shm", [](ProcessGroup group) {
    const torch::Tensor weight = zero_weight();
    const std::vector<NamedStage> stages = {stage_with({{"words", weight}}),
                                            stage_with({{"words", weight}})};
    pipeline::TiedCopies copies("strategy pipeline", copies_of_ranks(stages, {0, 1}), group);
    weight.mutable_grad() = torch::ones({2, 3}).to_sparse();
    copies.add_up();
  });
  EXPECT_THAT(errors,
              Each(HasSubstr("strategy pipeline: the gradient of 'words', which stages on several "
                             "ranks share, is sparse; set sparse = false in the embedding")));
}

// A weight may be a copy in several pipelines at once.
TEST(TiedCopiesOfRanks, AreCountedElsewhereUntilTheLastPipelineEnds) {
  const auto errors = run_group(2, "shm", [](ProcessGroup group) {
    const torch::Tensor weight = zero_weight();
    const std::vector<NamedStage> stages = {stage_with({{"weight", weight}}),
                                            stage_with({{"weight", weight}})};
    const pipeline::CopiesByRanks both = copies_of_ranks(stages, {0, 1});
    const bool is_second = group.rank() == 1;
    LOCKSTEP_CHECK(!pipeline::is_counted_elsewhere(weight), "before any pipeline");
    {
      auto first = std::make_unique<pipeline::TiedCopies>("first", both, group);
      const pipeline::TiedCopies second("second", both, group);
      LOCKSTEP_CHECK(pipeline::is_counted_elsewhere(weight) == is_second, "in two pipelines");
      first.reset();
      LOCKSTEP_CHECK(pipeline::is_counted_elsewhere(weight) == is_second, "in one of them");
    }
    LOCKSTEP_CHECK(!pipeline::is_counted_elsewhere(weight), "after both");
    group.barrier();
  });
  EXPECT_EQ(errors, no_errors(2));
}

}  // namespace
}  // namespace lockstep::train
