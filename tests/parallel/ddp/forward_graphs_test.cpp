// Which backwards belong to forwards of the wrapper.
#include <lockstep/parallel/ddp/forward_graphs.h>

#include <thread>
#include <vector>

#include <gtest/gtest.h>
#include <torch/types.h>

namespace lockstep::parallel {
namespace {

// Whether the backward of `output`, which depends on `leaf`, covers a node of a forward.
bool covers_a_forward(const ForwardGraphs& graphs, const torch::Tensor& leaf,
                      const torch::Tensor& output) {
  bool covers = false;
  const unsigned hook =
      leaf.register_hook([&](const torch::Tensor&) { covers = graphs.in_this_backward(); });
  output.sum().backward();
  leaf.remove_hook(hook);
  return covers;
}

torch::Tensor leaf_of_a_graph() { return torch::ones({2}, torch::requires_grad()); }

// A discriminator's two forwards before its backwards, and training that bypasses the wrapper in
// between.
TEST(ForwardGraphs, HoldWhatTheirForwardsRecordedAndNothingElse) {
  ForwardGraphs graphs;
  const torch::Tensor leaf = leaf_of_a_graph();
  const torch::Tensor before = leaf * 2;
  graphs.begin();
  const torch::Tensor first = leaf * 3;
  graphs.end();
  const torch::Tensor between = leaf * 4;
  graphs.begin();
  const torch::Tensor second = leaf * 5;
  graphs.end();
  const torch::Tensor after = leaf * 6;
  EXPECT_TRUE(covers_a_forward(graphs, leaf, first));
  EXPECT_TRUE(covers_a_forward(graphs, leaf, second));
  EXPECT_TRUE(covers_a_forward(graphs, leaf, before + first)) << "one node suffices";
  EXPECT_FALSE(covers_a_forward(graphs, leaf, before));
  EXPECT_FALSE(covers_a_forward(graphs, leaf, between));
  EXPECT_FALSE(covers_a_forward(graphs, leaf, after));
  EXPECT_FALSE(graphs.in_this_backward()) << "no backward runs";
}

TEST(ForwardGraphs, LastUntilTheNextForwardIfTheyHaveNoEnd) {
  ForwardGraphs graphs;
  graphs.end();  // without a beginning
  const torch::Tensor leaf = leaf_of_a_graph();
  graphs.begin();
  const torch::Tensor first = leaf * 2;
  EXPECT_TRUE(covers_a_forward(graphs, leaf, first));
  const torch::Tensor later = leaf * 3;
  graphs.begin();
  graphs.end();
  graphs.end();  // ends nothing more
  const torch::Tensor outside = leaf * 4;
  EXPECT_TRUE(covers_a_forward(graphs, leaf, later));
  EXPECT_FALSE(covers_a_forward(graphs, leaf, outside));
}

// Each thread counts its own nodes, so that nodes of two threads may have the same number.
TEST(ForwardGraphs, AreThoseOfTheirThread) {
  ForwardGraphs graphs;
  const torch::Tensor leaf = leaf_of_a_graph();
  torch::Tensor covered, other;
  std::thread([&] {
    graphs.begin();
    covered = leaf * 2;
    graphs.end();
  }).join();
  std::thread([&] { other = leaf * 3; }).join();
  ASSERT_EQ(covered.grad_fn()->sequence_nr(), other.grad_fn()->sequence_nr());
  EXPECT_TRUE(covers_a_forward(graphs, leaf, covered));
  EXPECT_FALSE(covers_a_forward(graphs, leaf, other));
}

TEST(ForwardGraphs, AreRememberedForSixtyFourForwards) {
  ForwardGraphs graphs;
  const torch::Tensor leaf = leaf_of_a_graph();
  std::vector<torch::Tensor> outputs;
  for (int forward = 0; forward < 65; ++forward) {
    graphs.begin();
    outputs.push_back(leaf * 2);
    graphs.end();
  }
  EXPECT_FALSE(covers_a_forward(graphs, leaf, outputs[0]));
  EXPECT_TRUE(covers_a_forward(graphs, leaf, outputs[1]));
  EXPECT_TRUE(covers_a_forward(graphs, leaf, outputs[64]));
}

}  // namespace
}  // namespace lockstep::parallel
