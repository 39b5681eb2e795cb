// A net whose export is refused: its user code does what a test wants to be refused.
#pragma once

#include <filesystem>
#include <functional>
#include <string>
#include <utility>

#include <gtest/gtest.h>

#include <torch/nn/module.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/pimpl.h>

#include <lockstep/core/error.h>
#include <lockstep/export/onnx_export.h>
#include <tests/support/temporary_directory.h>

namespace lockstep::testing_support {

/// A convolution conv1 and a layer fc, with user code between and after them.
class UserNetImpl : public torch::nn::Module {
 public:
  using Code = std::function<torch::Tensor(UserNetImpl& net, const torch::Tensor& features)>;

  explicit UserNetImpl(Code code) : code_(std::move(code)) {
    conv1 = register_module("conv1", torch::nn::Conv2d(1, 2, 3));
    fc = register_module("fc", torch::nn::Linear(8, 3));
    scale = register_parameter("scale", torch::ones({1}));
    counter = register_buffer("counter", torch::zeros({1}));
  }
  torch::Tensor forward(const torch::Tensor& x) { return code_(*this, conv1->forward(x)); }

  torch::nn::Conv2d conv1{nullptr};
  torch::nn::Linear fc{nullptr};
  torch::Tensor scale;
  torch::Tensor counter;

 private:
  Code code_;
};
TORCH_MODULE(UserNet);

/// Exports UserNets. Their tests are named after what is refused.
class OnnxRefusals : public ::testing::Test {
 protected:
  /// The message with which the export of a net with `code` is refused, or "nothing was refused".
  std::string refusal(UserNetImpl::Code code, const OnnxExportOptions& options = {}) {
    torch::manual_seed(1);
    UserNet net(std::move(code));
    {
      const torch::NoGradGuard no_grad;
      net->fc->bias.zero_();
      net->conv1->bias.zero_();
    }
    try {
      export_onnx(net, {torch::rand({2, 1, 4, 4}) + 0.1}, folder / "net.onnx", options);
    } catch (const ConfigError& error) {
      EXPECT_FALSE(std::filesystem::exists(folder / "net.onnx"));
      return error.what();
    }
    return "nothing was refused";
  }

  TemporaryDirectory folder;
};

}  // namespace lockstep::testing_support
