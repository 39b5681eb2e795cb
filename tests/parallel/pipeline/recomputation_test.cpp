// Forwards that run again before their backward: their results, and the buffers of their modules.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <ATen/Parallel.h>
#include <torch/nn/functional/loss.h>
#include <torch/nn/module.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/rnn.h>
#include <torch/nn/pimpl.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <lockstep/core/error.h>
#include <lockstep/parallel/pipeline/pipeline.h>
#include <tests/parallel/pipeline/nets.h>
#include <tests/support/messages.h>

namespace lockstep {
namespace {

namespace nn = torch::nn;

using testing::AllOf;
using testing::Each;
using testing::ElementsAre;
using testing::HasSubstr;
using testing_support::accumulate;
using testing_support::difference;
using testing_support::message_of;
using testing_support::Net;

std::vector<torch::Device> recomputing_cpus(std::size_t count) {
  return std::vector<torch::Device>(count, torch::kCPU);
}

// The outputs of a recurrent module, without its state.
template <class Recurrent>
struct OutputsOnlyImpl : nn::Module {
  explicit OutputsOnlyImpl(Recurrent module) : inner(register_module("inner", std::move(module))) {}
  torch::Tensor forward(const torch::Tensor& x) { return std::get<0>(inner->forward(x)); }
  Recurrent inner;
};

template <class Recurrent>
pipeline::StageModule outputs_of(Recurrent module) {
  return std::make_shared<OutputsOnlyImpl<Recurrent>>(std::move(module));
}

struct AttendingImpl : nn::Module {
  AttendingImpl() : inner(register_module("inner", nn::MultiheadAttention(8, 2))) {}
  torch::Tensor forward(const torch::Tensor& x) { return std::get<0>(inner->forward(x, x, x)); }
  nn::MultiheadAttention inner;
};
TORCH_MODULE(Attending);

// Without a graph LibTorch computes some modules by other kernels. What a stage passes on must not
// depend on whether it is computed again.
TEST(Recomputation, GivesTheBitsOfOneProcessForModulesWithSeveralKernels) {
  at::set_num_threads(1);
  struct Case {
    const char* what;
    std::function<pipeline::StageModule()> make;
  };
  const Case cases[] = {
      {"LSTM", [] { return outputs_of(nn::LSTM(nn::LSTMOptions(8, 8).num_layers(2))); }},
      {"LSTM, both directions",
       [] { return outputs_of(nn::LSTM(nn::LSTMOptions(8, 4).bidirectional(true))); }},
      {"LSTM, batch first",
       [] { return outputs_of(nn::LSTM(nn::LSTMOptions(8, 8).batch_first(true))); }},
      {"LSTM, dropout",
       [] { return outputs_of(nn::LSTM(nn::LSTMOptions(8, 8).num_layers(3).dropout(0.4))); }},
      {"GRU", [] { return outputs_of(nn::GRU(nn::GRUOptions(8, 8).num_layers(2))); }},
      {"RNN", [] { return outputs_of(nn::RNN(nn::RNNOptions(8, 8))); }},
      {"attention", [] { return pipeline::StageModule(Attending()); }},
  };
  for (const Case& c : cases) {
    const auto make = [&]() -> Net {
      torch::manual_seed(3);
      nn::Sequential first(nn::Linear(8, 8), nn::Tanh()), last(nn::Linear(8, 8));
      return {{first, c.make(), c.make(), last},
              torch::randn({9, 5, 8}),
              torch::randn({9, 5, 8}),
              [](const torch::Tensor& output, const torch::Tensor& y) {
                return torch::mse_loss(output, y);
              }};
    };
    const Net expected = make();
    torch::manual_seed(4);
    const torch::Tensor loss = accumulate(expected, 3);
    for (const bool recompute : {false, true}) {
      const Net net = make();
      Pipeline pipe(net.stages, recomputing_cpus(4),
                    {.micro_batches = 3, .recompute = recompute, .threads_per_worker = 1});
      torch::manual_seed(4);
      EXPECT_TRUE(pipe.step(net.criterion, net.x, net.y).equal(loss)) << c.what << recompute;
      EXPECT_EQ(difference(net, expected), "") << c.what << ' ' << recompute;
    }
  }
}

// A criterion may count its calls with gradients, as the Trainer's does.
TEST(Recomputation, CallsTheCriterionOnceWithGradients) {
  Net net{{nn::Linear(4, 4), nn::Linear(4, 2)}, torch::randn({8, 4}), torch::randn({8, 2}), {}};
  int with = 0, without = 0;
  Pipeline pipe(net.stages, recomputing_cpus(2), {.micro_batches = 4, .recompute = true});
  pipe.step(
      [&](const torch::Tensor& output, const torch::Tensor& y) {
        ++(c10::GradMode::is_enabled() ? with : without);
        return torch::mse_loss(output, y);
      },
      net.x, net.y);
  EXPECT_EQ(with, 4);
  EXPECT_EQ(without, 4);
}

// Normalises, and fails when it runs for the second time.
struct FailsWhenRepeatedImpl : nn::Module {
  FailsWhenRepeatedImpl()
      : linear(register_module("linear", nn::Linear(4, 4))),
        norm(register_module("norm", nn::BatchNorm1d(4))) {}
  torch::Tensor forward(const torch::Tensor& x) {
    const torch::Tensor y = norm->forward(linear->forward(x));
    if (++calls == failing_call) throw DataError("the forward cannot be repeated");
    return y;
  }
  nn::Linear linear;
  nn::BatchNorm1d norm;
  int calls = 0, failing_call = -1;
};
TORCH_MODULE(FailsWhenRepeated);

TEST(Recomputation, ThatFailsLeavesTheBuffersOfTheFirstForward) {
  at::set_num_threads(1);  // as in the stage's worker, for the same bits
  torch::manual_seed(2);
  FailsWhenRepeated stage;
  const auto plain = std::dynamic_pointer_cast<nn::BatchNorm1dImpl>(nn::BatchNorm1d(4).ptr());
  const torch::Tensor x = torch::randn({8, 4});
  nn::Linear last(4, 2);
  Pipeline pipe({stage, last}, recomputing_cpus(2), {.micro_batches = 1, .recompute = true});
  {
    const torch::NoGradGuard no_grad;
    plain->forward(stage->linear->forward(x));
  }
  const auto sum = [](const torch::Tensor& output, const torch::Tensor&) { return output.sum(); };
  stage->failing_call = 2;
  EXPECT_THAT(message_of<DataError>([&] { pipe.step(sum, x, torch::Tensor()); }),
              AllOf(HasSubstr("failed in stage 0 at 0B0"), HasSubstr("cannot be repeated")));
  EXPECT_TRUE(stage->norm->running_mean.equal(plain->running_mean));
  EXPECT_TRUE(stage->norm->running_var.equal(plain->running_var));
  EXPECT_EQ(stage->norm->num_batches_tracked.item<std::int64_t>(), 1);
  EXPECT_NO_THROW(pipe.step(sum, x, torch::Tensor()));
  EXPECT_EQ(stage->norm->num_batches_tracked.item<std::int64_t>(), 2);
}

// Counts the tensors that graphs hold.
struct HeldTensorImpl : nn::Module {
  HeldTensorImpl() : weight(register_parameter("weight", torch::rand({4}) + 0.5)) {}
  torch::Tensor forward(const torch::Tensor& x) {
    if (++calls == failing_call) throw DataError("out of luck");
    ++held;
    const torch::Tensor kept = torch::from_blob(&one, {1}, [this](void*) { --held; });
    return x * (weight * kept);
  }
  torch::Tensor weight;
  std::atomic<int> held = 0;
  int calls = 0, failing_call = -1;
  float one = 1;
};
TORCH_MODULE(HeldTensor);

// Also after a step that failed in the middle, and in the next step, which must not count them.
TEST(FailedStep, LeavesNoActivations) {
  const auto sum = [](const torch::Tensor& output, const torch::Tensor&) { return output.sum(); };
  for (const bool recompute : {false, true}) {
    HeldTensor first, last;
    Pipeline pipe({first, last}, recomputing_cpus(2),
                  {.micro_batches = 4,
                   .schedule = Schedule::k1F1B,
                   .recompute = recompute,
                   .measure_memory = true});
    const torch::Tensor x = torch::ones({8, 4});
    pipe.step(sum, x, torch::Tensor());
    const std::vector<int> peaks = pipe.peak_activations();
    EXPECT_THAT(peaks, ElementsAre(2, 1));
    last->failing_call = last->calls + 2;
    EXPECT_THROW(pipe.step(sum, x, torch::Tensor()), DataError);
    EXPECT_EQ(first->held.load(), 0) << recompute;
    EXPECT_EQ(last->held.load(), 0) << recompute;
    pipe.step(sum, x, torch::Tensor());
    EXPECT_EQ(pipe.peak_activations(), peaks) << recompute;
  }
}

}  // namespace
}  // namespace lockstep
