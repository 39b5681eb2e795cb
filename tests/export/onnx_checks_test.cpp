// What export_onnx() refuses before it runs forward(), and of what forward() returns or throws.
#include <exception>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <ATen/autocast_mode.h>
#include <c10/core/InferenceMode.h>
#include <c10/util/Exception.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <torch/nn/modules/batchnorm.h>

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

TEST_F(OnnxChecks, AConstantOutput) {
  EXPECT_THAT(
      refusal_of_outputs([](const Tensor& y) { return Tensors{y, torch::tensor({1.0F, 2.0F})}; }),
      AllOf(HasSubstr("an output is not computed from the inputs or parameters"),
            HasSubstr("register it with register_buffer() and return the buffer")));
}

// LibTorch's text has a backtrace, and says nothing of the inputs.
TEST_F(OnnxChecks, AnErrorOfLibTorchInForward) {
  nn::Sequential net(nn::Linear(3, 3));
  const OnnxForward forward = [&](const Tensors& x) { return Tensors{net->forward(x[0])}; };
  try {
    export_onnx(*net, forward, {torch::rand({2, 4}), torch::ones({2}, torch::kLong)},
                folder / "net.onnx");
    FAIL() << "nothing was refused";
  } catch (const ConfigError& error) {
    EXPECT_STREQ(error.what(),
                 "export_onnx: forward() fails with the example (Float [2, 4], Long [2]) in 0 "
                 "(parameter 0.weight): mat1 and mat2 shapes cannot be multiplied (2x4 and 3x3)");
    EXPECT_THROW(std::rethrow_if_nested(error), c10::Error);
  }
  const testing_support::Code own_check = [](const Tensor& y) {
    TORCH_CHECK(y.dim() == 3, "no sequence");
    return y;
  };
  EXPECT_EQ(refusal(own_check, 2),
            "export_onnx: forward() fails with the example (Float [2, 3]) after 0 (parameter "
            "0.weight): no sequence");
}

// The user has not seen these inputs, and does not know that there are any.
TEST_F(OnnxChecks, AnExceptionForInputsThatTheExportMakes) {
  nn::Sequential net(nn::Linear(3, 3));
  const OnnxForward pairs = [&](const Tensors& x) {
    const Tensor y = net->forward(x[0]);
    if (y.size(0) != 2) throw std::invalid_argument("two samples");
    return Tensors{y};
  };
  try {
    export_onnx(*net, pairs, {torch::rand({2, 3})}, folder / "net.onnx");
    FAIL() << "nothing was refused";
  } catch (const ConfigError& error) {
    EXPECT_STREQ(error.what(),
                 "export_onnx: forward() fails with a batch of 3 (Float [3, 3]) after 0 (parameter "
                 "0.weight): two samples; export with dynamic_batch = false if it takes only some "
                 "batches");
    EXPECT_THROW(std::rethrow_if_nested(error), std::invalid_argument);
  }
  std::optional<double> first;
  const testing_support::Code one_sum = [&](const Tensor& y) {
    const auto sum = y.sum().item<double>();
    if (!first) first = sum;
    if (sum != *first) throw std::invalid_argument("another sum");
    return y;
  };
  EXPECT_EQ(refusal(one_sum, 2),
            "export_onnx: forward() fails with other values (Float [2, 3]) after 0 (parameter "
            "0.weight): another sum; it must accept inputs whose values differ from the example's");
}

class AutocastOnCpu {
 public:
  AutocastOnCpu() {
    at::autocast::set_autocast_enabled(at::kCPU, true);
    at::autocast::increment_nesting();
  }
  ~AutocastOnCpu() {
    if (at::autocast::decrement_nesting() == 0) at::autocast::clear_cache();
    at::autocast::set_autocast_enabled(at::kCPU, false);
  }
  AutocastOnCpu(const AutocastOnCpu&) = delete;
  AutocastOnCpu& operator=(const AutocastOnCpu&) = delete;
};

TEST_F(OnnxChecks, Autocast) {
  nn::Sequential net(nn::Linear(3, 3));
  const Tensors example = {torch::rand({2, 3})};
  const OnnxForward plain = [&](const Tensors& x) { return Tensors{net->forward(x[0])}; };
  const OnnxForward casting = [&](const Tensors& x) {
    const AutocastOnCpu autocast;
    return plain(x);
  };
  const std::string refused =
      "export_onnx: forward() computes under autocast (BFloat16 on cpu), whose casts differ from "
      "run to run; export outside of the autocast scope, and set half for a model that computes in "
      "float16";
  EXPECT_EQ(refusal_of(*net, casting, example), refused);
  {
    const AutocastOnCpu autocast;
    EXPECT_EQ(refusal_of(*net, plain, example), refused);
  }
  EXPECT_EQ(refusal_of(*net, plain, example), "nothing was refused");
}

TEST_F(OnnxChecks, TheCallersInferenceModeChangesNothing) {
  const Tensors example = {torch::rand({2, 3})};
  const auto exported = [&](nn::Sequential& net) {
    const OnnxForward forward = [&](const Tensors& x) { return Tensors{net->forward(x[0])}; };
    EXPECT_EQ(refusal_of(*net, forward, example), "nothing was refused");
    return testing_support::read_text(folder / "net.onnx");
  };
  const auto make = [] { return nn::Sequential(nn::Linear(3, 3), nn::BatchNorm1d(3)); };
  nn::Sequential net = make();
  const std::string expected = exported(net);
  {
    const c10::InferenceMode inference;
    EXPECT_EQ(exported(net), expected);
    EXPECT_TRUE(c10::InferenceMode::is_enabled());
    net = make();  // its tensors have no versions
    EXPECT_NE(exported(net), expected);
  }
  EXPECT_NE(exported(net), expected);
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
