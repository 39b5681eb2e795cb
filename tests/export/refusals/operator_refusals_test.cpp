// Operators without a lowering, and arguments for which an operator has none, must be rejected with
// their location.
#include <cmath>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <torch/csrc/jit/frontend/tracer.h>

#include <lockstep/export/onnx_export.h>
#include <tests/export/refusals/user_net.h>

namespace lockstep {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using testing_support::UserNetImpl;
using torch::Tensor;

class OperatorRefusals : public testing_support::OnnxRefusals {};

TEST_F(OperatorRefusals, OverloadsWithOtherArguments) {
  EXPECT_THAT(
      refusal([](UserNetImpl& net, const Tensor& x) { return net.fc(x.flatten(1)).round(2); }),
      AllOf(HasSubstr("aten::round"), HasSubstr("its form decimals")));
  EXPECT_THAT(refusal([](UserNetImpl& net, const Tensor& x) {
                return net.fc(x.flatten(1)).norm(2, torch::kDouble);
              }),
              AllOf(HasSubstr("aten::norm"), HasSubstr("its form ScalarOpt_dtype")));
}

TEST_F(OperatorRefusals, NumbersThatChangeAnOperator) {
  EXPECT_THAT(refusal([](UserNetImpl& net, const Tensor& x) {
                const Tensor y = net.fc(x.flatten(1));
                return at::add(y > 0, y > 1, 0);
              }),
              AllOf(HasSubstr("aten::add"), HasSubstr("booleans times false")));
  EXPECT_THAT(refusal([](UserNetImpl& net, const Tensor& x) {
                return at::hardtanh(net.fc(x.flatten(1)), std::nan(""), 1);
              }),
              AllOf(HasSubstr("aten::hardtanh"), HasSubstr("a limit that is not a number")));
}

// onnxruntime computes these in float64, and a product along the batch has no other form.
TEST_F(OperatorRefusals, SumsAndProductsOfWholeNumbersInFloat64) {
  struct Case {
    std::function<Tensor(const Tensor& y)> code;
    const char* message;
  };
  const std::vector<Case> cases = {
      {[](const Tensor& y) { return at::einsum("bi->b", {y}); }, "a sum of whole numbers"},
      {[](const Tensor& y) { return at::einsum("bi, bj -> bi", {y, y}); },
       "a sum of whole numbers"},
      {[](const Tensor& y) { return at::einsum("ii", {y.t().mm(y)}); }, "a sum of whole numbers"},
      {[](const Tensor& y) { return at::einsum("bi,k", {y, y[0]}); }, "nothing was refused"},
      {[](const Tensor& y) { return at::einsum("bi,bi->b", {y, y}); }, "nothing was refused"},
      {[](const Tensor& y) { return y.prod(0); }, "a product of whole numbers"},
      {[](const Tensor& y) { return y.prod(1); }, "nothing was refused"}};
  for (std::size_t i = 0; i < cases.size(); ++i) {
    EXPECT_THAT(refusal([&](UserNetImpl& net, const Tensor& x) {
                  return cases[i].code(net.fc(x.flatten(1)).to(torch::kLong));
                }),
                HasSubstr(cases[i].message))
        << i;
    std::filesystem::remove(folder / "net.onnx");
  }
}

TEST_F(OperatorRefusals, IndicesOfWindowsWithWidePadding) {
  EXPECT_THAT(
      refusal([](UserNetImpl&, const Tensor& x) {
        const Tensor image = x.repeat({1, 1, 3, 3});
        return std::get<1>(at::max_pool2d_with_indices(image, 2, 4, 0, 4, /*ceil_mode=*/true));
      }),
      AllOf(HasSubstr("aten::max_pool2d_with_indices"),
            HasSubstr("indices of windows whose padding is as wide as the kernel")));
}

TEST_F(OperatorRefusals, AllOperatorsWithoutALoweringAtOnce) {
  EXPECT_THAT(refusal([](UserNetImpl& net, const Tensor& x) {
                const Tensor y = net.fc(x.digamma().flatten(1));
                return at::polygamma(2, y.digamma());
              }),
              AllOf(HasSubstr("cannot export 2 operators"),
                    HasSubstr("aten::digamma [after conv1 (parameter conv1.weight); after fc "
                              "(parameter fc.weight)]"),
                    HasSubstr("aten::polygamma [after fc (parameter fc.weight)]")));
}

// Operations on parameters alone make a parameter of another form.
TEST_F(OperatorRefusals, AnOperatorWithAParameterOfAnotherForm) {
  EXPECT_THAT(refusal([](UserNetImpl& net, const Tensor& x) {
                const Tensor sizes = net.fc->weight.t().abs().mean(0);
                return at::igamma(net.fc(x.flatten(1)).abs(), sizes);
              }),
              HasSubstr("aten::igamma [after fc (parameter fc.weight)]"));
}

TEST_F(OperatorRefusals, RandomNumbers) {
  EXPECT_THAT(refusal([](UserNetImpl& net, const Tensor& x) {
                return at::dropout(net.fc(x.flatten(1)), 0.5, /*train=*/true);
              }),
              HasSubstr("dropout is on"));
  EXPECT_THAT(refusal([](UserNetImpl& net, const Tensor& x) {
                return net.fc(x.flatten(1)) + torch::rand({3});
              }),
              HasSubstr("aten::rand"));
}

// The statistics of a batch depend on all its samples.
TEST_F(OperatorRefusals, NormalisationByTheBatchItself) {
  EXPECT_THAT(refusal([](UserNetImpl& net, const Tensor& x) {
                return net.fc(at::batch_norm(x, {}, {}, {}, {}, true, 0.1, 1e-5, false).flatten(1));
              }),
              AllOf(HasSubstr("aten::batch_norm"), HasSubstr("own statistics")));
}

// Each of these operators has a lowering, but not for such arguments; `x` is [2, 2, 2, 2].
TEST_F(OperatorRefusals, ArgumentsWithoutALowering) {
  struct Case {
    const char* op;
    const char* reason;
    UserNetImpl::Code code{};
    int opset = 20;
  };
  const Case cases[] = {
      {"aten::rrelu", "the random slope of training cannot be exported",
       [](UserNetImpl&, const Tensor& x) { return at::rrelu(x, 0.1, 0.3, /*training=*/true); }},
      {"aten::avg_pool2d", "ceil_mode together with padding or divisor_override",
       [](UserNetImpl&, const Tensor& x) {
         return at::avg_pool2d(x.repeat({1, 1, 3, 3}), 4, 4, 1, /*ceil_mode=*/true);
       }},
      {"aten::avg_pool2d", "ceil_mode together with padding or divisor_override",
       [](UserNetImpl&, const Tensor& x) {
         return at::avg_pool2d(x.repeat({1, 1, 3, 3}), 4, 4, 0, /*ceil_mode=*/true, true, 3);
       }},
      {"aten::adaptive_max_pool2d", "its indices are used",
       [](UserNetImpl&, const Tensor& x) {
         return std::get<1>(at::adaptive_max_pool2d(x, {1, 1}));
       }},
      {"aten::scatter", "reduce is not lowered; use scatter_add()",
       [](UserNetImpl&, const Tensor& x) {
         const Tensor y = x.flatten(1);
         return at::scatter(y, 1, y.argmax(1, /*keepdim=*/true), y, "add");
       }},
      {"aten::tensor_split", "parts that overlap",
       [](UserNetImpl&, const Tensor& x) { return x.tensor_split(at::IntArrayRef({2, 1}), 3)[2]; }},
      {"aten::col2im", "it needs opset 18 or newer",
       [](UserNetImpl&, const Tensor& x) {
         return at::col2im(x.flatten(2), {2, 2}, {1, 1}, {1, 1}, {0, 0}, {1, 1});
       },
       17},
      {"aten::bitwise_and", "whole numbers need opset 18 or newer",
       [](UserNetImpl&, const Tensor& x) { return x.to(torch::kInt).bitwise_and(3); }, 17},
      {"aten::bitwise_not", "whole numbers need opset 18 or newer",
       [](UserNetImpl&, const Tensor& x) { return x.to(torch::kInt).bitwise_not(); }, 17},
      {"aten::pow", "a power of whole numbers needs a known exponent of at least 1",
       [](UserNetImpl&, const Tensor& x) { return x.to(torch::kInt).pow(0); }},
      {"aten::nan_to_num", "it is lowered for float and double",
       [](UserNetImpl&, const Tensor& x) { return x.to(torch::kHalf).nan_to_num(); }},
      {"aten::pixel_shuffle", "an input of 5 dimensions, expected 3 or 4",
       [](UserNetImpl&, const Tensor& x) {
         return at::pixel_shuffle(x.repeat({1, 2, 1, 1}).unsqueeze(1), 2);
       }},
      {"aten::pixel_unshuffle", "an input of 5 dimensions, expected 3 or 4",
       [](UserNetImpl&, const Tensor& x) { return at::pixel_unshuffle(x.unsqueeze(1), 2); }},
      {"aten::max_pool2d_with_indices", "an input without a batch dimension",
       [](UserNetImpl&, const Tensor& x) {
         return std::get<1>(at::max_pool2d_with_indices(x.flatten(0, 1), 2));
       }},
      {"aten::repeat_interleave", "repeats must be a number",
       [](UserNetImpl&, const Tensor& x) {
         return x.repeat_interleave(torch::tensor({1, 2}), /*dim=*/1);
       }},
      {"aten::scaled_dot_product_attention", "dropout_p must be 0, got 0.5",
       [](UserNetImpl&, const Tensor& x) {
         return at::scaled_dot_product_attention(x, x, x, {}, 0.5);
       }},
      {"aten::scaled_dot_product_attention", "enable_gqa",
       [](UserNetImpl&, const Tensor& x) {
         return at::scaled_dot_product_attention(x, x, x, {}, 0, /*is_causal=*/false, std::nullopt,
                                                 /*enable_gqa=*/true);
       }},
      {"aten::batch_norm", "its running statistics are not buffers",
       [](UserNetImpl&, const Tensor& x) {
         const Tensor mean = x.mean({0, 2, 3});
         return at::batch_norm(x, {}, {}, mean, mean.abs() + 1, false, 0.1, 1e-5, false);
       }}};
  for (const Case& each : cases) {
    EXPECT_THAT(refusal(each.code, {.opset = each.opset}),
                AllOf(HasSubstr(each.op), HasSubstr(each.reason)));
  }
}

// An exported program notes the line of Python in the nodes of the trace.
TEST_F(OperatorRefusals, NamesTheNotedLineOfPython) {
  const std::string text = refusal([](UserNetImpl&, const Tensor& x) {
    Tensor y = at::special_bessel_j0(x);
    const auto& state = torch::jit::tracer::getTracingState();
    if (state != nullptr && state->hasValue(y)) {
      const std::string line = "net.py:12: x = f(x)";
      state->getValue(y)->node()->setSourceRange(
          torch::jit::SourceRange(std::make_shared<torch::jit::Source>(line), 0, line.size()));
    }
    return y;
  });
  EXPECT_THAT(text, HasSubstr("aten::special_bessel_j0 [after conv1 (parameter conv1.weight), "
                              "net.py:12: x = f(x)]"));
}

// Arguments next to those have a lowering.
TEST_F(OperatorRefusals, NotTheArgumentsNextToThose) {
  const std::vector<std::pair<UserNetImpl::Code, int>> cases = {
      {[](UserNetImpl&, const Tensor& x) { return at::rrelu(x, 0.1, 0.3); }, 20},
      {[](UserNetImpl&, const Tensor& x) {
         return at::avg_pool2d(x.repeat({1, 1, 3, 3}), 4, 4, 0, /*ceil_mode=*/true);
       },
       20},
      {[](UserNetImpl&, const Tensor& x) {
         return std::get<0>(at::adaptive_max_pool2d(x, {1, 1}));
       },
       20},
      {[](UserNetImpl&, const Tensor& x) {
         return at::col2im(x.flatten(2), {2, 2}, {1, 1}, {1, 1}, {0, 0}, {1, 1});
       },
       18},
      {[](UserNetImpl&, const Tensor& x) { return x.to(torch::kInt).bitwise_and(3); }, 18},
      {[](UserNetImpl&, const Tensor& x) { return x.to(torch::kInt).bitwise_not(); }, 18},
      {[](UserNetImpl&, const Tensor& x) { return x.gt(0.1).bitwise_not(); }, 17},
      {[](UserNetImpl&, const Tensor& x) { return x.to(torch::kInt).pow(1); }, 20}};
  for (std::size_t i = 0; i < cases.size(); ++i) {
    EXPECT_EQ(refusal(cases[i].first, {.opset = cases[i].second}), "nothing was refused") << i;
    std::filesystem::remove(folder / "net.onnx");
  }
}

}  // namespace
}  // namespace lockstep
