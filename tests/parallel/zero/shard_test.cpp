#include <lockstep/parallel/zero/shard.h>

#include <gtest/gtest.h>
#include <torch/types.h>

#include <lockstep/optim/options.h>
#include <tests/support/processor_time.h>

namespace lockstep::parallel {
namespace {

// The gradients of two ranks in one process. `gradients` belongs to this rank, which is the second.
struct ShardOfTwo {
  explicit ShardOfTwo(std::int64_t length) {
    shard.parameters = torch::randn({length});
    shard.gradients = torch::randn({length});
    shard.peer_gradients = {torch::randn({length}), shard.gradients};
  }
  torch::Tensor mean() const { return (shard.peer_gradients[0] + shard.peer_gradients[1]) / 2; }
  Shard shard;
};

// Long enough for several pieces per thread, and not a multiple of the piece size.
constexpr std::int64_t kLength = (std::int64_t{5} << 18) + 3;

TEST(ShardReduction, IsTheMeanWhereARunLies) {
  torch::manual_seed(3);
  for (const int threads : {1, 2}) {
    const ShardOfTwo two(kLength);
    const torch::Tensor before = two.shard.gradients.clone();
    const torch::Tensor expected = two.mean();
    const int all_threads = at::get_num_threads();
    at::set_num_threads(threads);
    reduce_shard(two.shard, {{.elements = {7, 1000}}, {.elements = {1003, kLength - 1}}});
    at::set_num_threads(all_threads);
    torch::Tensor wanted = before;
    for (const auto& [begin, end] : {std::pair{std::int64_t{7}, std::int64_t{1000}},
                                     std::pair{std::int64_t{1003}, kLength - 1}}) {
      wanted.slice(0, begin, end).copy_(expected.slice(0, begin, end));
    }
    EXPECT_TRUE(two.shard.gradients.equal(wanted)) << threads << " threads";
  }
}

TEST(ShardReduction, InOnePassWithTheUpdateGivesTheSameBits) {
  torch::manual_seed(4);
  ShardOfTwo two(kLength);
  const torch::Tensor parameters = two.shard.parameters.clone();
  const torch::Tensor gradients = two.shard.gradients.clone();
  const std::vector<ParameterGroup> groups = {{.options = SgdOptions{.lr = 0.1}}};
  const detail::GroupRules rules(groups);
  const std::vector<SliceRun> runs = {{.elements = {0, kLength}}};
  reduce_and_update_shard(rules, two.shard, runs);
  EXPECT_TRUE(two.shard.gradients.equal(gradients));  // read only, unchanged
  const torch::Tensor in_one_pass = two.shard.parameters.clone();

  two.shard.parameters.copy_(parameters);
  reduce_shard(two.shard, runs);
  update_shard(rules, two.shard, runs);
  EXPECT_TRUE(two.shard.parameters.equal(in_one_pass));
  EXPECT_FALSE(in_one_pass.equal(parameters));
}

TEST(ShardReduction, IsSharedByLibTorchsThreads) {
  const ShardOfTwo two(kLength);
  const double share = testing_support::own_share(2, [&] {
    for (int i = 0; i < 50; ++i) reduce_shard(two.shard, {{.elements = {0, kLength}}});
  });
  EXPECT_LT(share, 0.8);
}

}  // namespace
}  // namespace lockstep::parallel
