// Programs in the memory format channels_last.
#include <ATen/Parallel.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include <lockstep/core/error.h>
#include <lockstep/program/program.h>
#include <lockstep/program/split.h>
#include <tests/program/net_file.h>
#include <tests/support/messages.h>
#include <tests/support/temporary_directory.h>

namespace lockstep {
namespace {

using testing_support::message_of;
using testing_support::NetFile;
using N = NetFile;
constexpr auto kChannelsLast = torch::MemoryFormat::ChannelsLast;

torch::Tensor random_weight(const std::vector<std::int64_t>& sizes) {
  return torch::randn(sizes).set_requires_grad(true);
}

class ChannelsLastTest : public testing::Test {
 protected:
  ChannelsLastTest() { at::set_num_threads(1); }

  Program load(const NetFile& file, bool channels_last) {
    file.write(folder_ / "net.pt2");
    return Program(folder_ / "net.pt2", ProgramOptions{.channels_last = channels_last});
  }
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
