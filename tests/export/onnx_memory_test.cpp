// Writes to memory that other names share must be refused, and writes that nobody sees must not.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <torch/nn/module.h>
#include <torch/nn/modules/linear.h>

#include <lockstep/export/onnx_export.h>
#include <tests/export/onnx_reader.h>

namespace lockstep {
namespace {

namespace nn = torch::nn;
using ::testing::AllOf;
using ::testing::HasSubstr;
using testing_support::TemporaryDirectory;
using torch::Tensor;

class OnnxMemory : public ::testing::Test {
 protected:
  // Code behind a layer, which may also use the layer's tensors.
  using CodeOfLayer = std::function<Tensor(nn::LinearImpl& layer, const Tensor& y)>;

  std::string refusal(const CodeOfLayer& code, const OnnxExportOptions& options = {}) {
    torch::manual_seed(1);
    nn::Linear layer(3, 3);
    layer->register_buffer("seen", torch::zeros({1}));
    const OnnxForward forward = [&](const std::vector<Tensor>& x) {
      return std::vector<Tensor>{code(*layer, layer->forward(x[0]))};
    };
    try {
      export_onnx(*layer, forward, {torch::rand({2, 3}) + 0.1}, folder / "net.onnx", options);
    } catch (const ConfigError& error) {
      return error.what();
    }
    return "nothing was refused";
  }

  TemporaryDirectory folder;
};

// In eval mode these return their argument itself.
TEST_F(OnnxMemory, SharedByADropoutThatIsOff) {
  const std::vector<std::pair<const char*, Tensor (*)(const Tensor& y)>> cases = {
      {"dropout", [](const Tensor& y) { return at::dropout(y, 0.5, false); }},
      {"feature_dropout", [](const Tensor& y) { return at::feature_dropout(y, 0.5, false); }},
      {"alpha_dropout", [](const Tensor& y) { return at::alpha_dropout(y, 0.5, false); }},
      {"feature_alpha_dropout",
       [](const Tensor& y) { return at::feature_alpha_dropout(y, 0.5, false); }}};
  for (const auto& [name, drop] : cases) {
    EXPECT_THAT(refusal([drop = drop](nn::LinearImpl&, const Tensor& y) {
                  const Tensor view = y.t();
                  const Tensor dropped = drop(y).sigmoid_();
                  return view * 2 + dropped.t();
                }),
                AllOf(HasSubstr("aten::sigmoid_"), HasSubstr("used afterwards by another name")))
        << name;
  }
}

// The windows of unfold() overlap: each shares a column with the next.
TEST_F(OnnxMemory, SharedByOverlappingWindows) {
  EXPECT_THAT(refusal([](nn::LinearImpl&, const Tensor& y) {
                const std::vector<Tensor> windows = y.unfold(1, 2, 1).unbind(1);
                windows[0].sigmoid_();
                return windows[1] * 2;
              }),
              HasSubstr("used afterwards by another name"));
}

TEST_F(OnnxMemory, OfAParameterByAnotherName) {
  EXPECT_THAT(refusal([](nn::LinearImpl& layer, const Tensor& y) {
                layer.weight.view({9}).mul_(1);
                return y * layer.weight.sum();
              }),
              AllOf(HasSubstr("aten::mul_"), HasSubstr("writes to weight")));
}

// All views of the tensor are used before it is overwritten.
TEST_F(OnnxMemory, ThatNobodyReadsAgain) {
  EXPECT_EQ(refusal([](nn::LinearImpl&, const Tensor& y) {
              const Tensor doubled = y.t() * 2;
              y.sigmoid_();
              return doubled.t() + y;
            }),
            "nothing was refused");
}

// The members of the list show the write.
TEST_F(OnnxMemory, WrittenBeforeASplit) {
  EXPECT_THAT(refusal(
                  [](nn::LinearImpl&, const Tensor& y) {
                    Tensor copy = y.clone();
                    copy.data_ptr<float>()[0] += 1;
                    return copy.chunk(3, 1)[0];
                  },
                  {.allow_reads = true}),
              HasSubstr("differs from forward()'s with the example, first in the result of "));
}

// A forward() in place writes to copies of the examples.
TEST_F(OnnxMemory, OfTheExamplesIsNotWritten) {
  nn::Linear layer(3, 3);
  const OnnxForward forward = [&](const std::vector<Tensor>& x) {
    Tensor y = x[0];
    y.mul_(2).relu_();
    return std::vector<Tensor>{layer->forward(y)};
  };
  const Tensor example = torch::randn({2, 3});
  const Tensor before = example.clone();
  export_onnx(*layer, forward, {example}, folder / "net.onnx");
  EXPECT_TRUE(example.equal(before));
}

// The buffer that is returned holds what the last run has written.
TEST_F(OnnxMemory, ThatEveryRunReturnsAndOverwrites) {
  EXPECT_THAT(refusal(
                  [](nn::LinearImpl& layer, const Tensor& y) {
                    Tensor buffer = layer.named_buffers()["seen"];
                    buffer.data_ptr<float>()[0] = y.data_ptr<float>()[0];
                    return buffer;
                  },
                  {.allow_reads = true}),
              HasSubstr("output 0 of the recorded operations differs from forward()'s with other "
                        "values"));
}

}  // namespace
}  // namespace lockstep
