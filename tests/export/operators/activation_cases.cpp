// Activations, softmax, and dropout in eval mode.
#include <torch/nn/modules/activation.h>

#include <tests/export/operators/case_list.h>

namespace lockstep::testing_support {
namespace {

namespace nn = torch::nn;
using torch::Tensor;

}  // namespace

void add_activation_cases(CaseList& cases) {
  cases.add("relu", [](const Tensor& x) { return x.relu(); });
  cases.add("relu", [](const Tensor& x) { return x.clone().relu_(); });
  cases.add("relu6", [](const Tensor& x) { return at::relu6(x * 5); });
  cases.add("hardtanh", [](const Tensor& x) { return at::hardtanh(x, -0.5, 0.7); });
  cases.add("leaky_relu", [](const Tensor& x) { return at::leaky_relu(x, 0.2); });
  cases.add("rrelu", [](const Tensor& x) { return at::rrelu(x, 0.1, 0.3, /*training=*/false); });
  cases.add("elu", [](const Tensor& x) { return at::elu(x, 1.3); });
  cases.add("selu", [](const Tensor& x) { return at::selu(x); });
  cases.add("celu", [](const Tensor& x) { return at::celu(x, 1.3); });
  cases.add("gelu", [](const Tensor& x) { return at::gelu(x); }).adds_terms = true;
  cases.add("gelu", [](const Tensor& x) { return at::gelu(x, "tanh"); }).adds_terms = true;
  cases.add("silu", [](const Tensor& x) { return at::silu(x); });
  cases.add("mish", [](const Tensor& x) { return at::mish(x); });
  cases.add("softplus", [](const Tensor& x) { return at::softplus(x * 9, 1.5, 10); });
  cases.add("log_sigmoid", [](const Tensor& x) { return at::log_sigmoid(x); });
  cases.add("sigmoid", [](const Tensor& x) { return x.sigmoid(); });
  cases.add("tanh", [](const Tensor& x) { return x.tanh(); });
  cases.add("hardsigmoid", [](const Tensor& x) { return at::hardsigmoid(x * 3); });
  cases.add("hardswish", [](const Tensor& x) { return at::hardswish(x * 3); });
  cases.add("hardshrink", [](const Tensor& x) { return at::hardshrink(x, 0.4); });
  cases.add("softshrink", [](const Tensor& x) { return at::softshrink(x, 0.4); });
  cases.add("threshold", [](const Tensor& x) { return at::threshold(x, 0.2, -3); });
  cases.add_net("prelu", nn::PReLU(nn::PReLUOptions().num_parameters(3)), floats({3, 4, 4}));
  cases.add("prelu", [](const Tensor& x) { return at::prelu(x, torch::full({}, 0.3)); });
  cases.add("logit", [](const Tensor& x) { return x.logit(0.1); }, {between(0, 1, {3, 4})});
  cases.add("glu", [](const Tensor& x) { return at::glu(x, 1); }, {floats({4, 3})});
  cases.add("softmax", [](const Tensor& x) { return x.softmax(1); });
  cases.add("log_softmax", [](const Tensor& x) { return x.log_softmax(-1); });
  cases.add("dropout", [](const Tensor& x) { return at::dropout(x, 0.5, false) + 1; });
  cases.add("feature_dropout",
            [](const Tensor& x) { return at::feature_dropout(x, 0.5, false) + 1; });
  cases.add("alpha_dropout", [](const Tensor& x) { return at::alpha_dropout(x, 0.5, false) + 1; });
  cases.add("feature_alpha_dropout",
            [](const Tensor& x) { return at::feature_alpha_dropout(x, 0.5, false) + 1; });
  // Arguments at a threshold: one belongs to what is below, and the next is larger.
  cases.add("threshold", [](const Tensor& x) { return at::threshold(x, 0.5, -3); },
            {rows_of({0.25, 0.5, 0.75, -1})});
  cases.add("softplus", [](const Tensor& x) { return at::softplus(x, 2, 3); },
            {rows_of({1, 1.5, 1.75, -1})});
  // A slope for each channel, with and without further dimensions.
  cases.add("prelu",
            [](const Tensor& x) { return at::prelu(x, torch::arange(4, torch::kFloat) / 10); },
            {floats({4})});
  cases.add("prelu",
            [](const Tensor& x) { return at::prelu(x, torch::arange(3, torch::kFloat) / 10); },
            {floats({3, 4, 4})});
  cases.add("logit", [](const Tensor& x) { return x.logit(); },
            {rows_of({0, 1, 0.25, 0.75, 0.9, 2, -1})});
  cases.add("softmax", [](const Tensor& x) { return x.softmax(1, torch::kDouble); });
}

}  // namespace lockstep::testing_support
