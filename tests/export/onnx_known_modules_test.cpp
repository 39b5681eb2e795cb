// Some of LibTorch's own modules read the batch size from their inputs. Their sizes follow the
// batch, and the same numbers elsewhere are refused.
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <torch/nn/functional/padding.h>
#include <torch/nn/module.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/normalization.h>

#include <lockstep/export/onnx_export.h>
#include <tests/export/exported_code.h>
#include <tests/export/onnx_reader.h>

namespace lockstep {
namespace {

namespace nn = torch::nn;
using ::testing::HasSubstr;
using ::testing::Not;
using testing_support::Code;
using torch::Tensor;

class OnnxKnownModules : public testing_support::ExportedCode {};

// LocalResponseNorm views an image as a volume and back, with the batch as a number. Other views
// with it stay refused.
TEST_F(OnnxKnownModules, ViewsOfLocalResponseNormFollowTheBatch) {
  nn::Sequential net(nn::LocalResponseNorm(3));
  const OnnxForward normalized = [&](const std::vector<Tensor>& x) {
    return std::vector<Tensor>{net->forward(x[0])};
  };
  EXPECT_EQ(refusal_of(*net, normalized, {torch::rand({2, 3, 4, 5})}), "nothing was refused");
  EXPECT_EQ(testing_support::read_model(folder / "net.onnx").sizes.at("output"), "batch,3,4,5");
  const auto volume = [](const Tensor& x) { return x.view({x.size(0), 1, 3, 4, 4}); };
  const auto padded = [](const Tensor& x) {
    return nn::functional::pad(x, nn::functional::PadFuncOptions({0, 0, 0, 0, 1, 1}));
  };
  const auto averaged = [](const Tensor& x) { return at::avg_pool3d(x, {3, 1, 1}, 1); };
  const auto flat = [](const Tensor& x) { return x.view({x.size(0), -1}); };
  struct Case {
    const char* name;
    Code code;
    const char* refused;  // null: nothing is refused
  };
  const std::vector<Case> cases = {
      {"to a volume", [=](const Tensor& x) { return averaged(padded(volume(x))); }, nullptr},
      {"without padding", [=](const Tensor& x) { return averaged(volume(x)); },
       "aten::view with 2"},
      {"without an average", [=](const Tensor& x) { return padded(volume(x)).relu(); },
       "aten::view with 2"},
      {"padding as the output", [=](const Tensor& x) { return padded(volume(x)); },
       "aten::view with 2"},
      {"a reshape",
       [=](const Tensor& x) { return averaged(padded(x.reshape({x.size(0), 1, 3, 4, 4}))); },
       "aten::reshape with 2"},
      {"back", [=](const Tensor& x) { return flat(averaged(padded(x.unsqueeze(1))).squeeze(1)); },
       nullptr},
      {"back without padding",
       [=](const Tensor& x) { return flat(averaged(x.unsqueeze(1)).squeeze(1)); },
       "aten::view with 2"},
      {"back from a maximum",
       [=](const Tensor& x) {
         return flat(at::max_pool3d(padded(x.unsqueeze(1)), {3, 1, 1}, 1).squeeze(1));
       },
       "aten::view with 2"},
      {"back without squeeze()",
       [=](const Tensor& x) { return flat(averaged(padded(x.unsqueeze(1))).relu()); },
       "aten::view with 2"},
      {"back by a reshape",
       [=](const Tensor& x) {
         return averaged(padded(x.unsqueeze(1))).squeeze(1).reshape({x.size(0), -1});
       },
       "aten::reshape with 2"}};
  for (const Case& each : cases) {
    nn::Sequential empty;
    const OnnxForward forward = [&](const std::vector<Tensor>& x) {
      return std::vector<Tensor>{each.code(x[0])};
    };
    const std::string message = refusal_of(*empty, forward, {torch::rand({2, 3, 4, 4})});
    if (each.refused == nullptr) {
      EXPECT_EQ(message, "nothing was refused") << each.name;
    } else {
      EXPECT_THAT(message, HasSubstr(std::string("that a trace cannot follow: ") + each.refused))
          << each.name;
    }
  }
}

// Attention is known by its parameters: one projection of the inputs, or several, and one of the
// output.
TEST_F(OnnxKnownModules, SizesBesideParametersOfAttentionFollowTheBatch) {
  // The refusal of `code` behind a product with the parameter `weight` of a module that may have an
  // out_proj. The module is the exported one, or its child "block".
  const auto message = [&](const char* weight, bool has_output, bool is_child, const Code& code) {
    const auto net = std::make_shared<nn::Module>();
    const auto block =
        is_child ? net->register_module("block", std::make_shared<nn::Module>()) : net;
    const Tensor factor = block->register_parameter(weight, torch::rand({3, 3}));
    if (has_output) block->register_module("out_proj", nn::Linear(3, 3));
    const OnnxForward forward = [&](const std::vector<Tensor>& x) {
      return std::vector<Tensor>{code(at::linear(x[0], factor))};
    };
    return refusal_of(*net, forward, {torch::rand({2, 3})});
  };
  const Code view = [](const Tensor& y) { return y.view({y.size(0), 3, 1}); };
  const auto baked = HasSubstr("bakes the batch into constants");
  for (const bool is_child : {false, true}) {
    EXPECT_EQ(message("in_proj_weight", true, is_child, view), "nothing was refused");
    EXPECT_EQ(message("q_proj_weight", true, is_child, view), "nothing was refused");
    EXPECT_THAT(message("k_proj_weight", true, is_child, view), baked);
    EXPECT_THAT(message("in_proj_weight", false, is_child, view), baked);
    EXPECT_THAT(message("q_proj_weight", false, is_child, view), baked);
  }
  const std::vector<Code> sizes = {
      [](const Tensor& y) { return y.reshape({y.size(0), 3, 1}); },
      [](const Tensor& y) { return y.unflatten(0, {y.size(0), 1}); },
      [](const Tensor& y) { return y.unsqueeze(1).expand({y.size(0), 2, 3}); },
      [](const Tensor& y) { return torch::ones({1, 3}).repeat({y.size(0), 1}) + y; },
      [](const Tensor& y) { return torch::zeros({y.size(0), 3}) + y; }};
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    EXPECT_THAT(message("in_proj_weight", true, false, sizes[i]), Not(baked)) << i;
  }
  const std::vector<Code> numbers = {
      [](const Tensor& y) { return y.mul(y.size(0)); },
      [](const Tensor& y) { return torch::ones({y.size(0), 3}) + y; },
      [](const Tensor& y) { return y.narrow(0, 0, y.size(0)); }};
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    EXPECT_THAT(message("in_proj_weight", true, false, numbers[i]), baked) << i;
  }
}

// The first state of a cell is known by the weights that it is multiplied with.
TEST_F(OnnxKnownModules, ZerosTimesTheWeightsOfAStateFollowTheBatch) {
  using Step = std::function<Tensor(const Tensor& x, const Tensor& weight)>;
  const auto message = [&](const char* name, bool is_child, const Step& step) {
    const auto net = std::make_shared<nn::Module>();
    const auto cell = is_child ? net->register_module("cell", std::make_shared<nn::Module>()) : net;
    const Tensor weight = cell->register_parameter(name, torch::rand({3, 3}));
    const OnnxForward forward = [&](const std::vector<Tensor>& x) {
      return std::vector<Tensor>{step(x[0], weight)};
    };
    return refusal_of(*net, forward, {torch::rand({2, 3})});
  };
  const Step product = [](const Tensor& x, const Tensor& weight) {
    return x + at::linear(torch::zeros({x.size(0), 3}), weight);
  };
  for (const bool is_child : {false, true}) {
    EXPECT_EQ(message("weight_hh", is_child, product), "nothing was refused");
    EXPECT_THAT(message("weight_ih", is_child, product), HasSubstr("aten::zeros with 2"));
    EXPECT_THAT(message("weight_hh_2", is_child, product), HasSubstr("aten::zeros with 2"));
  }
  const Step second_use = [](const Tensor& x, const Tensor& weight) {
    const Tensor state = torch::zeros({x.size(0), 3});
    return state * x + at::linear(state, weight);
  };
  EXPECT_EQ(message("weight_hh", false, second_use), "nothing was refused");
  const Step sum = [](const Tensor& x, const Tensor& weight) {
    return torch::zeros({x.size(0), 3}) + at::linear(x, weight);
  };
  EXPECT_THAT(message("weight_hh", false, sum), HasSubstr("aten::zeros with 2"));
  const Step ones = [](const Tensor& x, const Tensor& weight) {
    return x + at::linear(torch::ones({x.size(0), 3}), weight);
  };
  EXPECT_THAT(message("weight_hh", false, ones), HasSubstr("aten::ones with 2"));
}

}  // namespace
}  // namespace lockstep
