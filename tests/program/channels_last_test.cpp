// Programs in the memory format channels_last.
#include <ATen/Parallel.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include <lockstep/core/error.h>
#include <lockstep/program/program.h>
#include <lockstep/program/split.h>
#include <tests/program/net_file.h>
#include <tests/program/whole_net.h>
#include <tests/support/messages.h>
#include <tests/support/temporary_directory.h>

namespace lockstep {
namespace {

using testing_support::message_of;
using testing_support::NetFile;
using testing_support::WholeNet;
using N = NetFile;
constexpr auto kChannelsLast = torch::MemoryFormat::ChannelsLast;

torch::Tensor random_weight(const std::vector<std::int64_t>& sizes) {
  return torch::randn(sizes).set_requires_grad(true);
}

class ChannelsLastTest : public testing::Test {
 protected:
  ChannelsLastTest() { at::set_num_threads(1); }

  Program load(const NetFile& file, bool channels_last) {
    file.write(path());
    return Program(path(), ProgramOptions{.channels_last = channels_last});
  }
  std::filesystem::path path() const { return folder_ / "net.pt2"; }
  // A convolution of images [N, 3, 6, 6] to [N, 4, 4, 4].
  static std::string convolution(NetFile& file, const std::string& x) {
    torch::manual_seed(5);
    const auto weight = file.parameter("conv.weight", random_weight({4, 3, 3, 3}));
    return file.call("torch.ops.aten.conv2d.default",
                     {{"input", N::tensor(x)}, {"weight", N::tensor(weight)}}, {0, 4, 4, 4});
  }
  static std::string rows(NetFile& file, const std::string& value) {
    return file.call("torch.ops.aten.view.default",
                     {{"self", N::tensor(value)}, {"size", {{"as_ints", {-1, 64}}}}}, {0, 64});
  }
  // Changes its values in place before it views them.
  static NetFile classifier() {
    NetFile file;
    const auto images = convolution(file, file.input("x", {0, 3, 6, 6}));
    const auto active =
        file.call("torch.ops.aten.relu_.default", {{"self", N::tensor(images)}}, {0, 4, 4, 4});
    const auto weight = file.parameter("head.weight", random_weight({5, 64}));
    file.output(file.call("torch.ops.aten.linear.default",
                          {{"input", N::tensor(rows(file, active))}, {"weight", N::tensor(weight)}},
                          {0, 5}),
                "logits");
    file.output(active, "images");
    return file;
  }

  const torch::Tensor x_ = torch::linspace(-1, 1, 2 * 3 * 36).view({2, 3, 6, 6});

 private:
  testing_support::TemporaryDirectory folder_;
};

TEST_F(ChannelsLastTest, ComputesTheSameValues) {
  Program usual = load(classifier(), false), net = load(classifier(), true);
  const auto weights = net->named_parameters();
  EXPECT_TRUE(weights["conv.weight"].is_contiguous(kChannelsLast));
  EXPECT_FALSE(weights["conv.weight"].is_contiguous());
  EXPECT_TRUE(weights["head.weight"].is_contiguous());
  for (const auto& item : usual->named_parameters()) {
    EXPECT_TRUE(torch::equal(weights[item.key()], item.value())) << item.key();
  }
  const ProgramOutput output = net->forward(x_), expected = usual->forward(x_);
  EXPECT_TRUE(output["images"].tensor().is_contiguous(kChannelsLast));
  EXPECT_TRUE(expected["images"].tensor().is_contiguous());
  EXPECT_TRUE(torch::allclose(output["images"].tensor(), expected["images"].tensor(), 1e-5, 1e-6));
  EXPECT_TRUE(torch::allclose(output["logits"].tensor(), expected["logits"].tensor(), 1e-5, 1e-5));
  output["logits"].tensor().square().sum().backward();
  expected["logits"].tensor().square().sum().backward();
  for (const auto& item : usual->named_parameters()) {
    EXPECT_TRUE(torch::allclose(weights[item.key()].grad(), item.value().grad(), 1e-4, 1e-4))
        << item.key();
  }
}

TEST_F(ChannelsLastTest, KeepsItsFormatInCopiesAndStages) {
  const Program net = load(classifier(), true);
  const auto expected = net.ptr()->forward(x_);
  const Program copy(std::dynamic_pointer_cast<ProgramImpl>(net->clone()));
  EXPECT_TRUE(copy->named_parameters()["conv.weight"].is_contiguous(kChannelsLast));
  EXPECT_TRUE(torch::equal(copy.ptr()->forward(x_)["logits"], expected["logits"]));
  std::vector<torch::Tensor> values = {x_};
  for (Program stage : split(net, 2, {.by_time = false})) {
    const ProgramOutput output = stage->forward(values);
    std::vector<torch::Tensor> results;
    each_tensor(output, [&](const torch::Tensor& tensor) { results.push_back(tensor); });
    values = results;
  }
  ASSERT_EQ(values.size(), 2U);
  EXPECT_TRUE(torch::equal(values[0], expected["logits"]));
}

// The copy reads its program from the file again, in the usual format.
TEST_F(ChannelsLastTest, IsKeptInCopiesOfANetThatHoldsTheProgram) {
  classifier().write(path());
  const auto net = std::make_shared<WholeNet>(path());
  net->program->to_channels_last();
  const auto first = std::dynamic_pointer_cast<WholeNet>(net->clone());
  const auto copy = std::dynamic_pointer_cast<WholeNet>(first->clone());
  for (const auto type : {torch::kFloat, torch::kDouble}) {
    net->to(type);
    copy->to(type);
    EXPECT_TRUE(copy->program->named_parameters()["conv.weight"].is_contiguous(kChannelsLast));
    const auto expected = net->program->forward(x_.to(type));
    const auto output = copy->program->forward(x_.to(type));
    EXPECT_TRUE(output["images"].tensor().is_contiguous(kChannelsLast));
    EXPECT_TRUE(torch::equal(output["logits"], expected["logits"]));
  }
  copy->program->forward(x_.to(torch::kDouble))["logits"].tensor().sum().backward();
  EXPECT_TRUE(copy->program->named_parameters()["conv.weight"].grad().defined());
  EXPECT_FALSE(net->program->named_parameters()["conv.weight"].grad().defined());
}

// Attention has values of four dimensions that are no images. A stage gets them as the stage before
// has made them.
TEST_F(ChannelsLastTest, ConvertsInStagesWhatItConvertsInTheWhole) {
  NetFile file;
  const auto images = convolution(file, file.input("x", {0, 3, 6, 6}));
  const auto heads =
      file.call("torch.ops.aten.view.default",
                {{"self", N::tensor(rows(file, images))}, {"size", {{"as_ints", {-1, 2, 4, 8}}}}},
                {0, 2, 4, 8});
  file.output(file.call("torch.ops.aten.neg.default", {{"self", N::tensor(heads)}}, {0, 2, 4, 8}),
              "heads");
  file.output(images, "images");
  const auto expected = load(file, true)->forward(x_);
  EXPECT_TRUE(expected["heads"].tensor().is_contiguous());
  EXPECT_TRUE(expected["images"].tensor().is_contiguous(kChannelsLast));
  for (const bool begins_later : {false, true}) {
    std::vector<torch::Tensor> values = {x_};
    for (Program stage : split(load(file, !begins_later), 4)) {
      if (begins_later) stage->to_channels_last();
      const ProgramOutput output = stage->forward(values);
      values.clear();
      each_tensor(output, [&](const torch::Tensor& tensor) { values.push_back(tensor); });
    }
    ASSERT_EQ(values.size(), 2U);
    const std::string names[] = {"heads", "images"};
    for (std::size_t i = 0; i < 2; ++i) {
      const torch::Tensor wanted = expected[names[i]];
      EXPECT_TRUE(torch::equal(values[i], wanted)) << names[i];
      EXPECT_EQ(values[i].strides(), wanted.strides()) << names[i];
    }
  }
}

TEST_F(ChannelsLastTest, BeginsLater) {
  Program net = load(classifier(), false);
  const torch::Tensor weight = net->named_parameters()["conv.weight"];
  for (int i = 0; i < 2; ++i) {
    net->to_channels_last();
    EXPECT_TRUE(weight.is_contiguous(kChannelsLast)) << "the same tensor";
    EXPECT_TRUE(net->forward(x_)["images"].tensor().is_contiguous(kChannelsLast));
  }
}

// In new memory a change would not reach the image.
TEST_F(ChannelsLastTest, DoesNotReplaceViewsThatAreChangedLater) {
  for (const bool changes_view : {true, false}) {
    NetFile file;
    const auto images = convolution(file, file.input("x", {0, 3, 6, 6}));
    const auto view = rows(file, images);
    file.call("torch.ops.aten.mul_.Tensor",
              {{"self", N::tensor(changes_view ? view : images)}, {"other", N::real(2)}}, {0, 64});
    file.output(images, "images");
    file.output(view, "view");
    EXPECT_TRUE(torch::equal(load(file, false)->forward(x_)["view"].tensor().view({2, 4, 4, 4}),
                             load(file, false)->forward(x_)["images"]));
    EXPECT_THAT(
        message_of<ConfigError>([&] { load(file, true)->forward(x_); }),
        testing::HasSubstr("aten::view at net.py:2: x = call(): view size is not compatible "
                           "with input tensor's size and stride"));
  }
}

TEST_F(ChannelsLastTest, ChangesTheTensorsOfTheCaller) {
  NetFile file;
  const auto x = file.input("x", {0, 3, 6, 6});
  file.call("torch.ops.aten.add_.Tensor", {{"self", N::tensor(x)}, {"other", N::real(1)}},
            {0, 3, 6, 6});
  file.output(convolution(file, x));
  const torch::Tensor images = x_.clone();
  load(file, true)->forward(images);
  EXPECT_TRUE(torch::equal(images, x_ + 1));
}

TEST_F(ChannelsLastTest, RefusesOperatorsThatDependOnStrides) {
  NetFile file;
  const auto images = convolution(file, file.input("x", {0, 3, 6, 6}));
  file.output(file.call("torch.ops.aten.as_strided.default",
                        {{"self", N::tensor(images)},
                         {"size", {{"as_ints", {2, 2}}}},
                         {"stride", {{"as_ints", {2, 1}}}}},
                        {2, 2}));
  load(file, false);
  EXPECT_THAT(
      message_of<ConfigError>([&] { load(file, true); }),
      testing::EndsWith("net.pt2: torch.ops.aten.as_strided.default at net.py:2: x = call() "
                        "depends on the order of elements in memory; load the program "
                        "without channels_last"));
}

}  // namespace
}  // namespace lockstep
