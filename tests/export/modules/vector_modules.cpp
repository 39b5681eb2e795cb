// Modules of torch::nn that take vectors: linear layers and containers, dropout, distances,
// activations and losses.
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/adaptive.h>
#include <torch/nn/modules/container/functional.h>
#include <torch/nn/modules/container/moduledict.h>
#include <torch/nn/modules/container/modulelist.h>
#include <torch/nn/modules/container/parameterdict.h>
#include <torch/nn/modules/container/parameterlist.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/distance.h>
#include <torch/nn/modules/dropout.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/loss.h>

#include <tests/export/modules/module_list.h>

namespace lockstep::testing_support {
namespace {

namespace nn = torch::nn;
using torch::Tensor;

void add_softmax_modules(ModuleList& list) {
  const MakeInput input = floats({3, 4});
  list.add("Softmax", "", nn::Softmax(1), input);
  list.add("Softmin", "", nn::Softmin(1), input);
  list.add("LogSoftmax", "", nn::LogSoftmax(-1), input);
  list.add("Softmax2d", "", nn::Softmax2d(), floats({3, 4, 2}));
  const nn::AdaptiveLogSoftmaxWithLoss adaptive(
      nn::AdaptiveLogSoftmaxWithLossOptions(32, 10, {3, 6}));
  list.add_call(
      "AdaptiveLogSoftmaxWithLoss", "", adaptive,
      [](nn::AdaptiveLogSoftmaxWithLoss& net, const Tensor& x, const Tensor& target) {
        return net->forward(x, target).output;
      },
      floats({32}), integers(0, 10, {}));
  list.add_call(
      "AdaptiveLogSoftmaxWithLoss", "log_prob()", adaptive,
      [](nn::AdaptiveLogSoftmaxWithLoss& net, const Tensor& x) { return net->log_prob(x); },
      floats({32}));
}

// With the mean over the batch, the default, and with one loss for each sample.
template <class Loss, class Options, class... Inputs>
void add_loss(ModuleList& list, const char* name, Inputs... inputs) {
  list.add(name, "", Loss(), inputs...);
  list.add(name, "reduction(torch::kNone)", Loss(Options().reduction(torch::kNone)), inputs...);
}

}  // namespace

void add_linear_modules(ModuleList& list) {
  list.add("Identity", "", nn::Identity(), floats({4}));
  list.add("Linear", "", nn::Linear(4, 5), floats({4}));
  list.add("Linear", "bias(false)", nn::Linear(nn::LinearOptions(4, 5).bias(false)),
           floats({3, 4}));
  list.add("Flatten", "", nn::Flatten(), floats({3, 4, 2}));
  list.add("Flatten", "start_dim(2).end_dim(-1)",
           nn::Flatten(nn::FlattenOptions().start_dim(2).end_dim(-1)), floats({3, 4, 2}));
  list.add("Unflatten", "", nn::Unflatten(nn::UnflattenOptions(1, {2, 3})), floats({6, 2}));
  list.add("Bilinear", "", nn::Bilinear(4, 5, 3), floats({4}), floats({5}));
  list.add("Bilinear", "bias(false)", nn::Bilinear(nn::BilinearOptions(4, 5, 3).bias(false)),
           floats({2, 4}), floats({2, 5}));
  list.add("Sequential", "", nn::Sequential(nn::Linear(4, 5), nn::ReLU(), nn::Linear(5, 2)),
           floats({4}));
  list.add_call(
      "ModuleList", "", nn::ModuleList(nn::Linear(4, 5), nn::Linear(5, 2)),
      [](nn::ModuleList& net, const Tensor& x) {
        return net->at<nn::LinearImpl>(1).forward(net->at<nn::LinearImpl>(0).forward(x));
      },
      floats({4}));
  list.add_call(
      "ParameterList", "", nn::ParameterList(torch::randn({4}), torch::randn({4})),
      [](nn::ParameterList& net, const Tensor& x) { return x * net[0] + net[1]; }, floats({4}));
  const nn::Linear first(4, 5);
  const nn::Linear second(5, 2);
  const std::vector<std::pair<std::string, std::shared_ptr<nn::Module>>> layers = {
      {"first", first.ptr()}, {"second", second.ptr()}};
  list.add_call(
      "ModuleDict", "", nn::ModuleDict(layers),
      [](nn::ModuleDict& net, const Tensor& x) {
        return net->at<nn::LinearImpl>("second").forward(
            net->at<nn::LinearImpl>("first").forward(x));
      },
      floats({4}));
  nn::ParameterDict parameters;
  parameters->insert("scale", torch::randn({4}));
  list.add_call(
      "ParameterDict", "", parameters,
      [](nn::ParameterDict& net, const Tensor& x) { return x * net->get("scale"); }, floats({4}));
  list.add("Functional", "", nn::Functional([](const Tensor& x) { return x.relu(); }), floats({4}));
}

void add_dropout_modules(ModuleList& list) {
  list.add("Dropout", "", nn::Dropout(0.3), floats({4}));
  list.add_call(
      "Dropout", "inplace(true)", nn::Dropout(nn::DropoutOptions(0.3).inplace(true)),
      [](nn::Dropout& net, const Tensor& x) { return net->forward(x + 1); }, floats({4}));
  list.add("Dropout2d", "", nn::Dropout2d(0.3), floats({3, 4, 4}));
  list.add("Dropout3d", "", nn::Dropout3d(0.3), floats({3, 2, 4, 4}));
  list.add("AlphaDropout", "", nn::AlphaDropout(0.3), floats({4}));
  list.add("FeatureAlphaDropout", "", nn::FeatureAlphaDropout(0.3), floats({3, 4}));
}

void add_distance_modules(ModuleList& list) {
  using Similarity = nn::CosineSimilarityOptions;
  using Distance = nn::PairwiseDistanceOptions;
  list.add("CosineSimilarity", "", nn::CosineSimilarity(), floats({5}), floats({5}));
  list.add("CosineSimilarity", "dim(2).eps(1e-3)",
           nn::CosineSimilarity(Similarity().dim(2).eps(1e-3)), floats({3, 5}), floats({1, 5}));
  list.add("PairwiseDistance", "", nn::PairwiseDistance(), floats({5}), floats({5}));
  list.add("PairwiseDistance", "p(1).eps(1e-3)", nn::PairwiseDistance(Distance().p(1).eps(1e-3)),
           floats({5}), floats({5}));
  list.add("PairwiseDistance", "p(3).keepdim(true)",
           nn::PairwiseDistance(Distance().p(3).keepdim(true)), floats({5}), floats({5}));
}

void add_activation_modules(ModuleList& list) {
  const MakeInput input = floats({3, 4});
  list.add("ELU", "", nn::ELU(), input);
  list.add("ELU", "alpha(0.7)", nn::ELU(nn::ELUOptions().alpha(0.7)), input);
  list.add("SELU", "", nn::SELU(), input);
  list.add("CELU", "", nn::CELU(), input);
  list.add("CELU", "alpha(0.7)", nn::CELU(nn::CELUOptions().alpha(0.7)), input);
  list.add("GELU", "", nn::GELU(), input);
  list.add("GELU", "approximate(\"tanh\")", nn::GELU(nn::GELUOptions().approximate("tanh")), input);
  list.add("GLU", "", nn::GLU(), input);
  list.add("GLU", "dim(1)", nn::GLU(1), floats({4, 3}));
  list.add("Hardshrink", "", nn::Hardshrink(), input);
  list.add("Hardshrink", "lambda(0.2)", nn::Hardshrink(0.2), input);
  list.add("Hardtanh", "", nn::Hardtanh(), input);
  list.add("Hardtanh", "min_val(-0.3).max_val(0.6)",
           nn::Hardtanh(nn::HardtanhOptions().min_val(-0.3).max_val(0.6)), input);
  list.add("LeakyReLU", "", nn::LeakyReLU(), input);
  list.add("LeakyReLU", "negative_slope(0.3)",
           nn::LeakyReLU(nn::LeakyReLUOptions().negative_slope(0.3)), input);
  list.add("LogSigmoid", "", nn::LogSigmoid(), input);
  list.add("Mish", "", nn::Mish(), input);
  list.add("PReLU", "", nn::PReLU(), input);
  list.add("PReLU", "num_parameters(3).init(0.4)",
           nn::PReLU(nn::PReLUOptions().num_parameters(3).init(0.4)), input);
  list.add("ReLU", "", nn::ReLU(), input);
  list.add_call(
      "ReLU", "inplace(true)", nn::ReLU(nn::ReLUOptions().inplace(true)),
      [](nn::ReLU& net, const Tensor& x) { return net->forward(x + 0.1); }, input);
  list.add("ReLU6", "", nn::ReLU6(), between(-2, 8, {3, 4}));
  list.add("RReLU", "", nn::RReLU(), input);
  list.add("RReLU", "lower(0.2).upper(0.4)", nn::RReLU(nn::RReLUOptions().lower(0.2).upper(0.4)),
           input);
  list.add("SiLU", "", nn::SiLU(), input);
  list.add("Sigmoid", "", nn::Sigmoid(), input);
  list.add("Softplus", "", nn::Softplus(), input);
  list.add("Softplus", "beta(2).threshold(1)",
           nn::Softplus(nn::SoftplusOptions().beta(2).threshold(1)), input);
  list.add("Softshrink", "", nn::Softshrink(), input);
  list.add("Softshrink", "lambda(0.2)", nn::Softshrink(0.2), input);
  list.add("Softsign", "", nn::Softsign(), input);
  list.add("Tanh", "", nn::Tanh(), input);
  list.add("Tanhshrink", "", nn::Tanhshrink(), input);
  list.add("Threshold", "", nn::Threshold(0.2, -3), input);
  const auto in_place = [&](const char* module, auto net) {
    list.add_call(
        module, "inplace(true)", net,
        [](auto& called, const Tensor& x) { return called->forward(x + 0.1); }, input);
  };
  in_place("ELU", nn::ELU(nn::ELUOptions().inplace(true)));
  in_place("SELU", nn::SELU(nn::SELUOptions().inplace(true)));
  in_place("CELU", nn::CELU(nn::CELUOptions().inplace(true)));
  in_place("Hardtanh", nn::Hardtanh(nn::HardtanhOptions().inplace(true)));
  in_place("LeakyReLU", nn::LeakyReLU(nn::LeakyReLUOptions().inplace(true)));
  in_place("ReLU6", nn::ReLU6(nn::ReLU6Options().inplace(true)));
  in_place("RReLU", nn::RReLU(nn::RReLUOptions().inplace(true)));
  in_place("Threshold", nn::Threshold(nn::ThresholdOptions(0.2, -3).inplace(true)));
  add_softmax_modules(list);
}

void add_loss_modules(ModuleList& list) {
  const MakeInput x = floats({4});
  const MakeInput share = between(0.1, 0.9, {4});
  const MakeInput classes = integers(0, 4, {});
  const MakeInput signs = [](std::int64_t batch) { return torch::randn({batch}).sign(); };
  add_loss<nn::L1Loss, nn::L1LossOptions>(list, "L1Loss", x, x);
  add_loss<nn::MSELoss, nn::MSELossOptions>(list, "MSELoss", x, x);
  add_loss<nn::SmoothL1Loss, nn::SmoothL1LossOptions>(list, "SmoothL1Loss", x, x);
  add_loss<nn::HuberLoss, nn::HuberLossOptions>(list, "HuberLoss", x, x);
  add_loss<nn::KLDivLoss, nn::KLDivLossOptions>(list, "KLDivLoss", x, share);
  add_loss<nn::BCELoss, nn::BCELossOptions>(list, "BCELoss", share, share);
  add_loss<nn::BCEWithLogitsLoss, nn::BCEWithLogitsLossOptions>(list, "BCEWithLogitsLoss", x,
                                                                share);
  add_loss<nn::PoissonNLLLoss, nn::PoissonNLLLossOptions>(list, "PoissonNLLLoss", x, share);
  add_loss<nn::NLLLoss, nn::NLLLossOptions>(list, "NLLLoss", x, classes);
  add_loss<nn::CrossEntropyLoss, nn::CrossEntropyLossOptions>(list, "CrossEntropyLoss", x, classes);
  add_loss<nn::SoftMarginLoss, nn::SoftMarginLossOptions>(list, "SoftMarginLoss", x, x);
  add_loss<nn::HingeEmbeddingLoss, nn::HingeEmbeddingLossOptions>(list, "HingeEmbeddingLoss", x, x);
  add_loss<nn::MultiMarginLoss, nn::MultiMarginLossOptions>(list, "MultiMarginLoss", x, classes);
  add_loss<nn::MultiLabelSoftMarginLoss, nn::MultiLabelSoftMarginLossOptions>(
      list, "MultiLabelSoftMarginLoss", x, share);
  add_loss<nn::MultiLabelMarginLoss, nn::MultiLabelMarginLossOptions>(list, "MultiLabelMarginLoss",
                                                                      x, integers(0, 4, {4}));
  add_loss<nn::CosineEmbeddingLoss, nn::CosineEmbeddingLossOptions>(list, "CosineEmbeddingLoss", x,
                                                                    x, signs);
  add_loss<nn::MarginRankingLoss, nn::MarginRankingLossOptions>(list, "MarginRankingLoss",
                                                                floats({}), floats({}), signs);
  add_loss<nn::TripletMarginLoss, nn::TripletMarginLossOptions>(list, "TripletMarginLoss", x, x, x);
  add_loss<nn::TripletMarginWithDistanceLoss, nn::TripletMarginWithDistanceLossOptions>(
      list, "TripletMarginWithDistanceLoss", x, x, x);
  with_batch_second(list.add_call(
      "CTCLoss", "", nn::CTCLoss(),
      [](nn::CTCLoss& net, const Tensor& logits) {
        const std::int64_t batch = logits.size(1);
        const Tensor targets = torch::ones({batch, 2}, torch::kLong);
        return net->forward(logits.log_softmax(2), targets, torch::full({batch}, 6, torch::kLong),
                            torch::full({batch}, 2, torch::kLong));
      },
      sequence(6, 4)));
}

}  // namespace lockstep::testing_support
