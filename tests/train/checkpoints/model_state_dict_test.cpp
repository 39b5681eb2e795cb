// State dicts of our models, compared with those of PyTorch's MNIST example and of torchvision.
#include <fstream>
#include <functional>
#include <sstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <lockstep/core/strings.h>
#include <lockstep/models/autoencoder.h>
#include <lockstep/models/mnist_net.h>
#include <lockstep/models/resnet.h>
#include <lockstep/train/checkpoints/state_dict.h>

namespace lockstep::train {
namespace {

struct GoldenTensor {
  std::string name;
  std::string shape;
  std::string sum;  // "-": not compared
};

std::vector<GoldenTensor> read_golden(const std::string& model) {
  std::ifstream file(LOCKSTEP_GOLDEN_STATE_DICTS);
  std::vector<GoldenTensor> tensors;
  std::string line;
  bool in_model = false;
  while (std::getline(file, line)) {
    if (line.starts_with("# ")) {
      in_model = line.substr(2) == model;
      continue;
    }
    std::istringstream words(line);
    GoldenTensor tensor;
    words >> tensor.name >> tensor.shape >> tensor.sum;
    if (in_model) tensors.push_back(tensor);
  }
  return tensors;
}

std::string shape_text(const torch::Tensor& tensor) {
  return tensor.dim() == 0 ? "scalar" : join(tensor.sizes(), "x");
}

struct Model {
  const char* name;
  std::function<std::shared_ptr<torch::nn::Module>()> make;
};

class StateDictOfModel : public ::testing::TestWithParam<Model> {};

TEST_P(StateDictOfModel, HasTorchvisionsNamesShapesOrderAndInitialValues) {
  torch::manual_seed(0);
  const auto module = GetParam().make();
  const StateDict state = state_dict(*module);
  const auto golden = read_golden(GetParam().name);
  ASSERT_FALSE(golden.empty());
  ASSERT_EQ(state.size(), golden.size());
  for (std::size_t i = 0; i < golden.size(); ++i) {
    EXPECT_EQ(state[i].first, golden[i].name);
    EXPECT_EQ(shape_text(state[i].second), golden[i].shape) << golden[i].name;
    if (golden[i].sum == "-") continue;
    const double sum = state[i].second.to(torch::kFloat64).sum().item<double>();
    EXPECT_NEAR(sum, std::stod(golden[i].sum), 1e-4 + 1e-6 * std::abs(sum)) << golden[i].name;
  }
}

INSTANTIATE_TEST_SUITE_P(Models, StateDictOfModel,
                         ::testing::Values(Model{"mnist", [] { return MnistNet().ptr(); }},
                                           Model{"resnet18", [] { return resnet18().ptr(); }},
                                           Model{"resnet34", [] { return resnet34().ptr(); }},
                                           Model{"resnet50", [] { return resnet50().ptr(); }},
                                           Model{"autoencoder", [] { return Autoencoder().ptr(); }},
                                           Model{"resnet18-cifar",
                                                 [] {
                                                   return resnet18(ResNetStem::kCifar, 10).ptr();
                                                 }}),
                         [](const auto& info) {
                           std::string name = info.param.name;
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

}  // namespace
}  // namespace lockstep::train
