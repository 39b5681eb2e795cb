// Output shapes of modules with a forward() of their own, and of layers without parameters.
#include <lockstep/train/task/data_flow_shapes.h>

#include <map>
#include <memory>
#include <string>
#include <tuple>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/module.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/modulelist.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/dropout.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/normalization.h>
#include <torch/nn/modules/pooling.h>

#include <lockstep/models/resnet.h>
#include <lockstep/train/task/summarize.h>
#include <tests/train/tasks/summary_shapes.h>

namespace lockstep::train {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using testing::Not;
using testing::Pair;

TEST(DataFlowShapes, AreKnownOfAllModulesOfAResNet) {
  ResNet net = resnet18();
  const torch::Tensor x = torch::zeros({2, 3, 64, 64});
  const auto shapes = shapes_by_name(summarize(*net, -1, [&] { return net->forward(x); }));
  for (const auto& [name, shape] : shapes) EXPECT_THAT(shape, Not(IsEmpty())) << name;
}

// Blocks with their own forward(), as users write them.
struct SummaryLevel : torch::nn::Module {
  SummaryLevel(int in, int out)
      : conv(register_module("conv",
                             torch::nn::Conv2d(torch::nn::Conv2dOptions(in, out, 3).padding(1)))),
        norm(register_module("norm", torch::nn::BatchNorm2d(out))) {}
  torch::Tensor forward(const torch::Tensor& x) { return norm->forward(conv->forward(x)).relu_(); }
  torch::nn::Conv2d conv;
  torch::nn::BatchNorm2d norm;
};
struct SummaryUNet : torch::nn::Module {
  std::shared_ptr<SummaryLevel> level(const char* name, int in, int out) {
    return register_module(name, std::make_shared<SummaryLevel>(in, out));
  }
  torch::nn::MaxPool2d pool = register_module("pool", torch::nn::MaxPool2d(2));
  std::shared_ptr<SummaryLevel> down1 = level("down1", 1, 2), down2 = level("down2", 2, 4),
                                bottom = level("bottom", 4, 8), up2 = level("up2", 8, 4),
                                up1 = level("up1", 4, 2);
  torch::nn::ConvTranspose2d rise2 = register_module(
      "rise2", torch::nn::ConvTranspose2d(torch::nn::ConvTranspose2dOptions(8, 4, 2).stride(2)));
  torch::nn::ConvTranspose2d rise1 = register_module(
      "rise1", torch::nn::ConvTranspose2d(torch::nn::ConvTranspose2dOptions(4, 2, 2).stride(2)));
  torch::nn::Conv2d head = register_module("head", torch::nn::Conv2d(2, 3, 1));
  torch::Tensor forward(const torch::Tensor& x) {
    const torch::Tensor first = down1->forward(x);
    const torch::Tensor second = down2->forward(pool->forward(first));
    torch::Tensor y = bottom->forward(pool->forward(second));
    y = up2->forward(torch::cat({second, rise2->forward(y)}, 1));
    return head->forward(up1->forward(torch::cat({first, rise1->forward(y)}, 1)));
  }
};

TEST(DataFlowShapes, AreKnownOfTheLevelsOfAUNet) {
  SummaryUNet net;
  const torch::Tensor x = torch::zeros({2, 1, 16, 24});
  const auto shapes = shapes_by_name(summarize(net, 1, [&] { return net.forward(x); }));
  const torch::Tensor first = net.down1->forward(x);
  const torch::Tensor second = net.down2->forward(net.pool->forward(first));
  const torch::Tensor low = net.pool->forward(second);
  EXPECT_EQ(shapes.at("down1"), first.sizes().vec());
  EXPECT_EQ(shapes.at("down2"), second.sizes().vec());
  EXPECT_EQ(shapes.at("pool"), low.sizes().vec()) << "of its last call";
  EXPECT_EQ(shapes.at("bottom"), net.bottom->forward(low).sizes().vec());
  EXPECT_THAT(shapes.at("up2"), ElementsAre(2, 4, 8, 12));
  EXPECT_THAT(shapes.at("up1"), ElementsAre(2, 2, 16, 24));
  EXPECT_THAT(shapes.at("rise1"), ElementsAre(2, 2, 16, 24));
}

struct SummarySelfAttention : torch::nn::Module {
  torch::nn::Linear qkv = register_module("qkv", torch::nn::Linear(8, 24));
  torch::nn::Linear proj = register_module("proj", torch::nn::Linear(8, 8));
  torch::nn::Dropout drop = register_module("drop", torch::nn::Dropout(0.1));
  torch::Tensor forward(const torch::Tensor& x) {
    const auto heads =
        qkv->forward(x).view({x.size(0), x.size(1), 3, 2, 4}).permute({2, 0, 3, 1, 4});
    const torch::Tensor weights = heads[0].matmul(heads[1].transpose(-1, -2)).softmax(-1);
    return drop->forward(proj->forward(weights.matmul(heads[2]).transpose(1, 2).flatten(2)));
  }
};
struct SummaryMlp : torch::nn::Module {
  torch::nn::Linear fc1 = register_module("fc1", torch::nn::Linear(8, 32));
  torch::nn::GELU act = register_module("act", torch::nn::GELU());
  torch::nn::Linear fc2 = register_module("fc2", torch::nn::Linear(32, 8));
  torch::nn::Dropout drop = register_module("drop", torch::nn::Dropout(0.1));
  torch::Tensor forward(const torch::Tensor& x) {
    return drop->forward(fc2->forward(act->forward(fc1->forward(x))));
  }
};
struct SummaryEncoderBlock : torch::nn::Module {
  torch::nn::LayerNorm norm1 =
      register_module("norm1", torch::nn::LayerNorm(torch::nn::LayerNormOptions({8})));
  std::shared_ptr<SummarySelfAttention> attention =
      register_module("attention", std::make_shared<SummarySelfAttention>());
  torch::nn::LayerNorm norm2 =
      register_module("norm2", torch::nn::LayerNorm(torch::nn::LayerNormOptions({8})));
  std::shared_ptr<SummaryMlp> mlp = register_module("mlp", std::make_shared<SummaryMlp>());
  torch::Tensor forward(const torch::Tensor& x) {
    const torch::Tensor y = x + attention->forward(norm1->forward(x));
    return y + mlp->forward(norm2->forward(y));
  }
};
// The last block's output is averaged by the model itself, as the block could do.
struct SummaryTransformer : torch::nn::Module {
  std::shared_ptr<SummaryEncoderBlock> first =
      register_module("first", std::make_shared<SummaryEncoderBlock>());
  std::shared_ptr<SummaryEncoderBlock> second =
      register_module("second", std::make_shared<SummaryEncoderBlock>());
  torch::nn::Linear head = register_module("head", torch::nn::Linear(8, 3));
  torch::Tensor forward(const torch::Tensor& x) {
    return head->forward(second->forward(first->forward(x)).mean(1));
  }
};

TEST(DataFlowShapes, AreKnownOfTheBlocksOfATransformer) {
  SummaryTransformer net;
  const torch::Tensor x = torch::zeros({2, 5, 8});
  const ModelSummary summary = summarize(net, -1, [&] { return net.forward(x); });
  for (const auto& [name, shape] : shapes_by_name(summary)) {
    OutputShape right = {2, 5, 8};
    if (name.ends_with("qkv")) right[2] = 24;
    if (name.ends_with("fc1") || name.ends_with("act")) right[2] = 32;
    if (name.empty() || name == "head") right = {2, 3};
    // The average may be the last block's and even its perceptron's.
    if (name == "second" || name == "second.mlp") right = {};
    EXPECT_EQ(shape, right) << name;
  }
  EXPECT_THAT(
      last_operations_by_name(summary),
      ElementsAre(Pair("second", OutputShape{2, 5, 8}), Pair("second.mlp", OutputShape{2, 5, 8})));
}

// A net of the given modules, and the shapes that a summary finds if `forward` calls them.
using NamedModules = std::map<std::string, std::shared_ptr<torch::nn::Module>>;

template <class Forward>
ModelSummary summary_of(const NamedModules& modules, const Forward& forward) {
  torch::nn::Module net("Net");
  for (const auto& [name, module] : modules) net.register_module(name, module);
  return summarize(net, -1, forward);
}

template <class Forward>
std::map<std::string, OutputShape> shapes_in(const NamedModules& modules, const Forward& forward) {
  return shapes_by_name(summary_of(modules, forward));
}

// A block of a Linear and an activation.
struct SummaryProjection : torch::nn::Module {
  SummaryProjection(int in, int out) : fc(register_module("fc", torch::nn::Linear(in, out))) {}
  torch::Tensor forward(const torch::Tensor& x) { return fc->forward(x).relu(); }
  torch::nn::Linear fc;
};

TEST(DataFlowShapes, AreOpenIfABlockOrItsParentMayPool) {
  const auto block = std::make_shared<SummaryLevel>(1, 4);
  torch::nn::MaxPool2d pool(3);
  torch::nn::Linear fc(16, 2);
  const torch::Tensor x = torch::zeros({2, 1, 6, 6});
  const auto functional = shapes_in({{"block", block}, {"fc", fc.ptr()}}, [&] {
    return fc->forward(at::max_pool2d(block->forward(x), 3).flatten(1));
  });
  EXPECT_THAT(functional.at("block"), IsEmpty());
  EXPECT_THAT(functional.at("fc"), ElementsAre(2, 2));
  const auto registered =
      shapes_in({{"block", block}, {"pool", pool.ptr()}, {"fc", fc.ptr()}},
                [&] { return fc->forward(pool->forward(block->forward(x)).flatten(1)); });
  EXPECT_THAT(registered.at("block"), ElementsAre(2, 4, 6, 6));
  EXPECT_THAT(registered.at("pool"), ElementsAre(2, 4, 2, 2));
}

TEST(DataFlowShapes, AreNotThoseOfAnAuxiliaryHeadThatComesLast) {
  const auto trunk = std::make_shared<SummaryProjection>(4, 8);
  const auto head = std::make_shared<SummaryProjection>(8, 3);
  const auto aux = std::make_shared<SummaryProjection>(8, 5);
  const torch::Tensor x = torch::zeros({2, 4});
  const auto shapes = shapes_in({{"trunk", trunk}, {"head", head}, {"aux", aux}}, [&] {
    const torch::Tensor features = trunk->forward(x);
    const torch::Tensor output = head->forward(features);
    aux->forward(features);
    return output;
  });
  EXPECT_THAT(shapes.at("trunk"), ElementsAre(2, 8));
  EXPECT_THAT(shapes.at("head"), ElementsAre(2, 3));
  EXPECT_THAT(shapes.at("aux"), IsEmpty()) << "nothing uses its output";
  EXPECT_THAT(shapes.at("aux.fc"), ElementsAre(2, 5));
}

struct SummaryTiedDecoder : torch::nn::Module {
  explicit SummaryTiedDecoder(const torch::Tensor& words)
      : weight(register_parameter("weight", words)) {}
  torch::nn::LayerNorm norm =
      register_module("norm", torch::nn::LayerNorm(torch::nn::LayerNormOptions({3})));
  torch::Tensor weight;
  torch::Tensor forward(const torch::Tensor& x) { return norm->forward(x).matmul(weight.t()); }
};

TEST(DataFlowShapes, AreNotThoseOfOtherUsesOfTiedWeights) {
  torch::nn::Embedding words(7, 3);
  const auto decoder = std::make_shared<SummaryTiedDecoder>(words->weight);
  const torch::Tensor x = torch::zeros({4, 2}, torch::kInt64);
  const auto of_words = shapes_in({{"words", words.ptr()}, {"decoder", decoder}},
                                  [&] { return decoder->forward(words->forward(x)); });
  EXPECT_THAT(of_words.at("words"), ElementsAre(4, 2, 3));
  EXPECT_THAT(of_words.at("decoder"), IsEmpty());
  torch::nn::Linear linear(6, 3);
  const torch::Tensor images = torch::zeros({2, 6});
  const auto with = [&](const auto& decode) {
    return shapes_in({{"linear", linear.ptr()}}, [&] { return decode(linear->forward(images)); })
        .at("linear");
  };
  EXPECT_THAT(with([&](auto code) { return code.matmul(linear->weight); }), ElementsAre(2, 3));
  EXPECT_THAT(with([&](auto code) { return code.matmul(linear->weight.t().t()); }),
              ElementsAre(2, 3));
  const torch::Tensor sequence = torch::zeros({2, 5, 6});
  EXPECT_THAT(shapes_in({{"linear", linear.ptr()}},
                        [&] { return at::linear(sequence, linear->weight, linear->bias); })
                  .at("linear"),
              ElementsAre(2, 5, 3));
}

struct SummaryDown : SummaryLevel {
  using SummaryLevel::SummaryLevel;
  std::tuple<torch::Tensor, torch::Tensor> forward(const torch::Tensor& x) {
    const torch::Tensor skip = SummaryLevel::forward(x);
    return {skip, at::max_pool2d(skip, 2)};
  }
};

TEST(DataFlowShapes, AreOpenForTuplesOfSeveralShapes) {
  const auto down = std::make_shared<SummaryDown>(1, 4);
  torch::nn::Conv2d deep(4, 4, 1), flat(4, 4, 1);
  const torch::Tensor x = torch::zeros({2, 1, 6, 6});
  const auto of_down = shapes_in({{"down", down}, {"deep", deep.ptr()}, {"flat", flat.ptr()}}, [&] {
    const auto [skip, pooled] = down->forward(x);
    return flat->forward(skip).mean() + deep->forward(pooled).mean();
  });
  EXPECT_THAT(of_down.at("down"), IsEmpty());
  torch::nn::MultiheadAttention attention(4, 2);
  torch::nn::Linear head(4, 3);
  const torch::Tensor words = torch::zeros({5, 2, 4});
  const auto of_attention = shapes_in({{"attention", attention.ptr()}, {"head", head.ptr()}}, [&] {
    return head->forward(std::get<0>(attention->forward(words, words, words)));
  });
  EXPECT_THAT(of_attention.at("attention"), ElementsAre(5, 2, 4)) << "its weights are unused";
}

TEST(DataFlowShapes, AreThoseOfTheLastCall) {
  const auto block = std::make_shared<SummaryLevel>(4, 4);
  torch::nn::Conv2d between(torch::nn::Conv2dOptions(4, 4, 2).stride(2));
  const torch::Tensor x = torch::zeros({2, 4, 8, 8});
  const auto apart = shapes_in({{"block", block}, {"between", between.ptr()}}, [&] {
    return block->forward(between->forward(block->forward(x))).relu();
  });
  EXPECT_THAT(apart.at("block"), ElementsAre(2, 4, 4, 4));
  const auto together = shapes_in({{"block", block}}, [&] {
    const torch::Tensor large = block->forward(x);
    return large.mean() + block->forward(x.slice(2, 0, 3)).mean();
  });
  EXPECT_THAT(together.at("block"), IsEmpty()) << "both outputs are in use";
}

// A module of raw parameters, whose last operation has none.
struct SummaryGate : torch::nn::Module {
  torch::Tensor weight = register_parameter("weight", torch::ones({3, 4}));
  torch::Tensor mean = register_buffer("mean", torch::zeros({3}));
  torch::Tensor forward(const torch::Tensor& x) {
    return (x.matmul(weight.t()) - mean).sigmoid().sum(1);
  }
};

TEST(LastOperationShapes, AreThoseBeforeFunctionsThatMayBelongToTheCaller) {
  const auto block = std::make_shared<SummaryLevel>(1, 4);
  const auto gate = std::make_shared<SummaryGate>();
  torch::nn::Linear fc(16, 4);
  torch::nn::Dropout dropout;
  torch::nn::ModuleList list(fc);
  const torch::Tensor x = torch::zeros({2, 1, 6, 6});
  const ModelSummary summary = summary_of(
      {{"block", block}, {"gate", gate}, {"list", list.ptr()}, {"dropout", dropout.ptr()}},
      [&] { return gate->forward(fc->forward(at::max_pool2d(block->forward(x), 3).flatten(1))); });
  EXPECT_THAT(last_operations_by_name(summary),
              ElementsAre(Pair("block", OutputShape{2, 4, 6, 6}), Pair("gate", OutputShape{2, 3})));
  const auto down = std::make_shared<SummaryDown>(1, 4);
  torch::nn::Conv2d deep(4, 4, 1), flat(4, 4, 1);
  EXPECT_THAT(last_operations_by_name(
                  summary_of({{"down", down}, {"deep", deep.ptr()}, {"flat", flat.ptr()}},
                             [&] {
                               const auto [skip, pooled] = down->forward(x);
                               return flat->forward(skip).mean() + deep->forward(pooled).mean();
                             })),
              ElementsAre(Pair("down", OutputShape{2, 4, 6, 6})));
}

// Statistics that a module changes in place are not what it returns.
struct SummaryCentre : torch::nn::Module {
  torch::Tensor mean = register_buffer("mean", torch::zeros({4}));
  torch::Tensor forward(const torch::Tensor& x) {
    const torch::Tensor centred = x - mean;
    mean.mul_(0.9).add_(x.mean(0));
    return centred.sum();
  }
};

TEST(LastOperationShapes, AreNotThoseOfBuffersChangedInPlace) {
  const auto centre = std::make_shared<SummaryCentre>();
  const torch::Tensor x = torch::ones({2, 4});
  EXPECT_THAT(
      last_operations_by_name(summary_of({{"centre", centre}}, [&] { return centre->forward(x); })),
      ElementsAre(Pair("centre", OutputShape{2, 4})));
}

// Without a forward() of their own, or with parts that others call.
TEST(DataFlowShapes, AreOpenForModulesThatAreNotCalledAsAWhole) {
  const auto first = std::make_shared<SummaryProjection>(4, 8);
  const auto second = std::make_shared<SummaryProjection>(8, 3);
  torch::nn::ModuleList list(first, second);
  const torch::Tensor x = torch::zeros({2, 4});
  const auto in_list =
      shapes_in({{"list", list.ptr()}}, [&] { return second->forward(first->forward(x)); });
  EXPECT_THAT(in_list.at("list"), IsEmpty());
  EXPECT_THAT(in_list.at("list.0"), ElementsAre(2, 8));
  EXPECT_THAT(in_list.at("list.1"), ElementsAre(2, 3));
  const auto others = std::make_shared<SummaryProjection>(4, 8);
  others->register_module("second", second);
  const auto sharing = shapes_in({{"others", others}, {"second", second}},
                                 [&] { return second->forward(others->forward(x)); });
  EXPECT_THAT(sharing.at("others"), IsEmpty()) << "the model calls a part of it";
  EXPECT_THAT(sharing.at("second"), ElementsAre(2, 3));
}

// Each block has its own pooling layer, and the model flattens with a layer of its own.
struct SummaryPoolingBlock : SummaryLevel {
  using SummaryLevel::SummaryLevel;
  torch::nn::MaxPool2d pool = register_module("pool", torch::nn::MaxPool2d(2));
  torch::Tensor forward(const torch::Tensor& x) { return pool->forward(SummaryLevel::forward(x)); }
};

TEST(DataFlowShapes, AreThoseOfLayersWithoutParameters) {
  const auto first = std::make_shared<SummaryPoolingBlock>(1, 4);
  const auto second = std::make_shared<SummaryPoolingBlock>(4, 2);
  torch::nn::Flatten flatten;
  torch::nn::Linear head(2 * 2 * 3, 5);
  const torch::Tensor x = torch::zeros({2, 1, 8, 12});
  const auto shapes = shapes_in(
      {{"first", first}, {"second", second}, {"flatten", flatten.ptr()}, {"head", head.ptr()}},
      [&] { return head->forward(flatten->forward(second->forward(first->forward(x)))); });
  for (const char* const name : {"first", "first.pool"}) {
    EXPECT_THAT(shapes.at(name), ElementsAre(2, 4, 4, 6)) << name;
  }
  for (const char* const name : {"second", "second.pool"}) {
    EXPECT_THAT(shapes.at(name), ElementsAre(2, 2, 2, 3)) << name;
  }
  EXPECT_THAT(shapes.at("flatten"), ElementsAre(2, 12));
}

}  // namespace
}  // namespace lockstep::train
