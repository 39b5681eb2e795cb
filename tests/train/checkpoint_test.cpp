#include <lockstep/train/checkpoint.h>

#include <filesystem>
#include <fstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <lockstep/core/error.h>
#include <lockstep/core/file.h>
#include <lockstep/train/state_dict.h>
#include <tests/support/temporary_directory.h>

namespace lockstep {
namespace {

using ::testing::HasSubstr;

struct NetImpl : torch::nn::Module {
  explicit NetImpl(std::int64_t width = 4) {
    linear = register_module("linear", torch::nn::Linear(3, width));
    norm = register_module("norm", torch::nn::BatchNorm1d(width));
  }
  torch::Tensor forward(const torch::Tensor& x) { return norm->forward(linear->forward(x)); }
  torch::nn::Linear linear{nullptr};
  torch::nn::BatchNorm1d norm{nullptr};
};
TORCH_MODULE(Net);

const CheckpointInfo kInfo = {.recipe = "mnist",
                              .epoch = 3,
                              .step = 7,
                              .settings = {{"seed", "18446744073709551615"}, {"lr", "0.1"}}};

void train_a_little(Net& net, Sgd& optimizer) {
  for (int i = 0; i < 3; ++i) {
    optimizer.zero_grad();
    net->forward(torch::randn({8, 3})).square().sum().backward();
    optimizer.step();
  }
}

template <class Error>
std::string message_of(const std::function<void()>& action) {
  try {
    action();
  } catch (const Error& error) {
    return error.what();
  }
  return "nothing was thrown";
}

class Checkpoint : public ::testing::Test {
 protected:
  Checkpoint() : optimizer(*net, {.lr = 0.1, .momentum = 0.9}) {}

  lockstep::testing::TemporaryDirectory directory;
  const std::filesystem::path path = directory.path() / "checkpoint.safetensors";
  Net net;
  Sgd optimizer;
};

TEST_F(Checkpoint, BringsBackEveryBit) {
  train_a_little(net, optimizer);
  save_checkpoint(path, *net, optimizer, kInfo);
  Net other;
  Sgd other_optimizer(*other, {.lr = 0.1, .momentum = 0.9});
  const CheckpointInfo info = load_checkpoint(path, *other, other_optimizer, "mnist");
  EXPECT_EQ(info.recipe, kInfo.recipe);
  EXPECT_EQ(info.epoch, kInfo.epoch);
  EXPECT_EQ(info.step, kInfo.step);
  EXPECT_EQ(info.settings, kInfo.settings);
  const auto expected = state_dict(*net);
  const auto got = state_dict(*other);
  for (std::size_t i = 0; i < expected.size(); ++i) {
    EXPECT_TRUE(got[i].second.equal(expected[i].second)) << got[i].first;
  }
  for (std::size_t i = 0; i < optimizer.momentum().size(); ++i) {
    EXPECT_TRUE(other_optimizer.momentum()[i].second.equal(optimizer.momentum()[i].second)) << i;
  }
}

TEST_F(Checkpoint, KeepsAConvolutionsMemoryFormat) {
  torch::nn::Conv2d conv(3, 4, 3);
  conv->weight.set_data(conv->weight.contiguous(torch::MemoryFormat::ChannelsLast));
  Sgd sgd(*conv, {});
  save_checkpoint(path, *conv, sgd, kInfo);
  torch::nn::Conv2d other(3, 4, 3);
  Sgd other_sgd(*other, {});
  load_checkpoint(path, *other, other_sgd, "");
  EXPECT_TRUE(other->weight.equal(conv->weight));
}

TEST_F(Checkpoint, NamesWhatDoesNotFit) {
  save_checkpoint(path, *net, optimizer, kInfo);
  Net wide(5);
  Sgd wide_optimizer(*wide, {.momentum = 0.9});
  EXPECT_THAT(
      message_of<CheckpointError>([&] { load_checkpoint(path, *wide, wide_optimizer, "mnist"); }),
      HasSubstr("linear.weight has shape [4, 3], the model expects [5, 3]"));
  Sgd no_momentum(*net, {});
  EXPECT_THAT(
      message_of<CheckpointError>([&] { load_checkpoint(path, *net, no_momentum, "mnist"); }),
      HasSubstr("was written by a run with momentum, this run goes without; give the same"));
  torch::nn::Sequential bare{torch::nn::Linear(3, 4)};
  Sgd bare_optimizer(*bare, {.momentum = 0.9});
  EXPECT_THAT(
      message_of<CheckpointError>([&] { load_checkpoint(path, *bare, bare_optimizer, ""); }),
      HasSubstr("0.weight is missing"));
  EXPECT_THAT(
      message_of<CheckpointError>([&] { load_checkpoint(path, *net, optimizer, "cifar10"); }),
      HasSubstr("is of recipe mnist, this run is of cifar10"));
}

TEST_F(Checkpoint, ChangesNothingWhenItDoesNotFit) {
  Net other;
  Sgd other_optimizer(*other, {.momentum = 0.9});
  save_checkpoint(path, *net, optimizer, kInfo);
  const auto before = other->linear->weight.detach().clone();
  EXPECT_THROW(load_checkpoint(path, *other, other_optimizer, "cifar10"), CheckpointError);
  Sgd no_momentum(*other, {});
  EXPECT_THROW(load_checkpoint(path, *other, no_momentum, ""), CheckpointError);
  EXPECT_TRUE(other->linear->weight.equal(before));
}

TEST_F(Checkpoint, SaysThatItHasNoMomentum) {
  Sgd no_momentum(*net, {});
  save_checkpoint(path, *net, no_momentum, kInfo);
  EXPECT_THAT(
      message_of<CheckpointError>([&] { load_checkpoint(path, *net, optimizer, ""); }),
      HasSubstr("was written by a run without momentum, this run goes with; give the same"));
}

TEST_F(Checkpoint, RefusesAPlaceThatNoRunReaches) {
  const std::pair<std::int64_t, std::int64_t> places[] = {
      {0, 0}, {-1, 0}, {std::int64_t{1} << 62, 0}, {1, -1}, {1, std::int64_t{1} << 62}};
  for (const auto& [epoch, step] : places) {
    save_checkpoint(path, *net, optimizer, {.recipe = "mnist", .epoch = epoch, .step = step});
    EXPECT_THAT(message_of<CheckpointError>([&] { load_checkpoint(path, *net, optimizer, ""); }),
                HasSubstr("is no place in a run"))
        << epoch << " " << step;
  }
}

TEST_F(Checkpoint, RefusesAMissingADamagedAndAForeignFile) {
  EXPECT_THAT(message_of<CheckpointError>([&] { load_checkpoint(path, *net, optimizer, ""); }),
              HasSubstr("there is no checkpoint"));
  save_checkpoint(path, *net, optimizer, kInfo);
  std::filesystem::resize_file(path, std::filesystem::file_size(path) - 1);
  EXPECT_THROW(load_checkpoint(path, *net, optimizer, ""), CheckpointError);
  write_file_atomically(path, std::string("\x02\0\0\0\0\0\0\0{}", 10));
  EXPECT_THAT(message_of<CheckpointError>([&] { load_checkpoint(path, *net, optimizer, ""); }),
              HasSubstr("is not a checkpoint of Lockstep"));
}

TEST_F(Checkpoint, SaysWhyItCannotBeWritten) {
  const auto blocked = directory.path() / "file" / "checkpoint.safetensors";
  std::ofstream(directory.path() / "file") << "not a folder";
  EXPECT_THAT(
      message_of<CheckpointError>([&] { save_checkpoint(blocked, *net, optimizer, kInfo); }),
      HasSubstr("cannot write the checkpoint: "));
}

TEST(StateDict, LoadsByNameInAnyOrder) {
  Net net;
  Net other;
  StateDict state = state_dict(*net);
  std::reverse(state.begin(), state.end());
  load_state_dict(*other, state);
  EXPECT_TRUE(other->linear->weight.equal(net->linear->weight));
  state.back().second = torch::zeros({4, 3}, torch::kFloat64);
  EXPECT_THAT(message_of<CheckpointError>([&] { load_state_dict(*other, state); }),
              HasSubstr("linear.weight is Double, the model expects Float"));
}

}  // namespace
}  // namespace lockstep
