// Summaries of models: parameter counts of known nets, and shapes found by running the model.
#include <lockstep/train/task/summarize.h>

#include <cstdint>
#include <map>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/module.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/dropout.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/instancenorm.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/normalization.h>
#include <torch/nn/modules/rnn.h>
#include <torch/nn/pimpl.h>

#include <lockstep/core/error.h>
#include <lockstep/models/mnist_net.h>
#include <lockstep/models/resnet.h>
#include <tests/support/messages.h>
#include <tests/train/tasks/summary_shapes.h>
#include <tests/train/trainer/trainer_runs.h>

namespace lockstep::train {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using testing_support::message_of;

ModelSummary summary_of(ResNet net, std::int64_t image_size, int max_depth) {
  const torch::Tensor x = torch::zeros({2, 3, image_size, image_size});
  return summarize(*net, max_depth, [&] { return net->forward(x); });
}

// The counts of torchvision's nets and of PyTorch's MNIST example.
TEST(ModelSummary, CountsTheParametersOfKnownNets) {
  struct Case {
    const char* name;
    std::shared_ptr<torch::nn::Module> net;
    std::int64_t parameters;
    std::int64_t buffers;  // scalars in the running statistics and batch counters
  };
  const Case cases[] = {{"MNIST", MnistNet().ptr(), 21840, 0},
                        {"ResNet-18", resnet18().ptr(), 11689512, 9600 * 4 + 20 * 8},
                        {"ResNet-18 for CIFAR-10", resnet18(ResNetStem::kCifar, 10).ptr(), 11173962,
                         9600 * 4 + 20 * 8},
                        {"ResNet-50", resnet50().ptr(), 25557032, 53120 * 4 + 53 * 8}};
  for (const Case& c : cases) {
    const ModelSummary summary = summarize(*c.net);
    EXPECT_EQ(summary.trainable, c.parameters) << c.name;
    EXPECT_EQ(summary.frozen, 0) << c.name;
    EXPECT_EQ(summary.parameter_bytes, 4 * c.parameters) << c.name;
    EXPECT_EQ(summary.buffer_bytes, c.buffers) << c.name;
    std::int64_t of_children = 0;
    for (const ModuleSummary& module : summary.modules) {
      EXPECT_THAT(module.output_shape, IsEmpty()) << "nothing has run";
      if (module.depth == 1) of_children += module.trainable;
    }
    EXPECT_EQ(of_children, c.parameters) << c.name;
  }
}

TEST(ModelSummary, HasARowForEachModuleDownToItsDepth) {
  const ModelSummary summary = summary_of(resnet18(ResNetStem::kCifar, 10), 32, 1);
  std::vector<std::tuple<std::string, std::string, std::int64_t, OutputShape>> rows;
  for (const ModuleSummary& module : summary.modules) {
    rows.emplace_back(module.name, module.type, module.trainable, module.output_shape);
  }
  using Shape = OutputShape;
  EXPECT_THAT(rows, ElementsAre(std::tuple("", "ResNet", 11173962, Shape{2, 10}),
                                std::tuple("conv1", "Conv2d", 1728, Shape{2, 64, 32, 32}),
                                std::tuple("bn1", "BatchNorm2d", 128, Shape{2, 64, 32, 32}),
                                std::tuple("layer1", "Sequential", 147968, Shape{2, 64, 32, 32}),
                                std::tuple("layer2", "Sequential", 525568, Shape{2, 128, 16, 16}),
                                std::tuple("layer3", "Sequential", 2099712, Shape{2, 256, 8, 8}),
                                std::tuple("layer4", "Sequential", 8393728, Shape{2, 512, 4, 4}),
                                std::tuple("fc", "Linear", 5130, Shape{2, 10})));
  EXPECT_EQ(summary_of(resnet18(ResNetStem::kCifar, 10), 32, 0).modules.size(), 1U);
}

TEST(ModelSummary, SeesTheModulesOfSequentialsAndLayersAtAnyDepth) {
  const auto shapes = shapes_by_name(summary_of(resnet18(ResNetStem::kCifar, 10), 32, -1));
  EXPECT_THAT(shapes.at("layer2.0"), ElementsAre(2, 128, 16, 16)) << "a block of our own class";
  EXPECT_THAT(shapes.at("layer2.0.conv1"), ElementsAre(2, 128, 16, 16));
  EXPECT_THAT(shapes.at("layer2.0.downsample"), ElementsAre(2, 128, 16, 16));
  EXPECT_THAT(shapes.at("layer4.1.bn2"), ElementsAre(2, 512, 4, 4));
}

TEST(ModelSummary, LeavesOpenWhatCannotBeSeen) {
  const torch::Tensor images = torch::zeros({2, 1, 28, 28});
  const auto shapes_of_net = [&](bool fused) {
    MnistNet net(MnistNetOptions{.fused_kernels = fused});
    return shapes_by_name(summarize(*net, 1, [&] { return net->forward(images); }));
  };
  const auto plain = shapes_of_net(false);
  EXPECT_THAT(plain.at("conv1"), ElementsAre(2, 10, 24, 24));
  EXPECT_THAT(plain.at("conv2"), ElementsAre(2, 20, 8, 8));
  EXPECT_THAT(plain.at("conv2_drop"), IsEmpty()) << "is called in training only";
  EXPECT_THAT(plain.at("fc1"), ElementsAre(2, 50));
  EXPECT_THAT(plain.at(""), ElementsAre(2, 10));
  EXPECT_THAT(shapes_of_net(true).at("conv1"), IsEmpty()) << "a kernel of ours has its weights";
}

// A Sequential accepts another one only if forward() is not a template.
struct SummaryBlockImpl : torch::nn::SequentialImpl {
  using SequentialImpl::SequentialImpl;
  torch::Tensor forward(torch::Tensor x) { return SequentialImpl::forward(std::move(x)); }
};
TORCH_MODULE(SummaryBlock);

// A nested Sequential, with dropout, flattening and activations, which have no parameters.
TEST(ModelSummary, LeavesTheModelAsItWas) {
  namespace nn = torch::nn;
  nn::Sequential net(SummaryBlock(nn::Conv2d(1, 3, 3), nn::BatchNorm2d(3), nn::ReLU()),
                     nn::Dropout(0.5), nn::Flatten(), nn::Linear(3 * 4 * 4, 2));
  net->ptr(1)->eval();
  const torch::Tensor x = torch::randn({5, 1, 6, 6});
  const torch::Tensor mean = net->named_buffers()["0.1.running_mean"].clone();
  const ModelSummary summary = summarize(*net, -1, [&] { return net->forward(x); });
  const auto shapes = shapes_by_name(summary);
  EXPECT_THAT(shapes.at("0"), ElementsAre(5, 3, 4, 4));
  EXPECT_THAT(shapes.at("0.2"), ElementsAre(5, 3, 4, 4));
  EXPECT_THAT(shapes.at("1"), ElementsAre(5, 3, 4, 4));
  EXPECT_THAT(shapes.at("2"), ElementsAre(5, 48));
  EXPECT_THAT(shapes.at("3"), ElementsAre(5, 2));
  EXPECT_TRUE(net->is_training());
  EXPECT_TRUE(net->ptr(0)->is_training());
  EXPECT_FALSE(net->ptr(1)->is_training());
  EXPECT_TRUE(mean.equal(net->named_buffers()["0.1.running_mean"])) << "it ran in eval mode";
  EXPECT_EQ(net->parameters().size(), 6U);
  EXPECT_EQ(std::dynamic_pointer_cast<nn::LinearImpl>(net->ptr(3))->weight.size(0), 2)
      << "the modules of the Sequential are its own again";
  EXPECT_FALSE(net->forward(x).equal(net->forward(x.mul(2))));
}

struct SummaryPairImpl : torch::nn::Module {
  std::tuple<torch::Tensor, torch::Tensor> forward(const torch::Tensor& x) { return {x, x}; }
};
TORCH_MODULE(SummaryPair);
struct SummaryAdderImpl : torch::nn::Module {
  torch::nn::Linear linear = register_module("linear", torch::nn::Linear(3, 4));
  torch::Tensor forward(const std::tuple<torch::Tensor, torch::Tensor>& pair) {
    return linear->forward(std::get<0>(pair) + std::get<1>(pair));
  }
};
TORCH_MODULE(SummaryAdder);

TEST(ModelSummary, KnowsLayersWhereASequentialPassesOnMoreThanATensor) {
  torch::nn::Sequential net(SummaryPair{}, SummaryAdder{});
  const torch::Tensor x = torch::ones({5, 3});
  int calls = 0;
  const auto shapes = shapes_by_name(summarize(*net, -1, [&] {
    ++calls;
    return net->forward(x);
  }));
  EXPECT_EQ(calls, 2);
  EXPECT_THAT(shapes.at("1.linear"), ElementsAre(5, 4));
  EXPECT_THAT(shapes.at("0"), IsEmpty());
  EXPECT_THAT(shapes.at(""), ElementsAre(5, 4));
  EXPECT_THAT(net->forward(x).sizes(), ElementsAre(5, 4));
}

// The embedding's weight is also registered in the model itself, as the weight of its last layer.
struct SummaryTiedWords : torch::nn::Module {
  torch::nn::Embedding embedding = register_module("embedding", torch::nn::Embedding(7, 3));
  torch::nn::LSTM lstm = register_module("lstm", torch::nn::LSTM(3, 3));
  torch::nn::Linear linear =
      register_module("linear", torch::nn::Linear(torch::nn::LinearOptions(3, 5).bias(false)));
  torch::nn::Linear back = register_module("back", torch::nn::Linear(5, 3));
  torch::nn::LayerNorm norm =
      register_module("norm", torch::nn::LayerNorm(torch::nn::LayerNormOptions({3})));
  torch::Tensor output = register_parameter("output", embedding->weight);
  torch::Tensor forward(const torch::Tensor& words) {
    const auto [states, last] = lstm->forward(embedding->forward(words));
    return norm->forward(back->forward(linear->forward(states))).matmul(output.t());
  }
};

TEST(ModelSummary, CountsTiedAndFrozenParameters) {
  SummaryTiedWords net;
  net.norm->bias.set_requires_grad(false);
  const auto words = torch::zeros({4, 2}, torch::kInt64);
  const ModelSummary summary = summarize(net, 1, [&] { return net.forward(words); });
  const std::int64_t of_lstm = 4 * (3 * 3 + 3 * 3 + 3 + 3);
  const std::int64_t of_linear = 3 * 5 + (5 * 3 + 3);
  EXPECT_EQ(summary.trainable, 7 * 3 + of_lstm + of_linear + 3) << "a tied weight counts once";
  EXPECT_EQ(summary.frozen, 3);
  EXPECT_EQ(summary.parameter_bytes, 4 * (7 * 3 + of_lstm + of_linear + 3 + 3));
  const auto shapes = shapes_by_name(summary);
  EXPECT_THAT(shapes.at("embedding"), ElementsAre(4, 2, 3));
  EXPECT_THAT(shapes.at("lstm"), ElementsAre(4, 2, 3));
  EXPECT_THAT(shapes.at("linear"), ElementsAre(4, 2, 5)) << "without a bias";
  EXPECT_THAT(shapes.at("back"), ElementsAre(4, 2, 3)) << "with one, of more than two dimensions";
  EXPECT_THAT(shapes.at("norm"), ElementsAre(4, 2, 3));
  EXPECT_THAT(shapes.at(""), ElementsAre(4, 2, 7));
}

// The shape that a summary gives for `layer` when `forward` calls it.
template <class Layer, class Forward>
OutputShape shape_seen_of(const Layer& layer, const Forward& forward) {
  torch::nn::Module net("Net");
  net.register_module("layer", layer);
  const ModelSummary summary = summarize(net, 1, [&] {
    forward(layer);
    return torch::Tensor();  // the shape of the net's own output is not known
  });
  EXPECT_THAT(summary.modules.at(0).output_shape, IsEmpty());
  return summary.modules.at(1).output_shape;
}

// A row for each of LibTorch's layers with parameters. Recurrent layers return a tuple.
TEST(ModelSummary, KnowsTheShapesOfLibTorchsLayers) {
  namespace nn = torch::nn;
  using torch::zeros;
  using Shape = OutputShape;
  const auto of = [](const auto& layer, const std::vector<std::int64_t>& input) {
    return shape_seen_of(layer, [&](auto each) { each->forward(zeros(input)); });
  };
  EXPECT_EQ(of(nn::Linear(3, 4), {2, 3}), (Shape{2, 4}));
  EXPECT_EQ(of(nn::Linear(3, 4), {2, 5, 3}), (Shape{2, 5, 4}));
  EXPECT_EQ(of(nn::Linear(3, 4), {3}), (Shape{4}));
  EXPECT_EQ(of(nn::Linear(3, 4), {0, 3}), (Shape{0, 4})) << "an empty batch";
  EXPECT_EQ(of(nn::Conv1d(3, 4, 3), {2, 3, 8}), (Shape{2, 4, 6}));
  EXPECT_EQ(of(nn::Conv2d(3, 4, 3), {2, 3, 8, 9}), (Shape{2, 4, 6, 7}));
  EXPECT_EQ(of(nn::Conv2d(nn::Conv2dOptions(3, 4, 3).padding(torch::kSame)), {2, 3, 8, 9}),
            (Shape{2, 4, 8, 9}));
  EXPECT_EQ(of(nn::Conv3d(1, 2, 2), {2, 1, 4, 5, 6}), (Shape{2, 2, 3, 4, 5}));
  EXPECT_EQ(of(nn::ConvTranspose1d(3, 4, 3), {2, 3, 8}), (Shape{2, 4, 10}));
  EXPECT_EQ(of(nn::ConvTranspose2d(3, 4, 3), {2, 3, 8, 9}), (Shape{2, 4, 10, 11}));
  EXPECT_EQ(of(nn::ConvTranspose3d(1, 2, 2), {2, 1, 4, 5, 6}), (Shape{2, 2, 5, 6, 7}));
  EXPECT_EQ(of(nn::BatchNorm1d(3), {2, 3}), (Shape{2, 3}));
  EXPECT_EQ(of(nn::BatchNorm1d(nn::BatchNorm1dOptions(3).affine(false)), {2, 3}), (Shape{2, 3}))
      << "has buffers only";
  EXPECT_EQ(of(nn::BatchNorm3d(3), {2, 3, 4, 5, 6}), (Shape{2, 3, 4, 5, 6}));
  EXPECT_EQ(of(nn::InstanceNorm1d(nn::InstanceNorm1dOptions(3).affine(true)), {2, 3, 5}),
            (Shape{2, 3, 5}));
  EXPECT_EQ(of(nn::LayerNorm(nn::LayerNormOptions({5})), {2, 3, 5}), (Shape{2, 3, 5}));
  EXPECT_EQ(of(nn::GroupNorm(1, 3), {2, 3, 5}), (Shape{2, 3, 5}));
  EXPECT_EQ(of(nn::PReLU(), {2, 3}), (Shape{2, 3}));
  EXPECT_EQ(of(nn::LSTM(nn::LSTMOptions(3, 4).bidirectional(true).num_layers(2)), {5, 2, 3}),
            (Shape{5, 2, 8}));
  EXPECT_EQ(of(nn::GRU(nn::GRUOptions(3, 4).batch_first(true)), {5, 2, 3}), (Shape{5, 2, 4}));
  EXPECT_EQ(of(nn::RNN(3, 4), {5, 2, 3}), (Shape{5, 2, 4}));
  EXPECT_EQ(of(nn::RNN(nn::RNNOptions(3, 4).nonlinearity(torch::kReLU)), {5, 2, 3}),
            (Shape{5, 2, 4}));
  EXPECT_EQ(of(nn::LSTMCell(3, 4), {2, 3}), (Shape{2, 4}));
  EXPECT_EQ(of(nn::GRUCell(3, 4), {2, 3}), (Shape{2, 4}));
  EXPECT_EQ(of(nn::RNNCell(3, 4), {2, 3}), (Shape{2, 4}));
  EXPECT_EQ(of(nn::RNNCell(nn::RNNCellOptions(3, 4).nonlinearity(torch::kReLU)), {2, 3}),
            (Shape{2, 4}));
  const torch::Tensor words = zeros({2, 6}, torch::kInt64);
  EXPECT_EQ(shape_seen_of(nn::Embedding(7, 3), [&](auto each) { each->forward(words); }),
            (Shape{2, 6, 3}));
  EXPECT_EQ(shape_seen_of(nn::EmbeddingBag(7, 3), [&](auto each) { each->forward(words); }),
            (Shape{2, 3}));
  EXPECT_EQ(shape_seen_of(nn::Bilinear(3, 4, 5),
                          [](auto each) { each->forward(zeros({2, 3}), zeros({2, 4})); }),
            (Shape{2, 5}));
}

// That of the last call is shown.
TEST(ModelSummary, ShowsTheShapeOfTheLastOfSeveralCalls) {
  const OutputShape shape = shape_seen_of(torch::nn::Linear(3, 4), [](auto each) {
    each->forward(torch::zeros({2, 3}));
    each->forward(torch::zeros({6, 3}));
  });
  EXPECT_EQ(shape, (OutputShape{6, 4}));
}

// Two modules that register one mask, and a batch norm under two names.
TEST(ModelSummary, CountsSharedBuffersAndModulesOnce) {
  namespace nn = torch::nn;
  nn::Module net("Sharing");
  const torch::Tensor mask = torch::zeros({7}, torch::kInt64);
  const auto make_child = [&](const char* name) {
    const auto child = std::make_shared<nn::Module>(name);
    child->register_buffer("mask", mask);
    return child;
  };
  net.register_module("first", make_child("First"));
  net.register_module("second", make_child("Second"));
  net.register_buffer("mask", mask);
  EXPECT_EQ(summarize(net).buffer_bytes, 7 * 8);
  net.register_buffer("own", torch::zeros({3}, torch::kUInt8));
  EXPECT_EQ(summarize(net).buffer_bytes, 7 * 8 + 3);
  const nn::BatchNorm1d norm(5);
  net.register_module("norm", norm);
  net.register_module("again", norm);
  const ModelSummary summary = summarize(net);
  EXPECT_EQ(summary.buffer_bytes, 7 * 8 + 3 + 2 * 5 * 4 + 8) << "two statistics and a counter";
  EXPECT_EQ(summary.trainable, 2 * 5);
  EXPECT_EQ(summary.frozen, 0);
  EXPECT_EQ(summary.parameter_bytes, 2 * 5 * 4);
}

template <class Value>
struct SummaryGenericImpl : torch::nn::Module {};

TEST(ModelSummary, NamesTypesWithoutScopesArgumentsAndTheEndingOfHolders) {
  const auto type_of = [](torch::nn::Module& module) { return summarize(module).modules[0].type; };
  SummaryGenericImpl<std::map<std::string, int>> generic;
  EXPECT_EQ(type_of(generic), "SummaryGeneric");
  torch::nn::Module impl("Impl"), simple("Simple");
  EXPECT_EQ(type_of(impl), "Impl") << "nothing would be left";
  EXPECT_EQ(type_of(simple), "Simple");
}

TEST(ModelSummary, PassesOnWhatTheForwardThrows) {
  MnistNet net;
  EXPECT_EQ(message_of<ConfigError>([&] { summarize(*net, -2); }),
            "summarize: max_depth must be -1 (all modules) or more, got -2");
  EXPECT_EQ(message_of<DataError>([&] {
              summarize(*net, 1, []() -> torch::Tensor { throw DataError("no batch"); });
            }),
            "no batch");
  EXPECT_TRUE(net->is_training());
}

struct SummaryListener : Listener {
  void on_run_begin(const RunInfo&) override { begun = true; }
  void on_model_summary(const ModelSummary& got) override {
    EXPECT_TRUE(begun);
    summary = got;
  }
  bool begun = false;
  ModelSummary summary{};
};

TEST(TrainerModelSummary, ReachesListenersWithoutAChangeOfTraining) {
  SummaryListener listener;
  TrainerOptions run = options(1);
  run.listeners = {&listener};
  const StateDict plain = train(run).state;
  EXPECT_THAT(listener.summary.modules, IsEmpty()) << "it is off by default";
  run.model_summary_depth = 1;
  const Outcome outcome = train(run);
  expect_equal_bits(outcome.state, plain);
  EXPECT_EQ(outcome.report.skipped_images, 0);
  EXPECT_EQ(listener.summary.trainable, 21840);
  EXPECT_THAT(shapes_by_name(listener.summary).at("fc2"), ElementsAre(20, 10));
  EXPECT_THAT(shapes_by_name(listener.summary).at(""), ElementsAre(20, 10));
  run.model_summary_depth = -2;
  EXPECT_THROW(train(run), ConfigError);
}

// All ranks run the model, because a task may communicate.
TEST(TrainerModelSummary, IsMadeOnRanksAndStages) {
  TrainerOptions run = options(1);
  run.model_summary_depth = -1;
  run.max_steps = 2;
  SummaryListener listener;
  const auto errors = testing_support::run_group(2, "shm", [&](ProcessGroup group) {
    at::set_num_threads(1);
    TrainerOptions own = run;
    if (group.rank() == 0) own.listeners = {&listener};
    train(own, group, /*dropout=*/false);
  });
  EXPECT_EQ(errors, testing_support::no_errors(2));
  EXPECT_THAT(shapes_by_name(listener.summary).at("fc1"), ElementsAre(10, 50));
}

}  // namespace
}  // namespace lockstep::train
