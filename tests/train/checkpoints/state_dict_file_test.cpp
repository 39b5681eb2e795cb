#include <lockstep/train/checkpoints/state_dict_file.h>

#include <cstring>
#include <filesystem>
#include <functional>
#include <iostream>
#include <memory>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>

#include <lockstep/core/error.h>
#include <lockstep/formats/safetensors.h>
#include <lockstep/models/mnist_net.h>
#include <lockstep/models/resnet.h>
#include <lockstep/train/checkpoints/checkpoint.h>
#include <lockstep/train/checkpoints/pretrained.h>
#include <lockstep/train/checkpoints/tensor_types.h>
#include <tests/support/captured_log.h>
#include <tests/support/temporary_directory.h>

namespace lockstep::train {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::string checkpoint_message(const std::function<void()>& action) {
  try {
    action();
  } catch (const CheckpointError& error) {
    return error.what();
  }
  return "nothing was thrown";
}

bool same_bits(const torch::Tensor& a, const torch::Tensor& b) {
  return a.scalar_type() == b.scalar_type() && a.sizes() == b.sizes() &&
         a.contiguous()
             .view({-1})
             .view(torch::kUInt8)
             .equal(b.contiguous().view({-1}).view(torch::kUInt8));
}

class StateDictFile : public ::testing::Test {
 protected:
  std::filesystem::path path(const std::string& name) const { return directory.path() / name; }

  lockstep::testing_support::TemporaryDirectory directory;
};

TEST_F(StateDictFile, BringsBackEveryTypeAndEveryBit) {
  StateDict state;
  for (const char* dtype : {"F32", "F64", "F16", "BF16", "F8_E5M2", "F8_E4M3", "I64", "I32", "I16",
                            "I8", "U64", "U32", "U16", "U8", "BOOL"}) {
    const torch::Tensor bits =
        torch::randint(0, std::string(dtype) == "BOOL" ? 2 : 256, {48}, torch::kUInt8);
    state.emplace_back(dtype, bits.view(scalar_type_of(dtype).value()));
  }
  save_torch_file(path("x.pt"), state);
  const StateDict loaded = load_state_dict_file(path("x.pt"));
  ASSERT_EQ(loaded.size(), state.size());
  for (std::size_t i = 0; i < state.size(); ++i) {
    EXPECT_EQ(loaded[i].first, state[i].first);
    EXPECT_TRUE(same_bits(loaded[i].second, state[i].second)) << state[i].first;
  }
}

TEST_F(StateDictFile, KeepsViewsAndWhatIsShared) {
  const torch::Tensor base = torch::arange(24.0).view({4, 6});
  const torch::Tensor alone = torch::randn({1000, 1000});
  save_torch_file(path("x.pt"), {{"base", base},
                                 {"columns", base.t().slice(0, 1, 5, 2)},
                                 {"alone", alone.select(0, 7)},
                                 {"scalar", torch::tensor(2.5)},
                                 {"nothing", torch::empty({0, 3})}});
  EXPECT_LT(std::filesystem::file_size(path("x.pt")),
            10'000U);  // without the rest of the viewed storage
  const StateDict loaded = load_state_dict_file(path("x.pt"));
  EXPECT_TRUE(loaded[0].second.equal(base));
  EXPECT_TRUE(loaded[1].second.equal(base.t().slice(0, 1, 5, 2)));
  EXPECT_EQ(loaded[1].second.strides(), base.t().slice(0, 1, 5, 2).strides());
  EXPECT_TRUE(loaded[1].second.is_alias_of(loaded[0].second));
  EXPECT_TRUE(loaded[2].second.equal(alone.select(0, 7)));
  EXPECT_TRUE(loaded[3].second.equal(torch::tensor(2.5)));
  EXPECT_EQ(loaded[4].second.sizes(), (std::vector<std::int64_t>{0, 3}));
  loaded[0].second.fill_(1);  // its own memory, not the file's
  EXPECT_TRUE(load_state_dict_file(path("x.pt"))[0].second.equal(base));
}

// The memory of a lazy negative holds the values with the other sign.
TEST_F(StateDictFile, SavesTheValuesOfLazyNegatives) {
  const torch::Tensor base = torch::arange(6.0).view({2, 3});
  const torch::Tensor minus = at::_neg_view(base);
  ASSERT_TRUE(minus.is_neg());
  save_torch_file(path("x.pt"), {{"base", base},
                                 {"minus", minus},
                                 {"alone", at::_neg_view(torch::ones({2}))},
                                 {"row", minus.select(0, 1)}});
  const StateDict loaded = load_state_dict_file(path("x.pt"));
  EXPECT_TRUE(loaded[0].second.equal(base));
  EXPECT_TRUE(loaded[1].second.equal(base * -1));
  EXPECT_TRUE(loaded[2].second.equal(torch::ones({2}) * -1));
  EXPECT_TRUE(loaded[3].second.equal(base.select(0, 1) * -1));
}

TEST_F(StateDictFile, LoadsIntoTheModuleThatItCameFrom) {
  ResNet net = resnet18(ResNetStem::kCifar, 10);
  save_torch_file(path("net.pt"), state_dict(*net));
  ResNet other = resnet18(ResNetStem::kCifar, 10);
  load_state_dict(*other, load_state_dict_file(path("net.pt")));
  const StateDict expected = state_dict(*net);
  const StateDict got = state_dict(*other);
  for (std::size_t i = 0; i < expected.size(); ++i) {
    EXPECT_TRUE(same_bits(got[i].second, expected[i].second)) << expected[i].first;
  }
}

TEST_F(StateDictFile, TellsFormatsByTheirContentAndTakesAPrefix) {
  MnistNet net;
  save_checkpoint(path("checkpoint.pt"), *net, {{"momentum_buffer.fc1.bias", torch::ones({50})}},
                  {.recipe = "mnist"});  // safetensors, despite its name
  EXPECT_EQ(load_state_dict_file(path("checkpoint.pt")).size(), 9U);
  const StateDict momentum =
      load_state_dict_file(path("checkpoint.pt"), "optimizer.momentum_buffer.");
  ASSERT_EQ(momentum.size(), 1U);
  EXPECT_EQ(momentum[0].first, "fc1.bias");
  EXPECT_TRUE(momentum[0].second.equal(torch::ones({50})));
  EXPECT_EQ(checkpoint_message([&] { load_state_dict_file(path("checkpoint.pt"), "model."); }),
            path("checkpoint.pt").string() +
                ": no name of a tensor begins with 'model.'; the file begins with 'conv1.bias'");
}

TEST_F(StateDictFile, WarnsOfAFileWithoutChecksums) {
  lockstep::testing_support::CapturedLog log;
  directory.write("plain.safetensors", std::string("\x2\0\0\0\0\0\0\0{}", 10));
  EXPECT_TRUE(load_state_dict_file(path("plain.safetensors")).empty());
  EXPECT_THAT(join(log.lines()), HasSubstr("plain.safetensors has no checksums"));
  EXPECT_EQ(checkpoint_message([&] { load_state_dict_file(path("plain.safetensors"), "model."); }),
            path("plain.safetensors").string() +
                ": no name of a tensor begins with 'model.'; the file begins with no tensor");
}

TEST_F(StateDictFile, SaysWhatCannotBeReadOrWritten) {
  EXPECT_THROW(load_state_dict_file(path("missing.pt")), DataError);
  directory.write("page.pt", "<html>not found</html>");
  EXPECT_THAT(checkpoint_message([&] { load_state_dict_file(path("page.pt")); }),
              HasSubstr("page.pt: "));
  const torch::Tensor values = torch::ones({2});
  const std::pair<StateDict, const char*> cases[] = {
      {{{"a", values}, {"a", values}}, "cannot write two tensors called 'a'"},
      {{{"a", values.to(torch::kComplexFloat)}},
       "cannot save tensor 'a': it is of type ComplexFloat, which Lockstep's .pt files lack"},
      {{{"a", values.to_sparse()}},
       "cannot save tensor 'a': it is SparseCPUFloatType, expected a dense tensor with values"},
      {{{"b", values.to(torch::kMeta)}}, ", expected a dense tensor with values"},
      {{{"a", torch::Tensor()}}, "cannot save tensor 'a': it is undefined"},
      {{{"a", values}, {"b", values.view(torch::kInt32)}},
       "'b' of type I32: it shares its memory with 'a'"},
  };
  for (const auto& [state, message] : cases) {
    EXPECT_THAT(checkpoint_message([&, &state = state] { save_torch_file(path("x.pt"), state); }),
                HasSubstr(message));
  }
  EXPECT_THAT(checkpoint_message([&] { save_torch_file(path("none") / "x.pt", {{"a", values}}); }),
              HasSubstr("cannot write the tensors"));
  EXPECT_THAT(directory.names(), ElementsAre("page.pt"));
}

// The code of docs/checkpoints.md.
TEST_F(StateDictFile, DoesWhatTheGuideShows) {
  const auto before = std::filesystem::current_path();
  std::filesystem::current_path(directory.path());
  save_torch_file("resnet18.pth", state_dict(*resnet18()));
  {
    ResNet net = resnet18();
    load_state_dict(*net, load_state_dict_file("resnet18.pth"));  // the names are torchvision's
    save_torch_file("net.pt", state_dict(*net));  // for torch.load("net.pt", weights_only=True)
  }
  {
    ResNet net = resnet18(ResNetStem::kImageNet, 6);
    const PretrainedWeights loaded =
        load_pretrained(*net, load_state_dict_file("resnet18.pth"), "resnet18.pth");
    std::cout << loaded.summary() << '\n';
    EXPECT_EQ(loaded.summary(),
              "fc has 6 outputs here and 1000 in resnet18.pth: fc.weight, fc.bias keep their "
              "initial values");
  }
  EXPECT_EQ(lockstep::testing_support::read_text("net.pt"),
            lockstep::testing_support::read_text("resnet18.pth"));
  std::filesystem::current_path(before);
}

class Pretrained : public ::testing::Test {
 protected:
  // Weights that differ from those of any newly created net.
  static StateDict trained(torch::nn::Module& net) {
    StateDict state;
    for (const auto& [name, tensor] : state_dict(net))
      state.emplace_back(name, tensor.clone().fill_(3));
    return state;
  }
};

TEST_F(Pretrained, LoadsEverythingWhereTheClassesAreTheSame) {
  ResNet net = resnet18(ResNetStem::kCifar, 10);
  const PretrainedWeights loaded = load_pretrained(*net, trained(*net), "x.pth");
  EXPECT_EQ(loaded.last_layer, "fc");
  EXPECT_TRUE(loaded.initial.empty());
  EXPECT_EQ(loaded.summary(), "");
  for (const auto& [name, tensor] : state_dict(*net))
    EXPECT_TRUE(tensor.eq(3).all().item<bool>()) << name;
}

TEST_F(Pretrained, KeepsTheLastLayerOfAnotherNumberOfClasses) {
  ResNet other = resnet18(ResNetStem::kCifar, 1000);
  ResNet net = resnet18(ResNetStem::kCifar, 6);
  const torch::Tensor weight = state_dict(*net)[120].second.clone();
  const PretrainedWeights loaded = load_pretrained(*net, trained(*other), "x.pth");
  EXPECT_EQ(loaded.outputs, 6);
  EXPECT_EQ(loaded.outputs_in_file, 1000);
  EXPECT_THAT(loaded.initial, ElementsAre("fc.weight", "fc.bias"));
  EXPECT_EQ(
      loaded.summary(),
      "fc has 6 outputs here and 1000 in x.pth: fc.weight, fc.bias keep their initial values");
  const StateDict state = state_dict(*net);
  ASSERT_EQ(state[120].first, "fc.weight");
  EXPECT_TRUE(state[120].second.equal(weight));
  EXPECT_TRUE(state[0].second.eq(3).all().item<bool>());
}

TEST_F(Pretrained, SaysThatASingleTensorKeepsItsValue) {
  const auto make = [](std::int64_t outputs) {
    return torch::nn::Sequential(
        torch::nn::Linear(torch::nn::LinearOptions(3, outputs).bias(false)));
  };
  torch::nn::Sequential net = make(1), other = make(5);
  EXPECT_EQ(load_pretrained(*net, trained(*other), "x.pth").summary(),
            "0 has 1 output here and 5 in x.pth: 0.weight keeps its initial value");
}

// A tensor without dimensions has no number of outputs that could differ.
TEST_F(Pretrained, TakesALastLayerWithATensorWithoutDimensions) {
  const auto make = [](std::int64_t outputs) {
    const auto net = std::make_shared<torch::nn::Module>("Net");
    const auto head = net->register_module("head", std::make_shared<torch::nn::Module>("Head"));
    head->register_parameter("scale", torch::ones({}));
    head->register_parameter("weight", torch::zeros({outputs, 3}));
    return net;
  };
  const auto net = make(2);
  const PretrainedWeights loaded = load_pretrained(*net, trained(*make(2)), "x.pth");
  EXPECT_EQ(loaded.last_layer, "head");
  EXPECT_EQ(loaded.summary(), "");
  for (const auto& [name, tensor] : state_dict(*net)) {
    EXPECT_TRUE(tensor.eq(3).all().item<bool>()) << name;
  }
  EXPECT_EQ(checkpoint_message([&] { load_pretrained(*net, trained(*make(5)), "x.pth"); }),
            "x.pth: head.weight has shape [5, 3], the model expects [2, 3]");
}

TEST_F(Pretrained, TakesOldStateDictsWithoutCountersOfBatches) {
  ResNet net = resnet18(ResNetStem::kCifar, 10);
  StateDict old = trained(*net);
  std::erase_if(old,
                [](const auto& entry) { return entry.first.ends_with("num_batches_tracked"); });
  const PretrainedWeights loaded = load_pretrained(*net, old, "x.pth");
  EXPECT_EQ(loaded.initial.size(), 20U);
  EXPECT_THAT(loaded.summary(), ::testing::StartsWith("not in x.pth: bn1.num_batches_tracked, "));
}

TEST_F(Pretrained, RefusesOtherNetsAndChangesNothing) {
  ResNet net = resnet18(ResNetStem::kCifar, 10);
  const torch::Tensor before = state_dict(*net)[0].second.clone();
  ResNet wide = resnet50(ResNetStem::kCifar, 6);
  EXPECT_THAT(checkpoint_message([&] { load_pretrained(*net, trained(*wide), "x.pth"); }),
              ::testing::StartsWith("x.pth: layer1.0.conv1.weight has shape"));
  StateDict state = trained(*net);
  state.pop_back();
  EXPECT_EQ(checkpoint_message([&] { load_pretrained(*net, state, "x.pth"); }),
            "x.pth: fc.bias is missing");
  state.emplace_back("fc.bias", torch::ones({10}));
  state.emplace_back("head.bias", torch::ones({10}));
  EXPECT_EQ(checkpoint_message([&] { load_pretrained(*net, state, "x.pth"); }),
            "x.pth: head.bias is not in the model");
  EXPECT_TRUE(state_dict(*net)[0].second.equal(before));
}

}  // namespace
}  // namespace lockstep::train
