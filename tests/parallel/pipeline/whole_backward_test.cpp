// Stages whose backward can only be computed as a whole, in schedules that split backwards: the
// table accounts for them, on threads and on ranks, and the gradients stay the same.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <torch/csrc/autograd/custom_function.h>
#include <torch/nn/module.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/pimpl.h>

#include <ATen/Parallel.h>

#include <string>
#include <utility>
#include <vector>

#include <lockstep/parallel/pipeline/distributed_pipeline.h>
#include <lockstep/parallel/pipeline/pipeline.h>
#include <lockstep/parallel/pipeline/schedule/check.h>
#include <tests/parallel/pipeline/nets.h>
#include <tests/support/groups.h>

namespace lockstep {
namespace {

using testing::Each;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;
using testing_support::accumulate;
using testing_support::difference;
using testing_support::Net;
using testing_support::no_errors;
using testing_support::run_group;

constexpr int kScaledMicroBatches = 8;
constexpr std::int64_t kScaledFeatures = 6;

// Multiplies by a weight. Its backward always computes both gradients at once.
class WholeScaleFunction : public torch::autograd::Function<WholeScaleFunction> {
 public:
  static torch::Tensor forward(torch::autograd::AutogradContext* context, const torch::Tensor& x,
                               const torch::Tensor& weight) {
    context->save_for_backward({x, weight});
    return x * weight;
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 const torch::autograd::variable_list& gradients) {
    const auto saved = context->get_saved_variables();
    return {gradients[0] * saved[1], (gradients[0] * saved[0]).sum(0)};
  }
};

struct WholeScaleImpl : torch::nn::Module {
  explicit WholeScaleImpl(bool says)
      : says_so(says), weight(register_parameter("weight", torch::rand({kScaledFeatures}) + 0.5)) {}
  torch::Tensor forward(const torch::Tensor& x) { return WholeScaleFunction::apply(x, weight); }
  bool has_whole_backward() const { return says_so; }

  bool says_so;
  torch::Tensor weight;
};
TORCH_MODULE(WholeScale);

// Stages 1 and 3 are custom functions, which either declare a whole backward or leave it to
// detection. The weights and data are always the same.
Net make_scaled_net(bool says_so) {
  torch::manual_seed(5);
  const torch::nn::Linear first(kScaledFeatures, kScaledFeatures);
  const WholeScale second(says_so);
  const torch::nn::Linear third(kScaledFeatures, kScaledFeatures);
  const WholeScale fourth(says_so);
  return {{first, second, third, fourth},
          torch::randn({11, kScaledFeatures}),
          torch::randn({11, kScaledFeatures}),
          [](const torch::Tensor& output, const torch::Tensor& target) {
            return torch::mse_loss(output, target);
          }};
}

PipelineOptions scaled_options(std::vector<int> whole_backward = {}) {
  return {.micro_batches = kScaledMicroBatches,
          .schedule = Schedule::kZbH1,
          .whole_backward = std::move(whole_backward),
          .threads_per_worker = 1};
}

std::string named_table() {
  return csv(pipeline::make_table(scaled_options({1, 3}), 4, 4, kScaledMicroBatches));
}

Pipeline scaled_pipeline(const Net& net, std::vector<int> whole_backward = {}) {
  at::set_num_threads(1);
  return Pipeline(net.stages, std::vector<torch::Device>(4, torch::kCPU),
                  scaled_options(std::move(whole_backward)));
}

TEST(WholeBackward, IsInTheTable) {
  const Net net = make_scaled_net(true);
  EXPECT_TRUE(net.stages[1].has_whole_backward());
  EXPECT_FALSE(net.stages[0].has_whole_backward());
  const Pipeline pipe = scaled_pipeline(net);
  EXPECT_EQ(csv(pipe.table()), named_table());
  EXPECT_THAT(csv(pipe.table()), HasSubstr("3F0,3B0,"));
  EXPECT_THAT(csv(pipe.table()), HasSubstr("0W7"));
  EXPECT_THAT(csv(pipe.table()), Not(HasSubstr("1I")));
  // A whole backward releases the activations at once; no later W needs them.
  EXPECT_THAT(check(pipe.table()).peak_activations, ElementsAre(4, 3, 4, 1));
  const Net found = make_scaled_net(false);
  EXPECT_THAT(check(scaled_pipeline(found).table()).peak_activations, Each(4));
}

TEST(WholeBackward, IsNamedOnceWhereTheOptionNamesItToo) {
  const Net net = make_scaled_net(true);
  EXPECT_EQ(csv(scaled_pipeline(net, {3}).table()), named_table());
}

// Declared by the stage, set by the option, or detected in the graph.
TEST(WholeBackward, GivesTheSameBitsHoweverItIsKnown) {
  at::set_num_threads(1);
  const Net expected = make_scaled_net(false);
  accumulate(expected, kScaledMicroBatches);
  struct Case {
    bool says_so;
    std::vector<int> named;
  };
  for (const auto& [says_so, named] :
       {Case{true, {}}, Case{false, {1, 3}}, Case{true, {0, 1}}, Case{false, {}}}) {
    const Net net = make_scaled_net(says_so);
    Pipeline pipe = scaled_pipeline(net, named);
    pipe.step(net.criterion, net.x, net.y);
    EXPECT_EQ(difference(net, expected), "") << says_so << ' ' << named.size();
    const auto promised = check(pipe.table()).peak_activations;
    const std::vector<int> held = pipe.peak_activations();
    for (std::size_t stage = 0; stage < held.size(); ++stage) {
      EXPECT_LE(held[stage], promised[stage]) << "stage " << stage;
    }
  }
}

// A rank knows only its own stages, and yet all ranks have the same table, also for a batch that is
// cut into fewer micro-batches.
TEST(WholeBackward, IsInTheTableOfAllRanks) {
  at::set_num_threads(1);
  const Net expected = make_scaled_net(false);
  accumulate(expected, kScaledMicroBatches);
  const Net few = {expected.stages, expected.x.narrow(0, 0, 3), expected.y.narrow(0, 0, 3),
                   expected.criterion};
  accumulate(few, 3);
  const Net net = make_scaled_net(true);
  std::vector<std::string> tables(4);
  const auto errors = run_group(4, "shm", [&](ProcessGroup group) {
    at::set_num_threads(1);
    const auto rank = static_cast<std::size_t>(group.rank());
    DistributedPipeline pipe({net.stages[rank]}, group, torch::kCPU, scaled_options());
    tables[rank] = csv(pipe.table());
    pipe.step(net.criterion, net.x, net.y);
    pipe.step(net.criterion, few.x, few.y, 3);
  });
  EXPECT_EQ(errors, no_errors(4));
  EXPECT_THAT(tables, Each(named_table()));
  EXPECT_EQ(difference(net, expected), "");
}

}  // namespace
}  // namespace lockstep
