// A fixture that exports a layer followed by a piece of code, and returns why it was refused.
#pragma once

#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <torch/nn/module.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>

#include <lockstep/core/error.h>
#include <lockstep/export/onnx_export.h>
#include <tests/support/temporary_directory.h>

namespace lockstep::testing_support {

using Code = std::function<torch::Tensor(const torch::Tensor& features)>;

class ExportedCode : public ::testing::Test {
 protected:
  // The refusal of a net whose layer is followed by `code`.
  std::string refusal(const Code& code, std::int64_t example_batch,
                      const OnnxExportOptions& options = {}) {
    torch::manual_seed(1);
    torch::nn::Sequential net(torch::nn::Linear(3, 3));
    const OnnxForward forward = [&](const std::vector<torch::Tensor>& x) {
      return std::vector<torch::Tensor>{code(net->forward(x[0]))};
    };
    return refusal_of(*net, forward, {torch::rand({example_batch, 3}) + 0.1}, options);
  }

  std::string refusal_of(torch::nn::Module& net, const OnnxForward& forward,
                         const std::vector<torch::Tensor>& inputs,
                         const OnnxExportOptions& options = {}) {
    const std::filesystem::path path = folder / "net.onnx";
    std::filesystem::remove(path);
    try {
      export_onnx(net, forward, inputs, path, options);
    } catch (const ConfigError& error) {
      EXPECT_FALSE(std::filesystem::exists(path));
      return error.what();
    }
    return "nothing was refused";
  }

  TemporaryDirectory folder;
};

}  // namespace lockstep::testing_support
