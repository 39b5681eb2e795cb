// What export_onnx() refuses before it runs forward(), and of what forward() returns.
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <tests/export/exported_code.h>

namespace lockstep {
namespace {

namespace nn = torch::nn;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using torch::Tensor;
using Tensors = std::vector<Tensor>;

class OnnxChecks : public testing_support::ExportedCode {
 protected:
  // The refusal of a net whose forward() returns `outputs` of its result.
  std::string refusal_of_outputs(const std::function<Tensors(const Tensor& y)>& outputs) {
    nn::Sequential net(nn::Linear(3, 3));
    const OnnxForward forward = [&](const Tensors& x) { return outputs(net->forward(x[0])); };
    return refusal_of(*net, forward, {torch::rand({2, 3})});
  }
};

TEST_F(OnnxChecks, TensorsThatAModelCannotTake) {
  const Tensor plain = torch::ones({2, 3});
  const std::pair<Tensor, const char*> cases[] = {
      {plain.to_sparse(), "of layout Sparse, expected a dense tensor, as to_dense() returns"},
      {plain.to_sparse_csr(),
       "of layout SparseCsr, expected a dense tensor, as to_dense() returns"},
      {torch::ones({2, 3}, torch::kMeta),
       "on the meta device, which holds no values; expected a tensor with values, as on the "
       "processor"},
      {at::quantize_per_tensor(plain, 0.1, 0, at::kQInt8),
       "quantized (QInt8), expected plain numbers, as dequantize() returns"},
      {at::_nested_tensor_from_tensor_list({plain[0], plain[1]}),
       "a nested tensor, expected a dense one, as to_padded_tensor() returns"},
      {plain.to(at::kFloat8_e5m2),
       "of type Float8_e5m2, which ONNX export does not know; expected float32, float64, float16, "
       "bfloat16, bool, uint8, or int8 to int64"},
      {at::complex(plain, plain),
       "of type ComplexFloat, which ONNX export does not know; expected float32, float64, float16, "
       "bfloat16, bool, uint8, or int8 to int64"}};
  nn::Sequential net(nn::Linear(3, 3));
  const OnnxForward forward = [&](const Tensors& x) { return Tensors{net->forward(x[0])}; };
  for (const auto& [tensor, found] : cases) {
    EXPECT_EQ(refusal_of(*net, forward, {tensor}), std::string("export_onnx: input 0 is ") + found);
    EXPECT_EQ(refusal_of(*net, forward, {plain, tensor}),
              std::string("export_onnx: input 1 is ") + found);
  }
}

TEST_F(OnnxChecks, ParametersWithoutValues) {
  nn::Sequential net(nn::Linear(3, 3));
  net->register_parameter("scale", torch::ones({3}, torch::kMeta));
  const OnnxForward forward = [&](const Tensors& x) { return Tensors{net->forward(x[0])}; };
  EXPECT_THAT(refusal_of(*net, forward, {torch::ones({2, 3})}),
              HasSubstr("export_onnx: parameter or buffer scale is on the meta device"));
}

TEST_F(OnnxChecks, OutputsThatAModelCannotReturn) {
  EXPECT_EQ(refusal_of_outputs([](const Tensor&) { return Tensors{}; }),
            "export_onnx: forward() returns no tensor; a model needs an output");
  EXPECT_EQ(refusal_of_outputs([](const Tensor& y) { return Tensors{y, Tensor()}; }),
            "export_onnx: output 1 is undefined; forward() must not return it");
  EXPECT_EQ(refusal_of_outputs([](const Tensor&) { return Tensors{Tensor()}; }),
            "export_onnx: output 0 is undefined; forward() must not return it");
  EXPECT_THAT(refusal_of_outputs([](const Tensor& y) { return Tensors{at::complex(y, y)}; }),
              HasSubstr("export_onnx: output 0 is of type ComplexFloat"));
  EXPECT_EQ(refusal_of_outputs([](const Tensor& y) { return Tensors{y}; }), "nothing was refused");
}

TEST_F(OnnxChecks, AnExportInsideOfAnother) {
  nn::Sequential net(nn::Linear(3, 3));
  const Tensors example = {torch::rand({2, 3})};
  const OnnxForward plain = [&](const Tensors& x) { return Tensors{net->forward(x[0])}; };
  const OnnxForward nested = [&](const Tensors& x) {
    export_onnx(*net, plain, example, folder / "inner.onnx");
    return plain(x);
  };
  EXPECT_EQ(refusal_of(*net, nested, example),
            "export_onnx: it was called inside of a forward() that is being exported or traced, "
            "and LibTorch traces one at a time; export before or after it");
  EXPECT_EQ(refusal_of(*net, plain, example), "nothing was refused");
}

TEST_F(OnnxChecks, AnEmptyPath) {
  nn::Sequential net(nn::Linear(3, 3));
  std::string message = "nothing was refused";
  try {
    export_onnx(net, {torch::rand({2, 3})}, "");
  } catch (const ConfigError& error) {
    message = error.what();
  }
  EXPECT_EQ(message, "export_onnx: the path of the model is empty");
}

// An option that is set is no advice.
TEST_F(OnnxChecks, AdviseOnlyOptionsThatAreNotSet) {
  const testing_support::Code code = [](const Tensor& y) {
    return y + torch::ones({y.size(0) * y.size(0), 1}).sum();
  };
  EXPECT_THAT(refusal(code, 2),
              AllOf(HasSubstr("aten::ones with 4"), HasSubstr("or set follow_batch, or export")));
  EXPECT_THAT(refusal(code, 2, {.follow_batch = true}),
              AllOf(HasSubstr("aten::ones with 4"), Not(HasSubstr("follow_batch")),
                    HasSubstr("or export with dynamic_batch = false")));
}

// Results are as small as the numbers that the code writes over them.
TEST_F(OnnxChecks, WritesToSmallResults) {
  for (const float scale : {1e-5F, 1e-20F, 1e5F}) {
    const auto code = [scale](bool writes) -> testing_support::Code {
      return [=](const Tensor& y) {
        const Tensor small = y * scale;
        if (writes) small.data_ptr<float>()[0] = 7 * scale;
        return small;
      };
    };
    EXPECT_THAT(refusal(code(true), 2, {.allow_reads = true}),
                HasSubstr("output 0 of the recorded operations differs from forward()'s"))
        << scale;
    EXPECT_EQ(refusal(code(false), 2, {.allow_reads = true}), "nothing was refused") << scale;
  }
}

// One huge element, as of a mask, hides no write to the others.
TEST_F(OnnxChecks, WritesBesideHugeResults) {
  const testing_support::Code code = [](const Tensor& y) {
    const Tensor masked = y.masked_fill(torch::arange(3) == 2, -1e9);
    masked.data_ptr<float>()[0] = 7;
    return masked;
  };
  EXPECT_THAT(refusal(code, 2, {.allow_reads = true}),
              HasSubstr("output 0 of the recorded operations differs from forward()'s"));
}

}  // namespace
}  // namespace lockstep
