// Ranks that differ in their models or options, or of which one cannot go on.
#include <lockstep/parallel/ddp/agreement.h>

#include <functional>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <torch/nn/module.h>
#include <torch/nn/modules/linear.h>

#include <lockstep/core/error.h>
#include <lockstep/parallel/distributed_data_parallel.h>
#include <tests/support/groups.h>

namespace lockstep::parallel {
namespace {

using ::testing::Each;
using testing_support::no_errors;
using testing_support::run_group;

// What a rank gives to verify_agreement().
struct AgreeingRank {
  AgreeingRank() {
    module.register_parameter("weight", torch::zeros({2, 3}));
    module.register_buffer("count", torch::zeros({}, torch::kInt64));
  }
  torch::nn::Module module;
  std::string options = "option size 1\n";
  std::string problem;
};

// The errors of the ranks when `change` is applied to one of them.
std::vector<std::string> errors_of_agreement(int ranks, int changed,
                                             const std::function<void(AgreeingRank&)>& change) {
  return run_group(ranks, "shm", [&](ProcessGroup group) {
    AgreeingRank own;
    if (group.rank() == changed) change(own);
    verify_agreement(own.module, own.options, own.problem, group);
    group.barrier();
  });
}

TEST(Agreement, NamesTheFirstDifferenceOnAllRanks) {
  struct Case {
    int rank;  // the one that differs
    std::function<void(AgreeingRank&)> change;
    const char* expected;
  };
  const Case cases[] = {
      {1, [](AgreeingRank& own) { own.options = "option size 2\n"; },
       "ranks have different options: rank 0 has option size 1, rank 1 has option size 2"},
      {2, [](AgreeingRank& own) { own.module.register_parameter("extra", torch::zeros({4})); },
       "ranks have different models: rank 0 has buffer 'count' Long [], rank 2 has parameter "
       "'extra' Float [4]"},
      {2, [](AgreeingRank& own) { own.module.register_buffer("extra", torch::zeros({4})); },
       "ranks have different models: rank 0 has no more tensors, rank 2 has buffer 'extra' Float "
       "[4]"},
      {0, [](AgreeingRank& own) { own.module.register_buffer("extra", torch::zeros({4})); },
       "ranks have different models: rank 0 has buffer 'extra' Float [4], rank 1 has no more "
       "tensors"},
      {1, [](AgreeingRank& own) { own.module.parameters()[0].set_requires_grad(false); },
       "ranks have different models: rank 0 has parameter 'weight' Float [2, 3], rank 1 has "
       "parameter 'weight' Float [2, 3] (frozen)"},
      {1, [](AgreeingRank& own) { own.module.parameters()[0].set_data(torch::zeros({3, 2}).t()); },
       "ranks have different models: rank 0 has parameter 'weight' Float [2, 3], rank 1 has "
       "parameter 'weight' Float [2, 3] with strides [1, 2]"},
      {2, [](AgreeingRank& own) { own.module.buffers()[0].set_data(torch::zeros({1})); },
       "ranks have different models: rank 0 has buffer 'count' Long [], rank 2 has buffer 'count' "
       "Float [1]"},
  };
  for (const Case& c : cases) {
    EXPECT_THAT(errors_of_agreement(3, c.rank, c.change), Each(std::string(c.expected)));
  }
  EXPECT_EQ(errors_of_agreement(3, 0, [](AgreeingRank&) {}), no_errors(3));
}

TEST(Agreement, TellsAllRanksOfAProblem) {
  const auto fail = [](AgreeingRank& own) { own.problem = "the weight is broken"; };
  EXPECT_THAT(errors_of_agreement(3, 2, fail), Each(std::string("rank 2: the weight is broken")));
  EXPECT_THAT(errors_of_agreement(1, 0, fail), Each(std::string("the weight is broken")));
}

// Rank 0 has the defaults.
TEST(Agreement, OfDistributedDataParallelIncludesItsOptions) {
  struct Case {
    DdpOptions options;  // what rank 1 gives
    const char* first;
    const char* second;
  };
  const Case cases[] = {
      {{.bucket_cap_mb = 2}, "bucket_cap_mb 25", "bucket_cap_mb 2"},
      {{.first_bucket_cap_mb = 2}, "first_bucket_cap_mb 1", "first_bucket_cap_mb 2"},
      {{.broadcast_buffers = false}, "broadcast_buffers true", "broadcast_buffers false"},
      {{.sync_batch_norm = true}, "sync_batch_norm false", "sync_batch_norm true"},
      {{.static_graph = true}, "static_graph false", "static_graph true"},
      {{.parameter_memory = ParameterMemory::kFlat},
       "parameter_memory kAsIs",
       "parameter_memory kFlat"},
      {{.parameter_memory = ParameterMemory::kShared},
       "parameter_memory kAsIs",
       "parameter_memory kShared"},
      {{.sparse_parameters = {"weight"}},
       "sparse_parameters (with those found) []",
       "sparse_parameters (with those found) [weight]"},
  };
  for (const Case& c : cases) {
    const auto errors = run_group(2, "shm", [&](ProcessGroup group) {
      torch::nn::Linear net(2, 2);
      DistributedDataParallel ddp(net, group, group.rank() == 1 ? c.options : DdpOptions());
    });
    EXPECT_THAT(errors, Each(str("ranks have different options: rank 0 has option ", c.first,
                                 ", rank 1 has option ", c.second)));
  }
}

}  // namespace
}  // namespace lockstep::parallel
