// A stage's backward in two parts is bitwise equal to its whole backward and to plain autograd.
#include <lockstep/parallel/pipeline/stage_backward.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/normalization.h>
#include <torch/nn/modules/rnn.h>

#include <ATen/Parallel.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/custom_function.h>

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include <lockstep/core/error.h>
#include <lockstep/core/strings.h>
#include <lockstep/models/mnist_net.h>
#include <lockstep/optim/distinct.h>
#include <lockstep/parallel/pipeline/tied_parameters.h>
#include <tests/support/messages.h>

namespace lockstep::pipeline {
namespace {

namespace nn = torch::nn;

// Multiplies by a scale and counts its backward calls.
struct ScaleFunction : torch::autograd::Function<ScaleFunction> {
  static inline int backwards = 0;
  static torch::Tensor forward(torch::autograd::AutogradContext* context, const torch::Tensor& x,
                               const torch::Tensor& scale) {
    context->save_for_backward({x, scale});
    return x * scale;
  }
  static Tensors backward(torch::autograd::AutogradContext* context, Tensors gradients) {
    ++backwards;
    const auto saved = context->get_saved_variables();
    return {gradients[0] * saved[1], (gradients[0] * saved[0]).sum(0)};
  }
};

using Forward = std::function<Tensors(const Tensors& inputs)>;

// A stage: its parameters, its forward, and its inputs.
struct StageCase {
  std::string name;
  std::function<std::pair<Tensors, Forward>()> make;
  std::function<Tensors()> inputs;
};

Tensors normal(std::initializer_list<std::vector<std::int64_t>> shapes) {
  Tensors tensors;
  for (const auto& shape : shapes) tensors.push_back(torch::randn(shape));
  return tensors;
}

template <class Module>
std::pair<Tensors, Forward> of_module(Module module) {
  return {module->parameters(),
          [module](const Tensors& in) mutable -> Tensors { return {module->forward(in[0])}; }};
}

std::vector<StageCase> stage_cases() {
  return {
      {"Linear", [] { return of_module(nn::Linear(6, 5)); }, [] { return normal({{4, 6}}); }},
      {"LinearOf3d", [] { return of_module(nn::Linear(6, 5)); },
       [] { return normal({{4, 3, 6}}); }},
      {"Conv", [] { return of_module(nn::Conv2d(nn::Conv2dOptions(3, 8, 3).padding(1))); },
       [] { return normal({{4, 3, 9, 9}}); }},
      {"ConvChannelsLast",
       [] { return of_module(nn::Conv2d(nn::Conv2dOptions(3, 8, 3).padding(1))); },
       [] {
         return Tensors{torch::randn({4, 3, 9, 9}).contiguous(torch::MemoryFormat::ChannelsLast)};
       }},
      {"BatchNorm", [] { return of_module(nn::BatchNorm2d(5)); },
       [] { return normal({{4, 5, 3, 3}}); }},
      {"LayerNorm", [] { return of_module(nn::LayerNorm(nn::LayerNormOptions({6}))); },
       [] { return normal({{4, 6}}); }},
      {"GroupNorm", [] { return of_module(nn::GroupNorm(2, 6)); },
       [] { return normal({{4, 6, 5}}); }},
      {"Lstm",
       [] {
         nn::LSTM lstm(nn::LSTMOptions(6, 5).num_layers(2));
         return std::pair<Tensors, Forward>(lstm->parameters(), [lstm](const Tensors& in) mutable {
           return Tensors{std::get<0>(lstm->forward(in[0]))};
         });
       },
       [] { return normal({{7, 4, 6}}); }},
      {"Block",
       [] {
         nn::Conv2d conv(nn::Conv2dOptions(4, 4, 3).padding(1).bias(false));
         nn::BatchNorm2d norm(4);
         Tensors parameters = conv->parameters();
         for (const auto& each : norm->parameters()) parameters.push_back(each);
         return std::pair<Tensors, Forward>(parameters, [conv, norm](const Tensors& in) mutable {
           return Tensors{norm->forward(conv->forward(in[0])).add_(in[0]).relu_()};
         });
       },
       [] { return normal({{4, 4, 6, 6}}); }},
      {"OneWeightThreeTimes",
       [] {
         nn::Linear linear(5, 5);
         return std::pair<Tensors, Forward>(
             linear->parameters(), [linear](const Tensors& in) mutable {
               const torch::Tensor a = torch::tanh(linear->forward(in[0]));
               return Tensors{linear->forward(a) * linear->forward(torch::sin(a))};
             });
       },
       [] { return normal({{4, 5}}); }},
      // A graph of parameters only, which joins late, and a parameter that is itself an output.
      {"WeightsWithoutInput",
       [] {
         nn::Linear linear(5, 5);
         return std::pair<Tensors, Forward>(
             linear->parameters(), [linear](const Tensors& in) mutable {
               const torch::Tensor scale = torch::softmax(linear->weight.matmul(linear->bias), 0);
               return Tensors{linear->forward(in[0]) * scale, linear->bias, scale};
             });
       },
       [] { return normal({{4, 5}}); }},
      {"SeveralInputsAndOutputs",
       [] {
         nn::Linear linear(5, 10);
         return std::pair<Tensors, Forward>(
             linear->parameters(), [linear](const Tensors& in) mutable {
               const auto halves = linear->forward(in[0]).chunk(2, 1);
               return Tensors{halves[0] * in[1], in[2], halves[1] + in[0], in[1].detach()};
             });
       },
       [] { return normal({{4, 5}, {4, 5}, {3, 2}}); }},
      {"UnusedInput",
       [] {
         nn::Linear linear(5, 5);
         return std::pair<Tensors, Forward>(
             linear->parameters(),
             [linear](const Tensors& in) mutable { return Tensors{linear->forward(in[0])}; });
       },
       [] { return normal({{4, 5}, {4, 5}}); }},
      {"CustomFunction",
       [] {
         const torch::Tensor scale = torch::randn({5}).requires_grad_();
         nn::Linear linear(5, 5);
         Tensors parameters = linear->parameters();
         parameters.push_back(scale);
         // The scale receives gradients from the function both before and after others.
         return std::pair<Tensors, Forward>(parameters, [linear, scale](const Tensors& in) mutable {
           const torch::Tensor a = ScaleFunction::apply(linear->forward(in[0] + scale), scale);
           return Tensors{linear->forward(a) * scale};
         });
       },
       [] { return normal({{4, 5}}); }},
      {"CustomFunctionOfDerivedWeights",
       [] {
         const torch::Tensor scale = torch::randn({5}).requires_grad_();
         return std::pair<Tensors, Forward>(Tensors{scale}, [scale](const Tensors& in) {
           const torch::Tensor derived = torch::exp(scale);
           return Tensors{ScaleFunction::apply(ScaleFunction::apply(in[0], derived), derived) *
                          derived};
         });
       },
       [] { return normal({{4, 5}}); }},
      {"FusedKernels", [] { return of_module(MnistNet(MnistNetOptions{.dropout = false})); },
       [] { return normal({{4, 1, 28, 28}}); }},
  };
}

// The gradients of parameters and inputs after several micro-batches.
struct Learnt {
  Tensors of_parameters;
  std::vector<Tensors> of_inputs;
};

enum class How { kAutograd, kWhole, kSplit, kTied };

Learnt learn(const StageCase& each, How how) {
  constexpr int kMicroBatches = 3;
  torch::manual_seed(7);
  auto [all, forward] = each.make();
  const Tensors parameters = optim::distinct(all);
  std::vector<Tensors> inputs, gradients;
  std::vector<StageBackward> backwards;
  std::vector<Tensors> outputs;
  Learnt learnt;
  for (int i = 0; i < kMicroBatches; ++i) {
    inputs.push_back(each.inputs());
    Tensors given;
    std::vector<GradientSink> sinks;
    for (torch::Tensor& input : inputs.back()) {
      if (how == How::kAutograd) {
        input.requires_grad_();
        given.push_back(input);
      } else {
        torch::Tensor tensor = input.detach();
        sinks.push_back(GradientSink::attach(tensor));
        given.push_back(tensor);
      }
    }
    outputs.push_back(forward(given));
    Tensors of_outputs;
    for (const auto& output : outputs.back()) {
      of_outputs.push_back(output.requires_grad() ? torch::randn(output.sizes()) : torch::Tensor());
    }
    gradients.push_back(of_outputs);
    if (how != How::kAutograd) {
      backwards.emplace_back(outputs.back(), sinks, how == How::kTied ? parameters : Tensors());
      outputs.back().clear();
    }
  }
  for (int i = 0; i < kMicroBatches; ++i) {
    const auto place = static_cast<std::size_t>(i);
    if (how == How::kAutograd) {
      Tensors roots, of_roots;
      for (std::size_t k = 0; k < outputs[place].size(); ++k) {
        if (!outputs[place][k].requires_grad()) continue;
        roots.push_back(outputs[place][k]);
        of_roots.push_back(gradients[place][k]);
      }
      torch::autograd::backward(roots, of_roots);
      Tensors of_inputs;
      for (const auto& input : inputs[place]) of_inputs.push_back(input.grad());
      learnt.of_inputs.push_back(of_inputs);
    } else if (how == How::kSplit) {
      learnt.of_inputs.push_back(backwards[place].backward_input(gradients[place]));
    } else {
      learnt.of_inputs.push_back(backwards[place].backward(gradients[place]));
    }
  }
  for (int i = 0; i < kMicroBatches; ++i) {
    StageBackward* backward =
        how == How::kAutograd ? nullptr : &backwards[static_cast<std::size_t>(i)];
    if (how == How::kSplit) {
      if (i == 0) {
        for (const auto& parameter : parameters) EXPECT_FALSE(parameter.grad().defined());
      }
      backward->backward_weight();
    }
    if (how != How::kTied) continue;
    const std::vector<Tensors> uses = backward->take_tied_gradients();
    for (std::size_t k = 0; k < parameters.size(); ++k) {
      EXPECT_FALSE(i == 0 && parameters[k].grad().defined());
      if (uses[k].empty()) continue;
      torch::Tensor sum = uses[k][0];
      for (std::size_t use = 1; use < uses[k].size(); ++use) sum = sum + uses[k][use];
      torch::Tensor& gradient = parameters[k].mutable_grad();
      gradient = gradient.defined() ? gradient + sum : sum;
    }
  }
  for (const auto& parameter : parameters) learnt.of_parameters.push_back(parameter.grad());
  return learnt;
}

std::string difference_of(const Tensors& a, const Tensors& b) {
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (a[i].defined() != b[i].defined())
      return lockstep::str(i, a[i].defined() ? " is" : " is not", " defined");
    if (a[i].defined() && !a[i].equal(b[i])) {
      return lockstep::str(i, " differs by ", (a[i] - b[i]).abs().max().item<double>());
    }
  }
  return "";
}

void PrintTo(const StageCase& each, std::ostream* out) { *out << each.name; }

class SplitBackward : public testing::TestWithParam<StageCase> {};
INSTANTIATE_TEST_SUITE_P(Stages, SplitBackward, testing::ValuesIn(stage_cases()),
                         [](const auto& info) { return info.param.name; });

TEST_P(SplitBackward, GivesTheBitsOfAutograd) {
  at::set_num_threads(1);
  const Learnt expected = learn(GetParam(), How::kAutograd);
  for (const How how : {How::kWhole, How::kSplit, How::kTied}) {
    const Learnt got = learn(GetParam(), how);
    EXPECT_EQ(difference_of(got.of_parameters, expected.of_parameters), "")
        << static_cast<int>(how);
    for (std::size_t i = 0; i < got.of_inputs.size(); ++i) {
      EXPECT_EQ(difference_of(got.of_inputs[i], expected.of_inputs[i]), "")
          << static_cast<int>(how) << ' ' << i;
    }
  }
}

TEST(GradientSink, GivesItsGradientAway) {
  torch::Tensor x = torch::randn({4, 5});
  const GradientSink sink = GradientSink::attach(x);
  EXPECT_FALSE(sink.take().defined()) << "none has arrived";
  (x * 2).sum().backward();
  torch::Tensor gradient = sink.take();
  ASSERT_TRUE(gradient.defined());
  EXPECT_TRUE(gradient.equal(torch::full({4, 5}, 2.0F)));
  EXPECT_FALSE(sink.take().defined());
  const auto memory = gradient.storage().getWeakStorageImpl();
  gradient = torch::Tensor();
  EXPECT_TRUE(memory.expired());
  (x * 3).sum().backward();
  EXPECT_TRUE(sink.take().equal(torch::full({4, 5}, 3.0F))) << "not added to the one before";
  EXPECT_FALSE(GradientSink().take().defined());
}

TEST(StageBackward, RunsACustomFunctionOnce) {
  const torch::Tensor scale = torch::randn({5}).requires_grad_();
  torch::Tensor x = torch::randn({4, 5});
  const GradientSink sink = GradientSink::attach(x);
  StageBackward backward({ScaleFunction::apply(x, scale)}, {sink});
  ScaleFunction::backwards = 0;
  const Tensors of_inputs = backward.backward_input({torch::ones({4, 5})});
  EXPECT_TRUE(of_inputs[0].equal(scale.detach().expand({4, 5})));
  EXPECT_FALSE(scale.grad().defined());
  backward.backward_weight();
  EXPECT_EQ(ScaleFunction::backwards, 1);
  EXPECT_TRUE(scale.grad().equal(x.detach().sum(0)));
}

// x + c * scale + bias, for an x with one row. All gradients derive from the incoming one, and the
// bias's gradient is a view of it.
struct AffineFunction : torch::autograd::Function<AffineFunction> {
  static torch::Tensor forward(torch::autograd::AutogradContext*, const torch::Tensor& x,
                               const torch::Tensor& scale, const torch::Tensor& bias) {
    return x + 3 * scale + bias;
  }
  static Tensors backward(torch::autograd::AutogradContext*, Tensors gradients) {
    const torch::Tensor& gradient = gradients[0];
    return {gradient, 3 * gradient.squeeze(0), gradient.squeeze(0)};
  }
};

// The previous stage reads the gradient of its output while the bias's gradient sum is being
// written.
TEST(StageBackward, SendsNoMemoryThatTheSecondPartKeeps) {
  const torch::Tensor scale = torch::randn({5}).requires_grad_();
  const torch::Tensor bias = torch::randn({5}).requires_grad_();
  torch::Tensor x = torch::randn({1, 5});
  const GradientSink sink = GradientSink::attach(x);
  StageBackward backward({AffineFunction::apply(x, scale, bias)}, {sink});
  const torch::Tensor sent = backward.backward_input({torch::ones({1, 5})})[0];
  backward.backward_weight();
  EXPECT_TRUE(sent.equal(torch::ones({1, 5})));
  EXPECT_TRUE(scale.grad().equal(torch::full({5}, 3.0F)));
  EXPECT_TRUE(bias.grad().equal(torch::ones({5})));
  EXPECT_FALSE(sent.is_alias_of(bias.grad()));
}

// When no input needs a gradient, the first part has nothing to do.
TEST(StageBackward, LeavesAllToTheSecondPartWithoutInputs) {
  nn::Linear linear(5, 5);
  const torch::Tensor x = torch::randn({4, 5});
  StageBackward backward({linear->forward(x)}, {GradientSink()});
  const Tensors of_inputs = backward.backward_input({torch::ones({4, 5})});
  ASSERT_EQ(of_inputs.size(), 1U);
  EXPECT_FALSE(of_inputs[0].defined());
  EXPECT_FALSE(linear->weight.grad().defined());
  backward.backward_weight();
  EXPECT_TRUE(linear->bias.grad().equal(torch::full({5}, 4.0F)));
}

// A gradient that flows into a sink of the module itself belongs to the first part. It is dropped.
TEST(StageBackward, EndsTheFirstPartAtASinkOfTheModule) {
  at::set_num_threads(1);
  nn::Linear first(5, 5), second(5, 5);
  const torch::Tensor x = torch::randn({4, 5}), gradient = torch::randn({4, 5});
  second->forward(torch::gelu(first->forward(x))).backward(gradient);
  const torch::Tensor of_first = first->weight.grad().clone();
  const torch::Tensor of_second = second->weight.grad().clone();
  first->zero_grad();
  second->zero_grad();

  torch::Tensor wanted = x.detach();
  GradientSink::attach(wanted);
  auto linear = first->forward(wanted);
  const auto of_linear = linear.storage().getWeakStorageImpl();
  StageBackward backward({second->forward(torch::gelu(linear))}, {GradientSink()});
  linear = torch::Tensor();
  const Tensors of_inputs = backward.backward_input({gradient});
  ASSERT_EQ(of_inputs.size(), 1U);
  EXPECT_FALSE(of_inputs[0].defined());
  EXPECT_TRUE(of_linear.expired());  // only GELU's backward needed it, and that has run
  EXPECT_FALSE(first->weight.grad().defined());
  backward.backward_weight();
  EXPECT_TRUE(first->weight.grad().equal(of_first));
  EXPECT_TRUE(second->weight.grad().equal(of_second));
}

// The first part releases what only the input gradients needed, the second part the rest.
TEST(StageBackward, ReleasesActivationsAsSoonAsItCan) {
  nn::Linear first(5, 5), second(5, 5);
  torch::Tensor x = torch::randn({4, 5});
  const GradientSink sink = GradientSink::attach(x);
  auto exp = torch::exp(first->forward(x));  // saved by exp and by sin
  auto sin = torch::sin(exp);                // saved by the second layer, for its weight
  auto output = second->forward(sin);
  const auto of_exp = exp.storage().getWeakStorageImpl();
  const auto of_sin = sin.storage().getWeakStorageImpl();
  StageBackward backward({output}, {sink});
  exp = sin = output = torch::Tensor();
  EXPECT_FALSE(of_exp.expired());
  backward.backward_input({torch::ones({4, 5})});
  EXPECT_TRUE(of_exp.expired());
  EXPECT_FALSE(of_sin.expired());
  backward.backward_weight();
  EXPECT_TRUE(of_sin.expired());
  EXPECT_TRUE(first->weight.grad().defined());
}

TEST(StageBackward, LetsAStageChangeItsInputInPlace) {
  torch::Tensor x = torch::randn({4, 5});
  const torch::Tensor before = x.clone();
  const GradientSink sink = GradientSink::attach(x);
  StageBackward backward({x.relu_()}, {sink});
  const Tensors of_inputs = backward.backward({torch::ones({4, 5})});
  EXPECT_TRUE(of_inputs[0].equal((before > 0).to(torch::kFloat32)));
}

torch::Tensor fresh_parameter() { return torch::zeros({2}, torch::requires_grad()); }

// The gradient of a use, with one value in all places.
torch::Tensor use_of(float value) { return torch::full({2}, value); }

TEST(TiedParameters, AreThoseOfSeveralStages) {
  const torch::Tensor a = fresh_parameter(), b = fresh_parameter(), own = fresh_parameter();
  const TiedParameters tied({{a, own, a}, {b}, {b, a}, {}});
  const auto of = [&](int stage) { return tied.of(stage); };
  ASSERT_EQ(of(0).size(), 1U);
  EXPECT_TRUE(of(0)[0].is_same(a));
  ASSERT_EQ(of(1).size(), 1U);
  EXPECT_TRUE(of(1)[0].is_same(b));
  ASSERT_EQ(of(2).size(), 2U);
  EXPECT_TRUE(of(2)[0].is_same(a));
  EXPECT_TRUE(of(2)[1].is_same(b));
  EXPECT_TRUE(of(3).empty());
  EXPECT_TRUE(tied.any_requires_grad());
  a.set_requires_grad(false);
  EXPECT_TRUE(tied.any_requires_grad()) << "the second still does";
  b.set_requires_grad(false);
  EXPECT_FALSE(tied.any_requires_grad()) << "one that is not shared does not count";
  EXPECT_FALSE(TiedParameters({{own}, {fresh_parameter()}}).any_requires_grad());
}

TEST(TiedParameters, AreAddedUpInOrderOnceAllStagesHaveGivenTheirs) {
  const torch::Tensor shared = fresh_parameter();
  TiedParameters tied({{shared}, {fresh_parameter()}, {shared}});
  const auto give = [&](int stage, int micro_batch, const Tensors& uses) {
    tied.add(stage, micro_batch, std::vector<Tensors>{uses});
  };
  tied.begin(3);
  give(0, 0, {use_of(1)});
  give(2, 1, {use_of(10)});
  give(0, 1, {});
  EXPECT_FALSE(shared.grad().defined()) << "the first micro-batch is not complete";
  give(2, 0, {use_of(100), use_of(1000)});
  EXPECT_TRUE(shared.grad().equal(use_of(1111))) << shared.grad();
  give(2, 2, {});
  give(0, 2, {});
  EXPECT_TRUE(shared.grad().equal(use_of(1111))) << "no use, no gradient";
  // A step that failed leaves nothing behind.
  tied.begin(1);
  give(0, 0, {use_of(5)});
  tied.begin(1);
  give(2, 0, {use_of(10000)});
  EXPECT_TRUE(shared.grad().equal(use_of(1111))) << shared.grad();
  give(0, 0, {use_of(20000)});
  EXPECT_TRUE(shared.grad().equal(use_of(31111))) << shared.grad();
}

TEST(TiedParameters, NeedGradientsOfEachOfThem) {
  const torch::Tensor shared = fresh_parameter();
  TiedParameters tied({{shared}, {shared}});
  tied.begin(1);
  EXPECT_THAT(testing_support::message_of<InternalError>([&] { tied.add(1, 0, {}); }),
              testing::HasSubstr("stage 1 has 1 tied parameters and gave gradients of 0"));
  EXPECT_THROW(tied.add(0, 0, std::vector<Tensors>(2)), InternalError);
  EXPECT_FALSE(shared.grad().defined());
}

}  // namespace
}  // namespace lockstep::pipeline
