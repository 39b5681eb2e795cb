// The code of docs/onnx.md, which tools/check_documentation.py compares with these lines.
#include <filesystem>

#include <gtest/gtest.h>

#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/linear.h>

#include <lockstep/export/onnx_export.h>
#include <tests/export/onnx_reader.h>

namespace lockstep {
namespace {

TEST(OnnxGuide, CodeDoesWhatItSays) {
  const testing_support::TemporaryDirectory folder;
  const auto before = std::filesystem::current_path();
  std::filesystem::current_path(folder.path());
  torch::nn::Sequential layers(torch::nn::Conv2d(3, 4, 3), torch::nn::ReLU(), torch::nn::Flatten());
  auto net = layers;
  net->eval();
  export_onnx(net, {torch::randn({1, 3, 32, 32})}, "net.onnx");
  EXPECT_EQ(testing_support::read_model("net.onnx").operators.size(), 3U);

  const OnnxForward forward = [&](const std::vector<torch::Tensor>& x) {
    return std::vector<torch::Tensor>{net->forward(x[0]).softmax(1)};
  };
  export_onnx(*net, forward, {torch::randn({1, 3, 32, 32})}, "net.onnx",
              {.input_names = {"image"}, .output_names = {"probability"}});
  const auto model = testing_support::read_model("net.onnx");
  EXPECT_EQ(model.operators.back(), "Softmax");
  EXPECT_EQ(model.inputs, std::vector<std::string>{"image"});
  EXPECT_EQ(model.outputs, std::vector<std::string>{"probability"});
  std::filesystem::current_path(before);
}

}  // namespace
}  // namespace lockstep
