// What a pipeline on threads does when a stage fails.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <torch/csrc/autograd/custom_function.h>
#include <torch/nn/functional/loss.h>
#include <torch/nn/module.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/pimpl.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <stdexcept>
#include <thread>

#include <lockstep/core/clock.h>
#include <lockstep/core/error.h>
#include <lockstep/parallel/pipeline/pipeline.h>
#include <lockstep/parallel/pipeline/stage.h>
#include <tests/support/messages.h>

namespace lockstep {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing_support::message_of;

// Where a stage fails next. Each failure happens once.
struct Fault {
  std::atomic<int> stage{-1};
  std::atomic<bool> in_backward{false};
};

struct FaultyFunction : torch::autograd::Function<FaultyFunction> {
  static torch::Tensor forward(torch::autograd::AutogradContext* context, const torch::Tensor& x,
                               int stage, int64_t fault) {
    context->saved_data["stage"] = static_cast<int64_t>(stage);
    context->saved_data["fault"] = fault;
    return x.clone();
  }
  static Tensors backward(torch::autograd::AutogradContext* context, Tensors gradients) {
    auto* fault = reinterpret_cast<Fault*>(context->saved_data["fault"].toInt());
    const auto stage = static_cast<int>(context->saved_data["stage"].toInt());
    if (fault->in_backward && fault->stage == stage) {
      fault->stage = -1;
      throw DataError("the backward is broken");
    }
    return {gradients[0], {}, {}};
  }
};

struct FaultyStageImpl : torch::nn::Module {
  FaultyStageImpl(int stage, Fault& stage_fault)
      : index(stage),
        fault(stage_fault),
        linear(register_module("linear", torch::nn::Linear(4, 4))) {}
  torch::Tensor forward(const torch::Tensor& x) {
    if (!fault.in_backward && fault.stage == index) {
      fault.stage = -1;
      throw std::out_of_range("the forward is broken");
    }
    return linear->forward(FaultyFunction::apply(x, index, reinterpret_cast<int64_t>(&fault)));
  }
  const int index;
  Fault& fault;
  torch::nn::Linear linear;
};
TORCH_MODULE(FaultyStage);

constexpr int kFaultyStages = 4;

class PipelineFailures : public testing::TestWithParam<Schedule> {
 protected:
  Fault fault;
  std::vector<pipeline::StageModule> stages{FaultyStage(0, fault), FaultyStage(1, fault),
                                            FaultyStage(2, fault), FaultyStage(3, fault)};
  Pipeline pipe{stages,
                std::vector<torch::Device>(
                    static_cast<std::size_t>(workers_for(GetParam(), kFaultyStages)), torch::kCPU),
                {.micro_batches = 5, .schedule = GetParam(), .threads_per_worker = 1}};
  const torch::Tensor x = torch::ones({10, 4}), y = torch::zeros({10, 4});

  double step() {
    for (const auto& parameter : pipe.parameters()) parameter.mutable_grad() = torch::Tensor();
    const auto loss = [](const torch::Tensor& output, const torch::Tensor& target) {
      return torch::nn::functional::mse_loss(output, target);
    };
    return pipe.step(loss, x, y).item<double>();
  }
};
INSTANTIATE_TEST_SUITE_P(Schedules, PipelineFailures,
                         testing::Values(Schedule::kGPipe, Schedule::k1F1B, Schedule::kInterleaved,
                                         Schedule::kZbH1, Schedule::kZbV));

TEST_P(PipelineFailures, NameTheStageAndLeaveAPipelineThatWorks) {
  const double expected = step();
  const torch::Tensor gradient = pipe.parameters()[0].grad().clone();
  for (int stage = 0; stage < kFaultyStages; ++stage) {
    const int worker = pipe.table().worker_of[static_cast<std::size_t>(stage)];
    for (const bool in_backward : {false, true}) {
      fault.in_backward = in_backward;
      fault.stage = stage;
      const Clock::time_point start = Clock::now();
      // A Lockstep error keeps its type; other exceptions become lockstep::Error.
      const std::string message =
          in_backward ? message_of<DataError>([&] { step(); }) : message_of<Error>([&] { step(); });
      EXPECT_LT(seconds_since(start), 2);
      if (stage > 0 || !in_backward) {  // stage 0 has no backward through its input
        EXPECT_THAT(
            message,
            AllOf(HasSubstr(lockstep::str("worker ", worker, " failed in stage ", stage)),
                  HasSubstr(in_backward ? "the backward is broken" : "the forward is broken")));
      }
      fault.stage = -1;
      EXPECT_EQ(step(), expected);
      EXPECT_TRUE(pipe.parameters()[0].grad().equal(gradient));
    }
  }
}

TEST_P(PipelineFailures, InTheCriterionNameTheLastStage) {
  const auto broken = [](const torch::Tensor&, const torch::Tensor&) -> torch::Tensor {
    throw ConfigError("no such loss");
  };
  EXPECT_THAT(message_of<ConfigError>([&] { pipe.step(broken, x, y); }),
              AllOf(HasSubstr("failed in stage 3 at 3F0"), HasSubstr("no such loss")));
  const auto of_samples = [](const torch::Tensor& output, const torch::Tensor&) {
    return output.sum(1);
  };
  EXPECT_THAT(message_of<ConfigError>([&] { pipe.step(of_samples, x, y); }),
              HasSubstr("must return a tensor of one element"));
  const auto nothing = [](const torch::Tensor&, const torch::Tensor&) { return torch::Tensor(); };
  EXPECT_THAT(message_of<ConfigError>([&] { pipe.step(nothing, x, y); }),
              HasSubstr("must return a tensor of one element"));
  const auto constant = [](const torch::Tensor&, const torch::Tensor&) { return torch::ones({}); };
  EXPECT_THAT(message_of<ConfigError>([&] { pipe.step(constant, x, y); }),
              HasSubstr("depends on no parameter"));
  EXPECT_NO_THROW(step());
}

TEST_P(PipelineFailures, RefuseBatchesThatDoNotFit) {
  const auto loss = [](const torch::Tensor& output, const torch::Tensor&) { return output.sum(); };
  EXPECT_THAT(message_of<ConfigError>([&] { pipe.step(loss, x, torch::zeros({9, 4})); }),
              HasSubstr("y has shape [9, 4], expected 10 samples"));
  EXPECT_THAT(message_of<ConfigError>([&] { pipe.step(loss, torch::zeros({0, 4}), y); }),
              HasSubstr("no samples"));
  EXPECT_THAT(message_of<Error>([&] { pipe.step(loss, torch::ones({10, 3}), y); }),
              HasSubstr("failed in stage 0 at 0F0"));
  EXPECT_NO_THROW(step());
}

// A thread whose stage has ended its forward, with or without an error, may run other pipelines.
TEST(StageForward, RefusesPipelinesOnlyWhileItRuns) {
  int refusals = 0;
  bool fails = false;
  auto linear = std::make_shared<torch::nn::LinearImpl>(4, 4);
  const pipeline::StageModule asks(linear, [&, linear](const Tensors& inputs) -> Tensors {
    EXPECT_THAT(message_of<ConfigError>([] { pipeline::refuse_pipelines_inside_stages(); }),
                HasSubstr("a Pipeline was called inside a stage of another one"));
    ++refusals;
    if (fails) throw DataError("the forward is broken");
    return {linear->forward(inputs[0])};
  });
  pipeline::Stage stage(0, asks, torch::kCPU, /*recompute=*/false, /*tied=*/nullptr);
  EXPECT_NO_THROW(pipeline::refuse_pipelines_inside_stages());
  for (const bool training : {true, false}) {
    stage.begin({.micro_batches = 1, .training = training});
    stage.forward(0, {.tensors = {torch::ones({2, 4})}});
    EXPECT_NO_THROW(pipeline::refuse_pipelines_inside_stages());
  }
  fails = true;
  EXPECT_EQ(message_of<DataError>([&] { stage.forward(0, {.tensors = {torch::ones({2, 4})}}); }),
            "the forward is broken");
  EXPECT_NO_THROW(pipeline::refuse_pipelines_inside_stages());
  EXPECT_EQ(refusals, 3);
}

// The other workers wait for a stage that takes too long, but no longer than the deadline.
TEST(PipelineDeadline, NamesWhoWaited) {
  std::atomic<bool> go_on = false;
  auto linear = std::make_shared<torch::nn::LinearImpl>(4, 4);
  auto other = std::make_shared<torch::nn::LinearImpl>(4, 4);
  const pipeline::StageModule slow(linear, [&, linear](const Tensors& inputs) -> Tensors {
    while (!go_on) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    return {linear->forward(inputs[0])};
  });
  Pipeline pipe({slow, other}, std::vector<torch::Device>(2, torch::kCPU),
                {.micro_batches = 2, .threads_per_worker = 1, .timeout = std::chrono::seconds(1)});
  // The step ends when the slow stage has finished its action.
  std::thread release([&] {
    std::this_thread::sleep_for(std::chrono::seconds(3));
    go_on = true;
  });
  const auto loss = [](const torch::Tensor& output, const torch::Tensor&) { return output.sum(); };
  EXPECT_THAT(
      message_of<TimeoutError>([&] { pipe.step(loss, torch::ones({4, 4}), torch::Tensor()); }),
      AllOf(HasSubstr("worker 1 failed in stage 1 at 1RECV_F0"), HasSubstr("waited 1000 ms")));
  release.join();
  EXPECT_NO_THROW(pipe.step(loss, torch::ones({4, 4}), torch::Tensor()));
}

}  // namespace
}  // namespace lockstep
