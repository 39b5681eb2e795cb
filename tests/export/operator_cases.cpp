#include <limits>

#include <tests/export/export_case.h>

namespace lockstep::testing_support {
namespace {

namespace nn = torch::nn;
namespace F = torch::nn::functional;
using torch::Tensor;

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// Has no parameters: operators on inputs alone.
struct EmptyImpl : nn::Module {};

class CaseList {
 public:
  /// `forward` takes one to three tensors and returns one, or a tuple or list of them.
  template <class Function>
  ExportCase& add(const std::string& op, Function forward, std::vector<MakeInput> inputs = {}) {
    if (inputs.empty()) inputs = {floats({3, 4})};
    ExportCase each{.name = name_for(op),
                    .op = op,
                    .module = std::make_shared<EmptyImpl>(),
                    .inputs = std::move(inputs)};
    each.forward = [forward](const Tensors& x) {
      Tensors outputs;
      if constexpr (std::is_invocable_v<Function, Tensor>) {
        onnx::append_outputs(forward(x[0]), outputs);
      } else if constexpr (std::is_invocable_v<Function, Tensor, Tensor>) {
        onnx::append_outputs(forward(x[0], x[1]), outputs);
      } else {
        onnx::append_outputs(forward(x[0], x[1], x[2]), outputs);
      }
      return outputs;
    };
    cases_.push_back(std::move(each));
    return cases_.back();
  }

  template <class ModuleHolder>
  ExportCase& add_net(const std::string& op, ModuleHolder net, MakeInput input) {
    cases_.push_back(case_of(name_for(op), op, std::move(net), std::move(input)));
    return cases_.back();
  }

  std::vector<ExportCase> take() { return std::move(cases_); }

 private:
  std::string name_for(const std::string& op) {
    int number = 1;
    for (const ExportCase& each : cases_) number += each.op == op ? 1 : 0;
    return number == 1 ? op : op + "_" + std::to_string(number);
  }

  std::vector<ExportCase> cases_;
};

void add_elementwise(CaseList& cases) {
  const auto unary = [&cases](const char* op, Tensor (Tensor::*method)() const, double low,
                              double high) {
    cases.add(op, [method](const Tensor& x) { return (x.*method)(); },
              {between(low, high, {3, 4})});
  };
  unary("abs", &Tensor::abs, -2, 2);
  unary("acos", &Tensor::acos, -0.9, 0.9);
  unary("acosh", &Tensor::acosh, 1.1, 3);
  unary("asin", &Tensor::asin, -0.9, 0.9);
  unary("asinh", &Tensor::asinh, -2, 2);
  unary("atan", &Tensor::atan, -2, 2);
  unary("atanh", &Tensor::atanh, -0.9, 0.9);
  unary("ceil", &Tensor::ceil, -2, 2);
  unary("cos", &Tensor::cos, -3, 3);
  unary("cosh", &Tensor::cosh, -2, 2);
  unary("deg2rad", &Tensor::deg2rad, -180, 180);
  unary("erf", &Tensor::erf, -2, 2);
  unary("erfc", &Tensor::erfc, -2, 2);
  unary("exp", &Tensor::exp, -2, 2);
  unary("exp2", &Tensor::exp2, -2, 2);
  unary("expm1", &Tensor::expm1, -2, 2);
  unary("floor", &Tensor::floor, -2, 2);
  unary("frac", &Tensor::frac, -2, 2);
  unary("log", &Tensor::log, 0.1, 3);
  unary("log10", &Tensor::log10, 0.1, 3);
  unary("log1p", &Tensor::log1p, -0.5, 3);
  unary("log2", &Tensor::log2, 0.1, 3);
  unary("neg", &Tensor::neg, -2, 2);
  unary("rad2deg", &Tensor::rad2deg, -3, 3);
  unary("reciprocal", &Tensor::reciprocal, 0.5, 2);
  unary("rsqrt", &Tensor::rsqrt, 0.1, 2);
  unary("sgn", &Tensor::sgn, -2, 2);
  unary("sign", &Tensor::sign, -2, 2);
  unary("sin", &Tensor::sin, -3, 3);
  unary("sinh", &Tensor::sinh, -2, 2);
  unary("sqrt", &Tensor::sqrt, 0.1, 2);
  unary("square", &Tensor::square, -2, 2);
  unary("tan", &Tensor::tan, -1, 1);
  unary("trunc", &Tensor::trunc, -2, 2);
  cases.add("round", [](const Tensor& x) { return x.round(); });
  cases.add("nan_to_num", [](const Tensor& x) { return x.log().nan_to_num(7.0, 8.0, -9.0); });
}

void add_arithmetic(CaseList& cases) {
  const std::vector<MakeInput> pair = {floats({3, 4}), between(0.5, 2, {3, 4})};
  const std::vector<MakeInput> whole = {integers(-9, 9, {3, 4}), integers(1, 5, {3, 4})};
  cases.add(
      "add", [](const Tensor& x, const Tensor& y) { return x.add(y, 2.5); }, pair);
  cases.add("add", [](const Tensor& x) { return x + 1; });
  cases.add("add", [](const Tensor& x, const Tensor& n) { return x + n; },
            {floats({4}), integers(0, 5, {4})});
  cases.add("add", [](const Tensor& x) { return x.clone().add_(x.mul(3)).add_(1); });
  cases.add(
      "sub", [](const Tensor& x, const Tensor& y) { return x - y; }, pair);
  cases.add("rsub", [](const Tensor& x) { return at::rsub(x, 1, 2); });
  cases.add(
      "mul", [](const Tensor& x, const Tensor& y) { return x * y * 0.5; }, pair);
  cases.add(
      "div", [](const Tensor& x, const Tensor& y) { return x / y; }, pair);
  cases.add(
      "div", [](const Tensor& x, const Tensor& y) { return x.div(y, "floor"); }, pair);
  cases.add(
      "div", [](const Tensor& x, const Tensor& y) { return x.div(y, "trunc"); }, pair);
  cases.add(
      "div", [](const Tensor& x, const Tensor& y) { return x.div(y, "floor"); }, whole);
  cases.add(
      "div", [](const Tensor& x, const Tensor& y) { return x / y; }, whole);
  cases.add(
      "floor_divide", [](const Tensor& x, const Tensor& y) { return x.floor_divide(y); }, pair);
  cases.add(
      "remainder", [](const Tensor& x, const Tensor& y) { return x.remainder(y); }, pair);
  cases.add(
      "remainder", [](const Tensor& x, const Tensor& y) { return x.remainder(y); }, whole);
  cases.add(
      "fmod", [](const Tensor& x, const Tensor& y) { return x.fmod(y); }, pair);
  cases.add(
      "fmod", [](const Tensor& x, const Tensor& y) { return x.fmod(y); }, whole);
  cases.add(
      "pow", [](const Tensor& x, const Tensor& y) { return x.abs().pow(y); }, pair);
  cases.add("pow", [](const Tensor& x) { return x.pow(3); });
  cases.add(
      "atan2", [](const Tensor& x, const Tensor& y) { return x.atan2(y - 1.2); }, pair);
  cases.add(
      "hypot", [](const Tensor& x, const Tensor& y) { return x.hypot(y); }, pair);
  cases.add(
      "maximum", [](const Tensor& x, const Tensor& y) { return at::maximum(x, y); }, pair);
  cases.add(
      "minimum", [](const Tensor& x, const Tensor& y) { return at::minimum(x, y); }, pair);
  cases.add(
      "lerp", [](const Tensor& x, const Tensor& y) { return x.lerp(y, 0.3); }, pair);
  const std::vector<MakeInput> three = {floats({4}), floats({4}), between(0.5, 2, {4})};
  cases.add(
      "addcmul",
      [](const Tensor& x, const Tensor& y, const Tensor& z) { return x.addcmul(y, z, 0.5); },
      three);
  cases.add(
      "addcdiv",
      [](const Tensor& x, const Tensor& y, const Tensor& z) { return x.addcdiv(y, z, 2); }, three);
  cases.add("clamp", [](const Tensor& x) { return x.clamp(-0.5, 0.5); });
  cases.add("clamp", [](const Tensor& x) { return x.clamp(std::nullopt, 0.5); });
  cases.add(
      "clamp", [](const Tensor& x, const Tensor& y) { return x.clamp(-y, y); }, pair);
  cases.add("clamp_min", [](const Tensor& x) { return x.clamp_min(0.1); });
  cases.add("clamp_max", [](const Tensor& x) { return x.clamp_max(0.1); });
}

void add_comparisons(CaseList& cases) {
  const std::vector<MakeInput> whole = {integers(0, 4, {3, 4}), integers(0, 4, {3, 4})};
  const std::vector<MakeInput> truth = {truths({3, 4}), truths({3, 4})};
  cases.add(
      "eq", [](const Tensor& x, const Tensor& y) { return x == y; }, whole);
  cases.add(
      "ne", [](const Tensor& x, const Tensor& y) { return x != y; }, whole);
  cases.add(
      "lt", [](const Tensor& x, const Tensor& y) { return x < y; }, whole);
  cases.add(
      "le", [](const Tensor& x, const Tensor& y) { return x <= y; }, whole);
  cases.add(
      "gt", [](const Tensor& x, const Tensor& y) { return x > y; }, whole);
  cases.add("gt", [](const Tensor& x) { return x > 1.5; }, {integers(0, 4, {3, 4})});
  cases.add(
      "ge", [](const Tensor& x, const Tensor& y) { return x >= y; }, whole);
  cases.add(
      "logical_and", [](const Tensor& x, const Tensor& y) { return x.logical_and(y); }, whole);
  cases.add(
      "logical_or", [](const Tensor& x, const Tensor& y) { return x.logical_or(y); }, truth);
  cases.add(
      "logical_xor", [](const Tensor& x, const Tensor& y) { return x.logical_xor(y); }, truth);
  cases.add("logical_not", [](const Tensor& x) { return x.logical_not(); }, {truths({3, 4})});
  cases.add(
      "bitwise_and", [](const Tensor& x, const Tensor& y) { return x.bitwise_and(y); }, truth);
  cases
      .add(
          "bitwise_and", [](const Tensor& x, const Tensor& y) { return x.bitwise_and(y); }, whole)
      .first_opset = 18;
  cases.add(
      "bitwise_or", [](const Tensor& x, const Tensor& y) { return x.bitwise_or(y); }, truth);
  cases.add(
      "bitwise_xor", [](const Tensor& x, const Tensor& y) { return x.bitwise_xor(y); }, truth);
  cases.add("bitwise_not", [](const Tensor& x) { return x.bitwise_not(); }, {truths({3, 4})});
  cases.add(
      "__and__", [](const Tensor& x, const Tensor& y) { return x.__and__(y); }, truth);
  cases.add(
      "__or__", [](const Tensor& x, const Tensor& y) { return x.__or__(y); }, truth);
  cases.add(
      "__xor__", [](const Tensor& x, const Tensor& y) { return x.__xor__(y); }, truth);
  cases.add("isnan", [](const Tensor& x) { return x.log().isnan(); });
  cases.add("isinf", [](const Tensor& x) { return x.relu().log().isinf(); });
  cases.add("isfinite", [](const Tensor& x) { return x.relu().log().isfinite(); });
  cases.add("where", [](const Tensor& x, const Tensor& y) { return at::where(x > 0, x, y); },
            {floats({3, 4}), floats({3, 4})});
  cases.add("where", [](const Tensor& x) { return at::where(x > 0, x, 0.5); });
  cases.add("masked_fill", [](const Tensor& x) { return x.masked_fill(x > 0, -1e9); });
}

void add_activations(CaseList& cases) {
  cases.add("relu", [](const Tensor& x) { return x.relu(); });
  cases.add("relu", [](const Tensor& x) { return x.clone().relu_(); });
  cases.add("relu6", [](const Tensor& x) { return at::relu6(x * 5); });
  cases.add("hardtanh", [](const Tensor& x) { return at::hardtanh(x, -0.5, 0.7); });
  cases.add("leaky_relu", [](const Tensor& x) { return at::leaky_relu(x, 0.2); });
  cases.add("rrelu", [](const Tensor& x) { return at::rrelu(x, 0.1, 0.3, /*training=*/false); });
  cases.add("elu", [](const Tensor& x) { return at::elu(x, 1.3); });
  cases.add("selu", [](const Tensor& x) { return at::selu(x); });
  cases.add("celu", [](const Tensor& x) { return at::celu(x, 1.3); });
  cases.add("gelu", [](const Tensor& x) { return at::gelu(x); });
  cases.add("gelu", [](const Tensor& x) { return at::gelu(x, "tanh"); });
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
}

void add_convolutions(CaseList& cases) {
  const char* const plain = "_convolution";
  cases.add_net(plain, nn::Conv1d(nn::Conv1dOptions(3, 4, 3).stride(2).padding(1)), floats({3, 9}));
  cases.add_net(plain,
                nn::Conv2d(nn::Conv2dOptions(4, 6, {3, 2}).dilation(2).groups(2).bias(false)),
                floats({4, 8, 9}));
  cases.add_net(plain, nn::Conv3d(nn::Conv3dOptions(2, 3, 2).padding(1)), floats({2, 4, 5, 6}));
  cases.add_net(plain, nn::ConvTranspose1d(nn::ConvTranspose1dOptions(3, 4, 3).stride(2)),
                floats({3, 6}));
  cases.add_net(
      plain,
      nn::ConvTranspose2d(
          nn::ConvTranspose2dOptions(4, 6, 3).stride(2).padding(1).output_padding(1).groups(2)),
      floats({4, 5, 6}));
  cases.add_net(plain, nn::ConvTranspose3d(nn::ConvTranspose3dOptions(2, 3, 2).stride(2)),
                floats({2, 3, 4, 3}));
  cases.add_net("_convolution_mode",
                nn::Conv2d(nn::Conv2dOptions(3, 4, {4, 3}).padding(torch::kSame)),
                floats({3, 7, 8}));
}

void add_pooling(CaseList& cases) {
  cases.add("max_pool1d", [](const Tensor& x) { return at::max_pool1d(x, 3, 2, 1); },
            {floats({3, 9})});
  cases.add("max_pool2d", [](const Tensor& x) { return at::max_pool2d(x, 3, 2, 1, 1, true); },
            {floats({3, 8, 10})});
  cases.add("max_pool3d", [](const Tensor& x) { return at::max_pool3d(x, 2); },
            {floats({2, 4, 6, 4})});
  cases.add("max_pool1d_with_indices",
            [](const Tensor& x) { return at::max_pool1d_with_indices(x, 2); }, {floats({3, 8})});
  cases.add("max_pool2d_with_indices",
            [](const Tensor& x) { return at::max_pool2d_with_indices(x, 2); }, {floats({3, 8, 6})});
  cases.add("max_pool3d_with_indices",
            [](const Tensor& x) { return at::max_pool3d_with_indices(x, 2); },
            {floats({2, 4, 4, 6})});
  cases.add("avg_pool1d", [](const Tensor& x) { return at::avg_pool1d(x, 3, 2, 1); },
            {floats({3, 9})});
  cases.add("avg_pool2d", [](const Tensor& x) { return at::avg_pool2d(x, 3, 2, 1, false, false); },
            {floats({3, 8, 10})});
  cases.add("avg_pool2d",
            [](const Tensor& x) { return at::avg_pool2d(x, 2, 2, 0, false, true, 3); },
            {floats({3, 8, 10})});
  cases.add("avg_pool3d", [](const Tensor& x) { return at::avg_pool3d(x, 2); },
            {floats({2, 4, 6, 4})});
  cases.add("adaptive_avg_pool1d", [](const Tensor& x) { return at::adaptive_avg_pool1d(x, 4); },
            {floats({3, 8})});
  cases.add("adaptive_avg_pool2d",
            [](const Tensor& x) {
              return at::adaptive_avg_pool2d(x, {1, 1});
            },
            {floats({3, 8, 6})});
  cases.add("adaptive_avg_pool2d",
            [](const Tensor& x) {
              return at::adaptive_avg_pool2d(x, {3, 5});
            },
            {floats({3, 7, 11})});
  cases.add("adaptive_avg_pool3d",
            [](const Tensor& x) {
              return at::adaptive_avg_pool3d(x, {2, 2, 3});
            },
            {floats({2, 4, 5, 6})});
  const auto values = [](const std::tuple<Tensor, Tensor>& both) { return std::get<0>(both); };
  cases.add("adaptive_max_pool1d",
            [values](const Tensor& x) { return values(at::adaptive_max_pool1d(x, 3)); },
            {floats({3, 8})});
  cases.add("adaptive_max_pool2d",
            [values](const Tensor& x) {
              return values(at::adaptive_max_pool2d(x, {2, 5}));
            },
            {floats({3, 8, 7})});
  cases.add("adaptive_max_pool3d",
            [values](const Tensor& x) {
              return values(at::adaptive_max_pool3d(x, {2, 2, 2}));
            },
            {floats({2, 4, 4, 6})});
}

template <class Norm>
Norm with_statistics(Norm norm) {
  norm->running_mean.normal_();
  norm->running_var.uniform_(0.5, 2);
  torch::NoGradGuard no_grad;
  norm->weight.uniform_(0.5, 2);
  norm->bias.normal_();
  return norm;
}

void add_normalisations(CaseList& cases) {
  cases.add_net("batch_norm", with_statistics(nn::BatchNorm1d(4)), floats({4}));
  cases.add_net("batch_norm", with_statistics(nn::BatchNorm2d(3)), floats({3, 4, 5}));
  cases.add_net("batch_norm",
                nn::Sequential(nn::Conv2d(nn::Conv2dOptions(2, 3, 3).bias(false)),
                               with_statistics(nn::BatchNorm2d(3)), nn::ReLU()),
                floats({2, 5, 5}));
  cases.add_net("batch_norm",
                nn::Sequential(nn::ConvTranspose2d(nn::ConvTranspose2dOptions(2, 3, 3)),
                               with_statistics(nn::BatchNorm2d(3))),
                floats({2, 5, 5}));
  // A scale that is computed from the input cannot go into the convolution's weights.
  const Tensor filter = torch::randn({3, 2, 3, 3});
  cases.add("batch_norm",
            [filter](const Tensor& x) {
              const Tensor gamma =
                  x.slice(0, 0, 1).mean(at::IntArrayRef{0, 2, 3}).repeat({2}).slice(0, 1);
              return at::batch_norm(at::conv2d(x, filter), gamma, gamma, torch::zeros({3}),
                                    torch::ones({3}), false, 0.1, 1e-5, false);
            },
            {floats({2, 5, 5})});
  cases.add_net("instance_norm", nn::InstanceNorm2d(nn::InstanceNorm2dOptions(3).affine(true)),
                floats({3, 4, 5}));
  cases.add_net("layer_norm", nn::LayerNorm(nn::LayerNormOptions({4, 5})), floats({3, 4, 5}));
  cases.add("layer_norm", [](const Tensor& x) { return at::layer_norm(x, {4}); });
  cases.add_net("group_norm", nn::GroupNorm(nn::GroupNormOptions(2, 6)), floats({6, 4, 5}));
  cases.add("rms_norm", [](const Tensor& x) { return at::rms_norm(x, {4}); });
}

void add_matrices(CaseList& cases) {
  cases.add_net("addmm", nn::Linear(4, 5), floats({4}));
  cases.add_net("matmul", nn::Linear(4, 5), floats({3, 4}));
  cases.add_net("matmul", nn::Linear(nn::LinearOptions(4, 5).bias(false)), floats({4}));
  cases.add("matmul", [](const Tensor& x, const Tensor& y) { return x.matmul(y); },
            {floats({3, 4}), floats({4, 5})});
  cases.add("linear", [](const Tensor& x) {
    return at::linear(x, torch::arange(20, torch::kFloat).view({5, 4}) / 10);
  });
  cases.add("mm", [](const Tensor& x, const Tensor& y) { return x.mm(y.t()); },
            {floats({4}), floats({4})});
  cases.add("bmm", [](const Tensor& x, const Tensor& y) { return x.bmm(y); },
            {floats({3, 4}), floats({4, 5})});
  cases.add(
      "baddbmm",
      [](const Tensor& x, const Tensor& y, const Tensor& z) { return x.baddbmm(y, z, 0.5, 2); },
      {floats({3, 5}), floats({3, 4}), floats({4, 5})});
  cases.add("mv", [](const Tensor& x) { return x.mv(torch::arange(4, torch::kFloat)); },
            {floats({4})});
  cases.add("addmv",
            [](const Tensor& x, const Tensor& y) {
              return x.addmv(y, torch::arange(4, torch::kFloat), 0.5, 2);
            },
            {floats({}), floats({4})});
  cases.add("dot", [](const Tensor& x) { return x[0].dot(x[0]); }, {floats({4})});
  cases.add("outer", [](const Tensor& x) { return x.outer(torch::arange(4, torch::kFloat)); },
            {floats({})});
  cases.add("einsum",
            [](const Tensor& x, const Tensor& y) {
              return at::einsum("bij, bjk -> bik", {x, y});
            },
            {floats({3, 4}), floats({4, 5})});
  cases.add("bilinear",
            [](const Tensor& x, const Tensor& y) {
              return at::bilinear(x, y, torch::arange(60, torch::kFloat).view({3, 4, 5}) / 60,
                                  torch::ones({3}));
            },
            {floats({4}), floats({5})});
  const std::vector<MakeInput> pair = {floats({5}), floats({5})};
  cases.add(
      "cosine_similarity",
      [](const Tensor& x, const Tensor& y) { return at::cosine_similarity(x, y); }, pair);
  cases.add(
      "pairwise_distance",
      [](const Tensor& x, const Tensor& y) { return at::pairwise_distance(x, y); }, pair);
  const std::vector<MakeInput> heads = {floats({2, 5, 8}), floats({2, 6, 8}), floats({2, 6, 8})};
  cases.add(
      "scaled_dot_product_attention",
      [](const Tensor& q, const Tensor& k, const Tensor& v) {
        return at::scaled_dot_product_attention(q, k, v);
      },
      heads);
  cases.add(
      "scaled_dot_product_attention",
      [](const Tensor& q, const Tensor& k, const Tensor& v) {
        const auto mask = torch::ones({5, 6}, torch::kBool).tril();
        return at::scaled_dot_product_attention(q, k, v, mask);
      },
      heads);
  cases.add(
      "scaled_dot_product_attention",
      [](const Tensor& q, const Tensor& k, const Tensor& v) {
        return at::scaled_dot_product_attention(q, k, v, {}, 0, /*is_causal=*/true);
      },
      heads);
}

void add_shapes(CaseList& cases) {
  const std::vector<MakeInput> image = {floats({4, 6, 8})};
  cases.add("view", [](const Tensor& x) { return x.view({-1, 12}); });
  cases.add("view_as", [](const Tensor& x, const Tensor& y) { return x.view_as(y); },
            {floats({3, 4}), floats({12})});
  cases.add("reshape", [](const Tensor& x) { return x.transpose(1, 2).reshape({-1, 6}); });
  cases.add("reshape_as", [](const Tensor& x, const Tensor& y) { return x.reshape_as(y); },
            {floats({3, 4}), floats({2, 6})});
  cases.add("ravel", [](const Tensor& x) { return x.ravel(); });
  cases.add(
      "flatten", [](const Tensor& x) { return x.flatten(1); }, image);
  cases.add(
      "flatten", [](const Tensor& x) { return x.flatten(0, 1); }, image);
  cases.add("unflatten", [](const Tensor& x) { return x.unflatten(2, {2, 2}); });
  cases.add("squeeze", [](const Tensor& x) { return x.squeeze(2); }, {floats({3, 1, 4})});
  cases.add("unsqueeze", [](const Tensor& x) { return x.unsqueeze(-1); });
  cases.add("transpose", [](const Tensor& x) { return x.transpose(0, 2); });
  cases.add("t", [](const Tensor& x) { return x.t(); }, {floats({4})});
  cases.add(
      "permute",
      [](const Tensor& x) {
        return x.permute({0, 2, 3, 1});
      },
      image);
  cases.add(
      "movedim", [](const Tensor& x) { return x.movedim(1, -1); }, image);
  cases.add("contiguous", [](const Tensor& x) { return x.transpose(1, 2).contiguous(); });
  cases.add("clone", [](const Tensor& x) { return x.clone() + 1; });
  cases.add("detach", [](const Tensor& x) { return x.detach() + 1; });
  cases.add("alias", [](const Tensor& x) { return at::alias(x) + 1; });
  cases.add("expand", [](const Tensor& x) { return x.unsqueeze(1).expand({-1, 5, 3, 4}); });
  cases.add("expand_as", [](const Tensor& x, const Tensor& y) { return x.expand_as(y); },
            {floats({1, 4}), floats({3, 4})});
  cases.add("broadcast_to", [](const Tensor& x) {
    return torch::ones({4}).broadcast_to({3, 4}) + x;
  });
  cases.add("repeat", [](const Tensor& x) { return x.repeat({1, 2, 1, 3}); });
  cases.add("tile", [](const Tensor& x) { return x.tile({2, 3}); });
  cases.add("repeat_interleave", [](const Tensor& x) { return x.repeat_interleave(3, 1); });
  cases.add("cat",
            [](const Tensor& x, const Tensor& y) {
              return at::cat({x, y}, 1);
            },
            {floats({3, 4}), floats({2, 4})});
  cases.add("stack", [](const Tensor& x) { return at::stack({x, x + 1}, 1); });
  cases.add(
      "split", [](const Tensor& x) { return x.split(3, 2); }, image);
  cases.add(
      "split_with_sizes",
      [](const Tensor& x) {
        return x.split_with_sizes({1, 5}, 2);
      },
      image);
  cases.add(
      "chunk", [](const Tensor& x) { return x.chunk(3, 3); }, image);
  cases.add(
      "tensor_split", [](const Tensor& x) { return x.tensor_split(3, 3); }, image);
  cases.add(
      "unsafe_chunk", [](const Tensor& x) { return x.unsafe_chunk(2, 1); }, image);
  cases.add(
      "unsafe_split", [](const Tensor& x) { return x.unsafe_split(2, 1); }, image);
  cases.add(
      "unsafe_split_with_sizes",
      [](const Tensor& x) {
        return x.unsafe_split_with_sizes({1, 3}, 1);
      },
      image);
  cases.add("unbind", [](const Tensor& x) { return x.unbind(1); });
  cases.add("select", [](const Tensor& x) { return x.select(1, -1); });
  cases.add(
      "slice", [](const Tensor& x) { return x.slice(2, 1, 7, 2); }, image);
  cases.add(
      "slice", [](const Tensor& x) { return x.slice(1, -2); }, image);
  cases.add(
      "narrow", [](const Tensor& x) { return x.narrow(2, 1, 3); }, image);
  cases.add("flip", [](const Tensor& x) { return x.flip({1, 2}); });
  cases.add("roll", [](const Tensor& x) { return x.roll({1, -2}, {1, 2}); });
  cases.add(
      "pixel_shuffle", [](const Tensor& x) { return at::pixel_shuffle(x, 2); }, image);
  cases.add(
      "pixel_unshuffle", [](const Tensor& x) { return at::pixel_unshuffle(x, 2); }, image);
  cases.add(
      "channel_shuffle", [](const Tensor& x) { return at::channel_shuffle(x, 2); }, image);
  cases.add("tril", [](const Tensor& x) { return x.tril(1); });
  cases.add("triu", [](const Tensor& x) { return x.triu(-1); });
  cases.add("to", [](const Tensor& x) { return x.to(torch::kLong).to(torch::kFloat) * 0.5; });
  cases.add("type_as", [](const Tensor& x, const Tensor& n) { return n.type_as(x) * x; },
            {floats({4}), integers(0, 5, {4})});
}

void add_padding(CaseList& cases) {
  const std::vector<MakeInput> line = {floats({3, 8})};
  const std::vector<MakeInput> image = {floats({3, 6, 8})};
  const std::vector<MakeInput> volume = {floats({2, 4, 5, 6})};
  cases.add(
      "constant_pad_nd",
      [](const Tensor& x) {
        return at::constant_pad_nd(x, {1, 2, 0, 1}, 3);
      },
      image);
  cases.add(
      "pad",
      [](const Tensor& x) {
        return at::pad(x, {1, 2, 2, 1}, "constant", 0.5);
      },
      image);
  cases.add(
      "pad",
      [](const Tensor& x) {
        return at::pad(x, {1, 2, 2, 1}, "reflect");
      },
      image);
  cases.add(
      "pad",
      [](const Tensor& x) {
        return at::pad(x, {1, 2, 2, 1}, "replicate");
      },
      image);
  cases.add(
      "pad",
      [](const Tensor& x) {
        return at::pad(x, {1, 2, 2, 1}, "circular");
      },
      image);
  cases.add(
      "_pad_circular",
      [](const Tensor& x) {
        return at::_pad_circular(x, {2, 1});
      },
      line);
  cases.add(
      "reflection_pad1d",
      [](const Tensor& x) {
        return at::reflection_pad1d(x, {2, 1});
      },
      line);
  cases.add(
      "reflection_pad2d",
      [](const Tensor& x) {
        return at::reflection_pad2d(x, {2, 1, 1, 2});
      },
      image);
  cases.add(
      "reflection_pad3d",
      [](const Tensor& x) {
        return at::reflection_pad3d(x, {1, 1, 1, 2, 0, 1});
      },
      volume);
  cases.add(
      "replication_pad1d",
      [](const Tensor& x) {
        return at::replication_pad1d(x, {2, 1});
      },
      line);
  cases.add(
      "replication_pad2d",
      [](const Tensor& x) {
        return at::replication_pad2d(x, {2, 1, 1, 2});
      },
      image);
  cases.add(
      "replication_pad3d",
      [](const Tensor& x) {
        return at::replication_pad3d(x, {1, 1, 1, 2, 0, 1});
      },
      volume);
}

void add_indexing(CaseList& cases) {
  using torch::indexing::None;
  using torch::indexing::Slice;
  cases.add_net("embedding", nn::Embedding(10, 4), integers(0, 10, {5}));
  cases.add("index_select", [](const Tensor& x) {
    return x.index_select(1, torch::tensor({2, 0, 1, 1}));
  });
  cases.add("gather", [](const Tensor& x, const Tensor& i) { return x.gather(2, i); },
            {floats({3, 4}), integers(0, 4, {3, 2})});
  cases.add("take_along_dim",
            [](const Tensor& x) { return x.take_along_dim(x.argsort(std::int64_t{2}, false), 2); });
  cases.add("take", [](const Tensor& x, const Tensor& i) { return x.take(i); },
            {floats({3, 4}), integers(0, 12, {5})});
  cases.add("index", [](const Tensor& x) { return x.index({Slice(), torch::tensor({2, 0})}); });
  cases.add("index",
            [](const Tensor& x) {
              return x.index({Slice(), torch::tensor({2, 0}), torch::tensor({1, 3})});
            },
            {floats({3, 4, 2})});
  cases.add("scatter",
            [](const Tensor& x, const Tensor& i, const Tensor& y) { return x.scatter(1, i, y); },
            {floats({5}),
             [](std::int64_t batch) {
               return torch::tensor({3, 1}).expand({batch, 2}).contiguous();
             },
             floats({2})});
  cases.add("scatter", [](const Tensor& x, const Tensor& i) { return x.scatter(1, i, 7.0); },
            {floats({5}), integers(0, 5, {2})});
  cases.add(
      "scatter_add",
      [](const Tensor& x, const Tensor& i, const Tensor& y) { return x.scatter_add(1, i, y); },
      {floats({5}), integers(0, 5, {3}), floats({3})});
  cases.add("one_hot", [](const Tensor& i) { return at::one_hot(i, 6); }, {integers(0, 6, {4})});
  cases.add("unfold", [](const Tensor& x) { return x.unfold(1, 3, 2); }, {floats({9, 4})});
  cases.add("im2col",
            [](const Tensor& x) {
              return at::im2col(x, {3, 2}, {1, 2}, {1, 0}, {2, 1});
            },
            {floats({2, 7, 8})});
  cases
      .add("col2im",
           [](const Tensor& x) {
             return at::col2im(x, {6, 8}, {2, 2}, {1, 1}, {0, 0}, {2, 2});
           },
           {floats({12, 12})})
      .first_opset = 18;
}

void add_reductions(CaseList& cases) {
  const auto first = [](const std::tuple<Tensor, Tensor>& both) { return std::get<0>(both); };
  cases.add("sum", [](const Tensor& x) { return x.sum(); });
  cases.add("sum", [](const Tensor& x) { return x.sum({1, 2}, true); });
  cases.add("sum", [](const Tensor& x) { return x.sum(1); }, {integers(0, 9, {3, 4})});
  cases.add("mean", [](const Tensor& x) { return x.mean(-1); });
  cases.add("mean", [](const Tensor& x) { return x.mean(); });
  cases.add("prod", [](const Tensor& x) { return x.prod(1); });
  cases.add("amax", [](const Tensor& x) { return x.amax({1, 2}); });
  cases.add("amin", [](const Tensor& x) { return x.amin(1, true); });
  cases.add("max", [](const Tensor& x) { return x.max(); });
  cases.add("max", [](const Tensor& x) { return x.max(1); });
  cases.add("max", [](const Tensor& x, const Tensor& y) { return x.max(y); },
            {floats({3}), floats({3})});
  cases.add("min", [](const Tensor& x) { return x.min(2, true); });
  cases.add("min", [](const Tensor& x) { return x.min(); });
  cases.add("argmax", [](const Tensor& x) { return x.argmax(1); });
  cases.add("argmin", [](const Tensor& x) { return x.argmin(-1, true); });
  cases.add("all", [](const Tensor& x) { return x.all(1); }, {truths({2, 4})});
  cases.add("any", [](const Tensor& x) { return x.any(1); }, {truths({2, 4})});
  cases.add("any", [](const Tensor& x) { return x.any(); }, {truths({2, 4})});
  cases.add("var", [](const Tensor& x) { return x.var(1); });
  cases.add("var", [](const Tensor& x) { return x.var(torch::IntArrayRef{1, 2}, false, true); });
  cases.add("std", [](const Tensor& x) { return x.std(2); });
  cases.add("var_mean", [](const Tensor& x) { return at::var_mean(x, 1); });
  cases.add("std_mean", [](const Tensor& x) { return at::std_mean(x, 2); });
  cases.add("logsumexp", [](const Tensor& x) { return x.logsumexp(1); });
  cases.add("norm", [](const Tensor& x) { return x.norm(2, 1); });
  cases.add("norm", [](const Tensor& x) { return x.norm(3, {1, 2}, true); });
  cases.add("linalg_vector_norm",
            [](const Tensor& x) { return at::linalg_vector_norm(x, kInfinity, 1); });
  cases.add("linalg_vector_norm", [](const Tensor& x) { return at::linalg_vector_norm(x, 1, 2); });
  cases.add("cumsum", [](const Tensor& x) { return x.cumsum(1); });
  cases.add("topk", [](const Tensor& x) { return x.topk(2, 2); });
  cases.add("topk", [](const Tensor& x) { return x.topk(2, 1, /*largest=*/false); });
  cases.add("sort", [](const Tensor& x) { return x.sort(2, /*descending=*/true); });
  cases.add("argsort", [](const Tensor& x) { return x.argsort(std::int64_t{1}, false); });
  cases.add("adaptive_max_pool1d",
            [first](const Tensor& x) { return first(at::adaptive_max_pool1d(x, 1)); });
}

void add_creation(CaseList& cases) {
  cases.add("zeros",
            [](const Tensor& x) {
              return at::cat({x, at::zeros({x.size(0), 2, 4})}, 1);
            })
      .options.follow_batch = true;
  cases.add("ones",
            [](const Tensor& x) {
              return at::cat({x, at::ones({x.size(0), 2, 4})}, 1);
            })
      .options.follow_batch = true;
  cases.add("full",
            [](const Tensor& x) {
              return x * at::full({x.size(0), 1, 4}, 2.5);
            })
      .options.follow_batch = true;
  cases.add("arange",
            [](const Tensor& x) {
              return x + at::arange(x.size(0)).view({-1, 1, 1});
            })
      .options.follow_batch = true;
  cases.add("zeros_like", [](const Tensor& x) { return at::zeros_like(x) + x; });
  cases.add("ones_like", [](const Tensor& x) { return at::ones_like(x) + x; });
  cases.add("full_like", [](const Tensor& x) { return at::full_like(x, 1.5) + x; });
  cases.add("empty_like", [](const Tensor& x) { return at::empty_like(x).fill_(2) + x; });
  cases.add("fill", [](const Tensor& x) { return x.clone().fill_(2) + x; });
  cases.add("zero", [](const Tensor& x) { return x.clone().zero_() + x; });
  cases.add("copy", [](const Tensor& x) { return at::zeros_like(x).copy_(x * 2); });
  const auto follow = [&cases](const char* op, Tensor (*make)(const Tensor&, std::int64_t)) {
    cases.add(op,
              [make](const Tensor& x) {
                return at::cat({x, make(x, x.size(0))}, 1);
              })
        .options.follow_batch = true;
  };
  follow("new_zeros", [](const Tensor& x, std::int64_t n) { return x.new_zeros({n, 1, 4}); });
  follow("new_ones", [](const Tensor& x, std::int64_t n) { return x.new_ones({n, 1, 4}); });
  follow("new_full", [](const Tensor& x, std::int64_t n) { return x.new_full({n, 1, 4}, 3.5); });
  follow("new_empty", [](const Tensor& x, std::int64_t n) {
    return x.new_empty({n, 1, 4}).fill_(1);
  });
  follow("empty", [](const Tensor&, std::int64_t n) { return at::empty({n, 1, 4}).fill_(1); });
}

void add_upsampling(CaseList& cases) {
  const auto factor = [](double each, std::size_t count) {
    return std::vector<double>(count, each);
  };
  const auto resize = [&cases](const char* op, auto mode, std::vector<std::int64_t> sizes,
                               std::vector<double> factors, std::optional<bool> corners) {
    auto options = F::InterpolateFuncOptions().mode(mode).scale_factor(factors);
    if (corners) options.align_corners(*corners);
    return &cases.add(op, [options](const Tensor& x) { return F::interpolate(x, options); },
                      {floats(std::move(sizes))});
  };
  resize("upsample_nearest1d", torch::kNearest, {3, 5}, factor(2, 1), {});
  resize("upsample_nearest2d", torch::kNearest, {3, 5, 4}, factor(2, 2), {});
  resize("upsample_nearest2d", torch::kNearest, {3, 5, 7}, factor(1.7, 2), {});
  resize("upsample_nearest3d", torch::kNearest, {2, 3, 4, 3}, factor(2, 3), {});
  resize("_upsample_nearest_exact1d", torch::kNearestExact, {3, 5}, factor(2, 1), {});
  resize("_upsample_nearest_exact2d", torch::kNearestExact, {3, 5, 4}, factor(3, 2), {});
  resize("_upsample_nearest_exact3d", torch::kNearestExact, {2, 3, 4, 3}, factor(2, 3), {});
  resize("upsample_linear1d", torch::kLinear, {3, 5}, factor(2, 1), false);
  resize("upsample_bilinear2d", torch::kBilinear, {3, 5, 4}, factor(2, 2), false);
  resize("upsample_bilinear2d", torch::kBilinear, {3, 5, 4}, factor(2, 2), true);
  resize("upsample_bicubic2d", torch::kBicubic, {3, 5, 4}, factor(2, 2), false);
  resize("upsample_trilinear3d", torch::kTrilinear, {2, 3, 4, 3}, factor(2, 3), false);
  cases.add("upsample_bilinear2d",
            [](const Tensor& x) {
              return at::upsample_bilinear2d(x, {1, 3}, false);
            },
            {floats({3, 5, 4})});
  cases
      .add("_upsample_bilinear2d_aa",
           [](const Tensor& x) {
             return at::_upsample_bilinear2d_aa(x, {4, 3}, false);
           },
           {floats({3, 8, 6})})
      .first_opset = 18;
  cases
      .add("_upsample_bicubic2d_aa",
           [](const Tensor& x) {
             return at::_upsample_bicubic2d_aa(x, {4, 3}, false);
           },
           {floats({3, 8, 6})})
      .first_opset = 18;
}

void add_recurrent(CaseList& cases) {
  cases.add_net("lstm", nn::LSTM(nn::LSTMOptions(3, 4).batch_first(true)), floats({5, 3}));
  cases.add_net("lstm",
                nn::LSTM(nn::LSTMOptions(3, 4).num_layers(2).bidirectional(true).batch_first(true)),
                floats({5, 3}));
  cases
      .add_net("lstm", nn::LSTM(nn::LSTMOptions(3, 4).bias(false)),
               [](std::int64_t batch) {
                 return torch::randn({5, batch, 3});
               })
      .options.batch_dimensions = {1};
  cases.add_net("gru", nn::GRU(nn::GRUOptions(3, 4).num_layers(2).batch_first(true)),
                floats({5, 3}));
  cases.add_net("gru", nn::GRU(nn::GRUOptions(3, 4).bidirectional(true).batch_first(true)),
                floats({5, 3}));
  cases.add_net("rnn_tanh", nn::RNN(nn::RNNOptions(3, 4).batch_first(true)), floats({5, 3}));
  cases.add_net(
      "rnn_relu",
      nn::RNN(
          nn::RNNOptions(3, 4).nonlinearity(torch::kReLU).bidirectional(true).batch_first(true)),
      floats({5, 3}));
}

}  // namespace

std::vector<ExportCase> operator_cases() {
  torch::manual_seed(1);
  CaseList cases;
  add_elementwise(cases);
  add_arithmetic(cases);
  add_comparisons(cases);
  add_activations(cases);
  add_convolutions(cases);
  add_pooling(cases);
  add_normalisations(cases);
  add_matrices(cases);
  add_shapes(cases);
  add_padding(cases);
  add_indexing(cases);
  add_reductions(cases);
  add_creation(cases);
  add_upsampling(cases);
  add_recurrent(cases);
  return cases.take();
}

}  // namespace lockstep::testing_support
