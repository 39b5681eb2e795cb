// What a pipeline does with the batch, which its first stage and its criterion may change in place,
// and with the outputs of its last stage.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <ATen/Parallel.h>
#include <c10/core/InferenceMode.h>
#include <torch/nn/functional/loss.h>
#include <torch/nn/module.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/pimpl.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <lockstep/core/error.h>
#include <lockstep/parallel/pipeline/distributed_pipeline.h>
#include <lockstep/parallel/pipeline/pipeline.h>
#include <tests/parallel/pipeline/nets.h>
#include <tests/support/groups.h>
#include <tests/support/messages.h>

namespace lockstep {
namespace {

namespace nn = torch::nn;

using testing::AllOf;
using testing::Each;
using testing::HasSubstr;
using testing::Not;
using testing_support::accumulate;
using testing_support::difference;
using testing_support::message_of;
using testing_support::Net;
using testing_support::no_errors;
using testing_support::run_group;

constexpr int kParts = 4;
constexpr Schedule kAllFive[] = {Schedule::kGPipe, Schedule::k1F1B, Schedule::kInterleaved,
                                 Schedule::kZbH1, Schedule::kZbV};

pipeline::StageModule stage_from(
    const std::function<torch::Tensor(nn::Linear&, torch::Tensor)>& f) {
  nn::Linear linear(6, 6);
  return pipeline::StageModule(linear.ptr(), [linear, f](const Tensors& inputs) mutable -> Tensors {
    return {f(linear, inputs[0])};
  });
}

// A net of four stages with this first stage.
Net net_behind(const pipeline::StageModule& first) {
  nn::Sequential second(nn::Linear(6, 6), nn::Tanh()), third(nn::Linear(6, 6), nn::ReLU());
  return {{first, second, third, nn::Linear(6, 3)},
          torch::randn({10, 6}),
          torch::randn({10, 3}),
          [](const torch::Tensor& output, const torch::Tensor& y) {
            return torch::mse_loss(output, y);
          }};
}

Pipeline pipeline_for(const Net& net, Schedule schedule, bool recompute = false) {
  const auto workers = static_cast<std::size_t>(workers_for(schedule, 4));
  return Pipeline(net.stages, std::vector<torch::Device>(workers, torch::kCPU),
                  {.micro_batches = kParts,
                   .schedule = schedule,
                   .recompute = recompute,
                   .threads_per_worker = 1});
}

// As in one process, gradients are right and the batch is changed.
TEST(StageInputs, MayBeChangedInPlaceByTheFirstStage) {
  at::set_num_threads(1);
  struct Case {
    const char* what;
    std::function<torch::Tensor(nn::Linear&, torch::Tensor)> first;
  };
  const Case cases[] = {
      {"relu_", [](nn::Linear& linear, torch::Tensor x) { return linear->forward(x.relu_()); }},
      {"mul_, saved twice",
       [](nn::Linear& linear, torch::Tensor x) { return linear->forward(x.mul_(2)) * x; }},
      {"a view",
       [](nn::Linear& linear, torch::Tensor x) {
         x.narrow(1, 0, 2).zero_();
         return linear->forward(x);
       }},
      {"passed on changed",
       [](nn::Linear& linear, torch::Tensor x) {
         x.add_(1);
         return x + linear->forward(x);
       }},
  };
  for (const Case& c : cases) {
    const auto make = [&] {
      torch::manual_seed(8);
      return net_behind(stage_from(c.first));
    };
    const Net expected = make();
    accumulate(expected, kParts);
    for (const Schedule schedule : kAllFive) {
      const Net net = make();
      Pipeline pipe = pipeline_for(net, schedule);
      pipe.step(net.criterion, net.x, net.y);
      EXPECT_EQ(difference(net, expected), "") << c.what << ' ' << schedule_name(schedule);
      EXPECT_TRUE(net.x.equal(expected.x)) << c.what;
    }
    const Net net = make();
    EXPECT_THAT(
        message_of<ConfigError>([&] {
          pipeline_for(net, Schedule::k1F1B, /*recompute=*/true).step(net.criterion, net.x, net.y);
        }),
        AllOf(HasSubstr("changes its inputs in place"), Not(HasSubstr("\n"))))
        << c.what;
  }
}

// On ranks, too.
TEST(StageInputs, MayBeChangedInPlaceByTheFirstRank) {
  torch::manual_seed(8);
  const auto relu = [](nn::Linear& linear, torch::Tensor x) { return linear->forward(x.relu_()); };
  const pipeline::StageModule first = stage_from(relu);
  const Net net{{first, nn::Linear(6, 3)}, torch::randn({8, 6}), torch::randn({8, 3}), {}};
  const auto errors = run_group(2, "shm", [&](ProcessGroup group) {
    DistributedPipeline pipe({net.stages[static_cast<std::size_t>(group.rank())]}, group,
                             torch::kCPU, {.micro_batches = 4, .schedule = Schedule::kGPipe});
    pipe.step([](const torch::Tensor& output,
                 const torch::Tensor& y) { return torch::mse_loss(output, y); },
              net.x.clone(), net.y);
  });
  EXPECT_EQ(errors, no_errors(2));
}

// Two inputs that share memory: the change of one is a change of the other, which a graph saved.
TEST(StageInputs, ThatShareMemoryAreCheckedTogether) {
  nn::Linear linear(6, 6);
  const pipeline::StageModule first(linear.ptr(),
                                    [linear](const Tensors& inputs) mutable -> Tensors {
                                      const torch::Tensor y = linear->forward(inputs[0]);
                                      inputs[1].mul_(2);
                                      return {y};
                                    });
  const Net net = net_behind(first);
  Pipeline pipe = pipeline_for(net, Schedule::k1F1B);
  EXPECT_THAT(message_of<Error>([&] { pipe.step(net.criterion, Tensors{net.x, net.x}, net.y); }),
              HasSubstr("modified by an inplace operation"));
  EXPECT_NO_THROW(pipe.step(net.criterion, Tensors{net.x, net.x.clone()}, net.y));
}

// A graph of the caller that saved the batch notices.
TEST(StageInputs, ChangedInPlaceInvalidateTheCallersGraph) {
  const Net net = net_behind(
      stage_from([](nn::Linear& linear, torch::Tensor x) { return linear->forward(x.relu_()); }));
  const torch::Tensor leaf = torch::randn({10, 6}, torch::requires_grad());
  const torch::Tensor x = leaf.sigmoid(), unchanged = x.detach().clone();
  Pipeline pipe = pipeline_for(net, Schedule::k1F1B);
  pipe.step(net.criterion, x, net.y);
  EXPECT_THROW(x.sum().backward(), c10::Error);
  EXPECT_TRUE(x.equal(unchanged));  // relu_ of positive numbers
}

// Adds a parameter, so that no graph saves its input.
struct ShiftedInputImpl : nn::Module {
  torch::Tensor forward(const torch::Tensor& x) { return x + shift; }
  torch::Tensor shift = register_parameter("shift", torch::linspace(-1, 1, 6));
};
TORCH_MODULE(ShiftedInput);

// Such tensors have no version.
TEST(StageInputs, MayComeFromInferenceMode) {
  torch::Tensor x, y;
  {
    const c10::InferenceMode inference;
    x = torch::arange(48.0F).view({8, 6});
    y = torch::full({8, 3}, 2.0F);
  }
  const auto criterion = [](const torch::Tensor& output, const torch::Tensor& target) {
    return (output - target).sum() / 8;
  };
  for (const bool recompute : {false, true}) {
    ShiftedInput first;
    const nn::Linear last(6, 3);
    Pipeline pipe({first, last}, {torch::kCPU, torch::kCPU},
                  {.micro_batches = 2,
                   .recompute = recompute,
                   .loss_reduction = LossReduction::kSum,
                   .threads_per_worker = 1});
    pipe.step(criterion, x, y);
    EXPECT_TRUE(first->shift.grad().allclose(last->weight.detach().sum(0), 1e-5, 1e-6))
        << recompute;
  }
}

TEST(Targets, WithAGraphGetTheirGradient) {
  nn::Linear first(6, 6), last(6, 3);
  const torch::Tensor x = torch::randn({8, 6});
  const torch::Tensor y = torch::randn({8, 3}, torch::requires_grad());
  const torch::Tensor same = y.detach().clone().requires_grad_();
  torch::mse_loss(last->forward(first->forward(x)), same).backward();
  Pipeline pipe({first, last}, {torch::kCPU, torch::kCPU},
                {.micro_batches = 4, .threads_per_worker = 1});
  pipe.step([](const torch::Tensor& output,
               const torch::Tensor& target) { return torch::mse_loss(output, target); },
            x, y);
  ASSERT_TRUE(y.grad().defined());
  EXPECT_TRUE(y.grad().allclose(same.grad(), 1e-4, 1e-6));
}

TEST(Targets, MayBeChangedInPlaceByTheCriterion) {
  at::set_num_threads(1);
  const auto smoothed = [](const torch::Tensor& output, const torch::Tensor& y) {
    y.mul_(0.9).add_(0.05);
    return torch::binary_cross_entropy_with_logits(output, y) + (output * y).mean();
  };
  const auto make = [&] {
    torch::manual_seed(8);
    Net net = net_behind(nn::Linear(6, 6));
    net.y = torch::rand({10, 3});
    net.criterion = smoothed;
    return net;
  };
  const Net expected = make();
  accumulate(expected, kParts);
  for (const Schedule schedule : kAllFive) {
    const Net net = make();
    Pipeline pipe = pipeline_for(net, schedule);
    pipe.step(net.criterion, net.x, net.y);
    EXPECT_EQ(difference(net, expected), "") << schedule_name(schedule);
    EXPECT_TRUE(net.y.equal(expected.y));
  }
  const Net net = make();
  Pipeline again = pipeline_for(net, Schedule::k1F1B, /*recompute=*/true);
  EXPECT_THAT(message_of<ConfigError>([&] { again.step(net.criterion, net.x, net.y); }),
              AllOf(HasSubstr("the criterion changes y in place"), Not(HasSubstr("\n"))));
  // The first stage saved x for its backward.
  Net same = make();
  Pipeline pipe({nn::Linear(6, 6), nn::Linear(6, 6)}, {torch::kCPU, torch::kCPU},
                {.micro_batches = 2});
  EXPECT_THAT(message_of<ConfigError>([&] { pipe.step(smoothed, same.x, same.x); }),
              HasSubstr("shares memory with x"));
  EXPECT_NO_THROW(pipe.step(smoothed, same.x, same.x.clone()));
}

// Returns, for a micro-batch, what a function makes of its sum.
pipeline::StageModule output_stage(const std::function<Tensors(const torch::Tensor& x)>& f) {
  const auto linear = std::make_shared<nn::LinearImpl>(1, 1);
  return pipeline::StageModule(linear, [f](const Tensors& inputs) { return f(inputs[0]); });
}

TEST(Outputs, WithoutDimensionsBecomeAVectorOfMicroBatches) {
  const torch::Tensor x = torch::arange(6.0F).view({6, 1});
  for (const int parts : {1, 3}) {
    Pipeline pipe(
        {output_stage([](const torch::Tensor& part) { return Tensors{part.sum(), part * 2}; })},
        {torch::kCPU}, {.micro_batches = parts});
    const Tensors outputs = pipe.forward(Tensors{x});
    ASSERT_EQ(outputs.size(), 2U);
    EXPECT_TRUE(outputs[0].equal(x.view({parts, -1}).sum(1))) << parts;
    EXPECT_TRUE(outputs[1].equal(x * 2)) << parts;
    Pipeline single({output_stage([](const torch::Tensor& part) { return Tensors{part.sum()}; })},
                    {torch::kCPU}, {.micro_batches = parts});
    EXPECT_TRUE(single.forward(x).equal(x.view({parts, -1}).sum(1))) << parts;
  }
}

TEST(Outputs, ThatDoNotFitTogetherAreNamed) {
  const torch::Tensor x = torch::arange(6.0F).view({6, 1});
  const auto is_first = [](const torch::Tensor& part) { return part[0].item<float>() == 0; };
  struct Case {
    std::function<Tensors(const torch::Tensor& part)> stage;
    const char* message;
  };
  const Case cases[] = {
      {[&](const torch::Tensor& part) -> Tensors {
         return {is_first(part) ? part : part.expand({-1, 2})};
       },
       "Float [3, 1] as tensor 0 for micro-batch 0 and Float [3, 2] for micro-batch 1"},
      {[&](const torch::Tensor& part) -> Tensors {
         return {is_first(part) ? part : part.to(torch::kFloat64)};
       },
       "Float [3, 1] as tensor 0 for micro-batch 0 and Double [3, 1] for micro-batch 1"},
      {[&](const torch::Tensor& part) -> Tensors { return {is_first(part) ? part.sum() : part}; },
       "Float [] as tensor 0 for micro-batch 0 and Float [3, 1] for micro-batch 1"},
      {[&](const torch::Tensor& part) -> Tensors {
         return {part, is_first(part) ? torch::Tensor() : part};
       },
       "undefined as tensor 1 for micro-batch 0 and Float [3, 1] for micro-batch 1"},
      {[&](const torch::Tensor& part) -> Tensors {
         return is_first(part) ? Tensors{part, part} : Tensors{part};
       },
       "2 tensors for micro-batch 0 and 1 for micro-batch 1"},
  };
  for (const Case& c : cases) {
    Pipeline pipe({output_stage(c.stage)}, {torch::kCPU}, {.micro_batches = 2});
    EXPECT_THAT(message_of<ConfigError>([&] { pipe.forward(Tensors{x}); }),
                AllOf(HasSubstr(c.message), Not(HasSubstr("\n"))));
  }
  const auto errors = run_group(2, "shm", [&](ProcessGroup group) {
    const pipeline::StageModule stage =
        group.rank() == 0 ? output_stage([](const torch::Tensor& part) { return Tensors{part}; })
                          : output_stage(cases[0].stage);
    DistributedPipeline pipe({stage}, group, torch::kCPU, {.micro_batches = 2});
    pipe.forward({x});
    group.barrier();  // the other rank learns of it here at the latest
  });
  EXPECT_THAT(errors, Each(HasSubstr("for micro-batch 1")));
}

}  // namespace
}  // namespace lockstep
