#include <torch/nn/functional/normalization.h>
#include <torch/nn/module.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/rnn.h>
#include <torch/nn/modules/transformer.h>
#include <torch/nn/modules/transformercoder.h>
#include <torch/nn/modules/transformerlayer.h>
#include <torch/nn/pimpl.h>

#include <lockstep/models/autoencoder.h>
#include <lockstep/models/mnist_net.h>
#include <lockstep/models/resnet.h>
#include <tests/export/export_case.h>

namespace lockstep::testing_support {
namespace {

namespace nn = torch::nn;

// Classifies sentences of 12 tokens into 5 classes. torch::nn's encoder expects the batch in the
// second dimension.
class SentenceNetImpl : public nn::Module {
 public:
  SentenceNetImpl() {
    words_ = register_module("words", nn::Embedding(50, 32));
    encoder_ = register_module(
        "encoder",
        nn::TransformerEncoder(nn::TransformerEncoderOptions(
            nn::TransformerEncoderLayerOptions(32, 4).dim_feedforward(64).activation(torch::kGELU),
            2)));
    classes_ = register_module("classes", nn::Linear(32, 5));
  }
  torch::Tensor forward(const torch::Tensor& tokens) {
    const auto encoded = encoder_->forward(words_->forward(tokens).transpose(0, 1));
    return classes_->forward(encoded.mean(0));
  }

 private:
  nn::Embedding words_{nullptr};
  nn::TransformerEncoder encoder_{nullptr};
  nn::Linear classes_{nullptr};
};
TORCH_MODULE(SentenceNet);

class SequenceNetImpl : public nn::Module {
 public:
  SequenceNetImpl() {
    lstm_ = register_module(
        "lstm", nn::LSTM(nn::LSTMOptions(6, 16).num_layers(2).batch_first(true).dropout(0.2)));
    classes_ = register_module("classes", nn::Linear(16, 4));
  }
  torch::Tensor forward(const torch::Tensor& x) {
    const auto [sequence, state] = lstm_->forward(x);
    return classes_->forward(sequence.select(1, -1));
  }

 private:
  nn::LSTM lstm_{nullptr};
  nn::Linear classes_{nullptr};
};
TORCH_MODULE(SequenceNet);

// Sets statistics and scales as in a trained net, so that wrong folding of them shows.
void set_statistics(nn::Module& net) {
  const torch::NoGradGuard no_grad;
  for (const auto& module : net.modules(/*include_self=*/false)) {
    if (auto* norm = module->as<nn::BatchNorm2d>()) {
      norm->running_mean.normal_(0, 0.1);
      norm->running_var.uniform_(0.8, 1.2);
      norm->weight.uniform_(0.8, 1.2);
    }
  }
}

ExportCase resnet_case(const char* name, ResNet net, std::int64_t side) {
  set_statistics(*net);
  return case_of(name, "", net, floats({3, side, side}));
}

// Computations that overflow or underflow in float16: squares of numbers near 1000, and the
// smallest divisor of a similarity.
ExportCase half_of_squares() {
  ExportCase half{.name = "squares_half", .module = nn::Sequential().ptr()};
  half.forward = [](const Tensors& x) {
    const torch::Tensor large = x[0] * 1000;
    return Tensors{at::rms_norm(large, {64}),
                   large.std(torch::IntArrayRef{2}, /*unbiased=*/true, /*keepdim=*/true),
                   (x[0] * 100).var(torch::IntArrayRef{2}, /*unbiased=*/false, /*keepdim=*/true),
                   large.norm(2, {2}, /*keepdim=*/true),
                   large.hypot(large + 1),
                   at::cosine_similarity(large, large + 1, 2).unsqueeze(2),
                   at::cosine_similarity(large * 0, large, 2).unsqueeze(2),
                   at::pairwise_distance(large, large * 0.5).unsqueeze(2)};
  };
  half.inputs = {floats({3, 64})};
  half.options.half = true;
  half.tolerance = 5e-3;
  return half;
}

// Constants beyond the range of float16: a smallest divisor, masks, factors that cancel, and whole
// numbers that become floats.
ExportCase half_of_extreme_constants() {
  nn::Linear layer(64, 8);
  ExportCase half{.name = "extreme_constants_half", .module = layer.ptr()};
  half.forward = [layer](const Tensors& x) mutable {
    namespace F = nn::functional;
    const torch::Tensor zero = x[0] * 0;
    const torch::Tensor mask = x[0] > 0;
    const torch::Tensor count = torch::arange(64, torch::kLong) * 5000 + x[1] * 100'000;
    return Tensors{F::normalize(x[0], F::NormalizeFuncOptions().dim(2)),
                   F::normalize(zero, F::NormalizeFuncOptions().dim(2)),
                   x[0].masked_fill(mask, -1e9).softmax(2),
                   (x[0] + mask.to(torch::kFloat) * -1e9).softmax(2),
                   torch::where(mask, x[0], -1e9).amax(2),
                   x[0] * 1e6 / 1e6,
                   x[0] * 1e-9 * 1e9,
                   zero / (zero.abs() + 1e-10),
                   layer->forward(x[0] * 1e7) * 1e-7,
                   layer->forward(x[0].masked_fill(mask, -1e9).softmax(2)),
                   at::cat({x[0] * 1e6, x[0]}, 2).chunk(2, 2)[0] * 1e-6,
                   count.to(torch::kFloat) / 400'000,
                   count / 400'000.0};
  };
  half.inputs = {floats({3, 64}), integers(0, 3, {1, 1})};
  half.options.half = true;
  half.tolerance = 1e-2;
  half.negligible = 0.1;
  return half;
}

// Whole numbers in an input of floats, of which float16 has no odd ones beyond 2048.
ExportCase half_of_whole_numbers() {
  nn::Embedding embedding(5000, 8);
  ExportCase half{.name = "whole_numbers_half", .module = embedding.ptr()};
  half.forward = [embedding](const Tensors& x) mutable {
    const torch::Tensor ids = x[0].slice(1, 0, 3);
    return Tensors{embedding->forward(ids.to(torch::kLong)),
                   x[0].remainder(7),
                   x[0].fmod(7),
                   (x[0] * 1e-8).to(torch::kBool).to(torch::kFloat),
                   torch::floor_divide(ids.unsqueeze(1), 3),
                   x[0].select(1, 3).to(torch::kInt),
                   x[1].clamp(0, 4999).round().to(torch::kDouble).to(torch::kLong),
                   torch::stack({x[2].select(1, 0), x[2].select(1, 1) - 1}).t().to(torch::kLong),
                   torch::remainder(5001, x[3]),
                   x[4].div(3, "floor")};
  };
  const auto odd_numbers = [](std::int64_t batch) {
    return torch::randint(0, 2500, {batch, 4}).to(torch::kFloat) * 2 + 1;
  };
  half.inputs = {odd_numbers, odd_numbers, odd_numbers, odd_numbers, odd_numbers};
  half.options.half = true;
  half.tolerance = 1e-2;
  return half;
}

}  // namespace

// Two weights of 2.2 GB each, so that the last layer's weight begins beyond a 32-bit offset.
std::vector<ExportCase> large_cases() {
  torch::manual_seed(3);
  constexpr std::int64_t kInputs = 16;
  constexpr std::int64_t kWidth = 23'500;
  nn::Sequential net(nn::Linear(kInputs, kWidth), nn::ReLU(), nn::Linear(kWidth, kWidth),
                     nn::ReLU(), nn::Linear(kWidth, kWidth), nn::Linear(kWidth, 4));
  ExportCase large = case_of("large_linear", "", net, floats({kInputs}));
  large.first_opset = 20;
  return {std::move(large)};
}

std::vector<ExportCase> net_cases() {
  torch::manual_seed(2);
  std::vector<ExportCase> cases = {
      case_of("mnist_net", "", MnistNet(), floats({1, 28, 28})),
      resnet_case("resnet18", resnet18(ResNetStem::kImageNet, 100), 224),
      resnet_case("resnet50", resnet50(ResNetStem::kImageNet, 100), 224),
      case_of("auto_encoder", "", Autoencoder(), floats({3, 160, 160})),
      case_of("transformer_encoder", "", SentenceNet(), integers(0, 50, {12})),
      case_of("lstm_net", "", SequenceNet(), floats({9, 6})),
  };
  // Attention from one sequence to another, with the batch in the second dimension.
  nn::Transformer transformer(nn::TransformerOptions(16, 4, 1, 1).dim_feedforward(32));
  cases.push_back({.name = "transformer",
                   .module = transformer.ptr(),
                   .forward =
                       [transformer](const Tensors& x) mutable {
                         return Tensors{transformer->forward(x[0], x[1])};
                       },
                   .inputs = {[](std::int64_t batch) { return torch::randn({5, batch, 16}); },
                              [](std::int64_t batch) { return torch::randn({6, batch, 16}); }},
                   .options = {.batch_dimensions = {1, 1}}});
  // The oracle limits the export time of this case, whose example is a batch of one image, as in
  // `lockstep export`.
  ExportCase timed =
      resnet_case("resnet50_from_one_image", resnet50(ResNetStem::kImageNet, 100), 224);
  timed.example_batch = 1;
  timed.first_opset = 20;
  cases.push_back(std::move(timed));
  // Float16 has three decimal digits, and layers lose some of them.
  ExportCase half = resnet_case("resnet18_half", resnet18(ResNetStem::kCifar, 10), 32);
  half.options.half = true;
  half.tolerance = 5e-3;
  cases.push_back(std::move(half));
  cases.push_back(half_of_squares());
  cases.push_back(half_of_extreme_constants());
  cases.push_back(half_of_whole_numbers());
  ExportCase apart =
      case_of("auto_encoder_external_data", "", Autoencoder(), floats({3, 160, 160}));
  apart.options.most_bytes_in_one_file = 8192;
  cases.push_back(std::move(apart));
  ExportCase fixed = case_of("mnist_net_fixed_batch", "", MnistNet(), floats({1, 28, 28}));
  fixed.options.dynamic_batch = false;
  fixed.options.fold_batch_norm = false;
  cases.push_back(std::move(fixed));
  for (ExportCase& each : cases) each.adds_terms = true;
  return cases;
}

}  // namespace lockstep::testing_support
