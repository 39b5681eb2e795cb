// Nets in four stages, and their oracle: one process that accumulates micro-batches.
#pragma once

#include <cmath>
#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <torch/nn/functional/loss.h>
#include <torch/nn/module.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/dropout.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/normalization.h>
#include <torch/nn/modules/pooling.h>
#include <torch/nn/pimpl.h>

#include <lockstep/core/error.h>
#include <lockstep/models/resnet.h>
#include <lockstep/optim/distinct.h>
#include <lockstep/parallel/pipeline/micro_batches.h>
#include <lockstep/parallel/pipeline/pipeline_setup.h>
#include <lockstep/parallel/pipeline/random_scope.h>
#include <lockstep/parallel/pipeline/stage_module.h>

namespace lockstep::testing_support {

namespace nn = torch::nn;

struct Net {
  std::vector<pipeline::StageModule> stages;
  torch::Tensor x, y;
  std::function<torch::Tensor(const torch::Tensor&, const torch::Tensor&)> criterion;
};

inline torch::Tensor cross_entropy(const torch::Tensor& output, const torch::Tensor& target) {
  return nn::functional::cross_entropy(output, target);
}

/// The net in float64, where rounding practically never decides a maximum or the side of a ReLU.
inline Net in_double(Net net) {
  for (const auto& stage : net.stages) stage.module().to(torch::kFloat64);
  if (net.x.is_floating_point()) net.x = net.x.to(torch::kFloat64);
  return net;
}

// --- The net of the MNIST example, with or without dropout

inline Net mnist_stages(bool dropout) {
  nn::Sequential first(nn::Conv2d(1, 10, 5), nn::MaxPool2d(2), nn::ReLU());
  nn::Sequential second(nn::Conv2d(10, 20, 5));
  if (dropout) second->push_back(nn::Dropout2d());
  second->push_back(nn::MaxPool2d(2));
  second->push_back(nn::ReLU());
  nn::Sequential third(nn::Flatten(), nn::Linear(320, 50), nn::ReLU());
  if (dropout) third->push_back(nn::Dropout());
  nn::Sequential fourth(nn::Linear(50, 10), nn::LogSoftmax(1));
  return {{first, second, third, fourth},
          torch::randn({11, 1, 28, 28}),
          torch::randint(10, {11}, torch::kInt64),
          [](const torch::Tensor& output, const torch::Tensor& target) {
            return nn::functional::nll_loss(output, target);
          }};
}

// --- ResNet-18

struct ResNetBeginImpl : nn::Module {
  ResNetBeginImpl(nn::Conv2d first, nn::BatchNorm2d norm, nn::Sequential blocks)
      : conv1(register_module("conv1", std::move(first))),
        bn1(register_module("bn1", std::move(norm))),
        layer1(register_module("layer1", std::move(blocks))) {}
  torch::Tensor forward(const torch::Tensor& x) {
    return layer1->forward(bn1->forward(conv1->forward(x)).relu_());
  }
  nn::Conv2d conv1;
  nn::BatchNorm2d bn1;
  nn::Sequential layer1;
};
TORCH_MODULE(ResNetBegin);

struct ResNetEndImpl : nn::Module {
  ResNetEndImpl(nn::Sequential blocks, nn::Linear last)
      : layer4(register_module("layer4", std::move(blocks))),
        fc(register_module("fc", std::move(last))) {}
  torch::Tensor forward(const torch::Tensor& x) {
    return fc->forward(layer4->forward(x).mean({2, 3}));
  }
  nn::Sequential layer4;
  nn::Linear fc;
};
TORCH_MODULE(ResNetEnd);

inline Net resnet_stages() {
  ResNet net = resnet18(ResNetStem::kCifar, 10);
  const auto children = net->named_children();
  const auto blocks = [&](const char* name) {
    return nn::Sequential(std::dynamic_pointer_cast<nn::SequentialImpl>(children[name]));
  };
  const ResNetBegin begin(
      nn::Conv2d(std::dynamic_pointer_cast<nn::Conv2dImpl>(children["conv1"])),
      nn::BatchNorm2d(std::dynamic_pointer_cast<nn::BatchNorm2dImpl>(children["bn1"])),
      blocks("layer1"));
  const ResNetEnd end(blocks("layer4"),
                      nn::Linear(std::dynamic_pointer_cast<nn::LinearImpl>(children["fc"])));
  return {{begin, blocks("layer2"), blocks("layer3"), end},
          torch::randn({9, 3, 16, 16}),
          torch::randint(10, {9}, torch::kInt64),
          cross_entropy};
}

// --- A weight shared by the first and the last stage, which uses it twice

struct TiedHeadImpl : nn::Module {
  explicit TiedHeadImpl(const torch::Tensor& shared)
      : norm(register_module("norm", nn::LayerNorm(nn::LayerNormOptions({16})))),
        weight(register_parameter("weight", shared)) {}
  torch::Tensor forward(const torch::Tensor& x) {
    const torch::Tensor z = norm->forward(x);
    return torch::matmul(z, weight.t()) + torch::matmul(torch::tanh(z), weight.t());
  }
  nn::LayerNorm norm;
  torch::Tensor weight;
};
TORCH_MODULE(TiedHead);

inline Net tied_stages() {
  nn::Embedding embedding(20, 16);
  const TiedHead head(embedding->weight);
  nn::Sequential middle(nn::Linear(16, 32), nn::Tanh(), nn::Linear(32, 16));
  nn::Sequential late(nn::Linear(16, 16), nn::GELU());
  return {{embedding, middle, late, head},
          torch::randint(20, {10, 6}, torch::kInt64),
          torch::randint(20, {10, 6}, torch::kInt64),
          [](const torch::Tensor& output, const torch::Tensor& target) {
            return nn::functional::cross_entropy(output.flatten(0, 1), target.flatten());
          }};
}

// --- Several tensors between stages: a skip connection over a stage, and integers
// -----------------

struct ForkImpl : nn::Module {
  ForkImpl() : linear(register_module("linear", nn::Linear(8, 8))) {}
  std::tuple<torch::Tensor, torch::Tensor, torch::Tensor> forward(const torch::Tensor& x) {
    return {torch::relu(linear->forward(x)), x, (x > 0).to(torch::kInt64).sum(1)};
  }
  nn::Linear linear;
};
TORCH_MODULE(Fork);

struct MiddleImpl : nn::Module {
  MiddleImpl() : linear(register_module("linear", nn::Linear(8, 8))) {}
  std::vector<torch::Tensor> forward(const torch::Tensor& x, const torch::Tensor& skip,
                                     const torch::Tensor& count) {
    return {torch::tanh(linear->forward(x)), x, skip, count};
  }
  nn::Linear linear;
};
TORCH_MODULE(Middle);

struct JoinStagesImpl : nn::Module {
  JoinStagesImpl() : embedding(register_module("embedding", nn::Embedding(9, 8))) {}
  torch::Tensor forward(const torch::Tensor& x, const torch::Tensor& early,
                        const torch::Tensor& skip, const torch::Tensor& count) {
    return x * early + skip + embedding->forward(count);
  }
  nn::Embedding embedding;
};
TORCH_MODULE(JoinStages);

inline Net forked_stages() {
  Fork fork;
  Middle middle;
  JoinStages join;
  nn::Sequential last(nn::Linear(8, 4));
  return {{fork, middle, join, last},
          torch::randn({13, 8}),
          torch::randint(4, {13}, torch::kInt64),
          cross_entropy};
}

// --- Random numbers that only some micro-batches draw, the first of them not
// -----------------

// Passes on column 0, which says whether the micro-batch draws.
struct LateDropoutImpl : nn::Module {
  LateDropoutImpl() : linear(register_module("linear", nn::Linear(9, 8))) {}
  torch::Tensor forward(const torch::Tensor& x) {
    const torch::Tensor mark = x.narrow(1, 0, 1);
    torch::Tensor y = torch::tanh(linear->forward(x));
    if (mark.max().item<float>() > 0) y = torch::dropout(y, 0.5, is_training());
    return torch::cat({mark, y}, 1);
  }
  nn::Linear linear;
};
TORCH_MODULE(LateDropout);

inline Net late_stages() {
  torch::Tensor x = torch::randn({13, 9});
  x.select(1, 0).zero_();
  x.select(1, 0).narrow(0, 6, 4).fill_(1);
  LateDropout first, second, third, fourth;
  return {{first, second, third, fourth}, x, torch::randint(9, {13}, torch::kInt64), cross_entropy};
}

/// Makes the net "mnist", "dropout" (mnist with dropout), "resnet", "tied", "forked" or "late",
/// with the same weights and data at each call.
inline Net make_net(const std::string& name) {
  torch::manual_seed(5);
  if (name == "mnist") return mnist_stages(false);
  if (name == "dropout") return mnist_stages(true);
  if (name == "resnet") return resnet_stages();
  if (name == "tied") return tied_stages();
  if (name == "forked") return forked_stages();
  if (name == "late") return late_stages();
  throw Error("no net " + name);
}

inline Tensors parameters_of(const Net& net) {
  Tensors parameters;
  for (const auto& stage : net.stages) {
    for (const auto& each : stage.module().parameters()) parameters.push_back(each);
  }
  return optim::distinct(parameters);
}

inline Tensors buffers_of(const Net& net) {
  Tensors buffers;
  for (const auto& stage : net.stages) {
    for (const auto& each : stage.module().buffers()) buffers.push_back(each);
  }
  return buffers;
}

/// Runs forward and backward of one micro-batch after the other in one process, with the random
/// numbers that a pipeline's step would draw now. Returns the loss of the batch.
inline torch::Tensor accumulate(const Net& net, int micro_batches) {
  const std::uint64_t seed = pipeline::draw_step_seed();
  const auto sizes = pipeline::part_sizes(net.x.size(0), micro_batches);
  const Tensors xs = pipeline::split_batch(net.x, sizes, "x");
  const Tensors ys = pipeline::split_batch(net.y, sizes, "y");
  torch::Tensor sum;
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    Tensors tensors{xs[i]};
    for (std::size_t s = 0; s < net.stages.size(); ++s) {
      const pipeline::RandomScope scope(
          net.x.device(), {.cpu = true, .device = true},
          pipeline::micro_batch_seed(seed, static_cast<int>(s), static_cast<int>(i)));
      tensors = net.stages[s].forward(tensors);
    }
    const double weight = static_cast<double>(sizes[i]) / static_cast<double>(net.x.size(0));
    const torch::Tensor loss = net.criterion(tensors[0], ys[i]) * weight;
    loss.backward();
    sum = sum.defined() ? sum + loss.detach() : loss.detach();
  }
  return sum;
}

/// Moves the net's modules and data to `device`.
inline Net net_on(torch::Device device, Net net) {
  for (const auto& stage : net.stages) stage.module().to(device);
  net.x = net.x.to(device);
  net.y = net.y.to(device);
  return net;
}

/// The norm of the difference between the gradients of two nets, relative to the norm of the whole
/// gradient; infinite if a parameter has a gradient in only one of them.
inline double relative_difference(const Net& got, const Net& expected) {
  const Tensors a = parameters_of(got), b = parameters_of(expected);
  double difference = 0, norm = 0;  // sums of squares
  for (std::size_t i = 0; i < a.size(); ++i) {
    const torch::Tensor &mine = a[i].grad(), &other = b[i].grad();
    if (mine.defined() != other.defined()) return std::numeric_limits<double>::infinity();
    if (!mine.defined()) continue;
    difference += (mine.to(other.device()) - other).square().sum().item<double>();
    norm += other.square().sum().item<double>();
  }
  return std::sqrt(difference / norm);
}

/// Describes the first bitwise difference between the gradients or buffers of two nets; "" if there
/// is none.
inline std::string difference(const Net& got, const Net& expected) {
  const Tensors a = parameters_of(got), b = parameters_of(expected);
  for (std::size_t i = 0; i < a.size(); ++i) {
    const torch::Tensor &mine = a[i].grad(), &other = b[i].grad();
    if (mine.defined() != other.defined()) return str("parameter ", i, " has no gradient");
    if (mine.defined() && !mine.equal(other)) {
      return str("gradient ", i, " differs by ", (mine - other).abs().max().item<double>());
    }
  }
  const Tensors c = buffers_of(got), d = buffers_of(expected);
  for (std::size_t i = 0; i < c.size(); ++i) {
    if (!c[i].equal(d[i])) return str("buffer ", i, " differs");
  }
  return "";
}

}  // namespace lockstep::testing_support
