// Programs that return their loss, as tasks of the recipe program.
#include <lockstep/recipes/loss_program.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <lockstep/core/error.h>
#include <lockstep/recipes/recipe.h>
#include <tests/program/net_file.h>
#include <tests/support/messages.h>
#include <tests/support/temporary_directory.h>

namespace lockstep::testing_support {
namespace {

using recipes::ImageInput;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// Takes x and y, [N, 3] each, and returns {"scores": [N, 3], "loss": mean((w x - y)^2)}.
NetFile two_inputs() {
  using N = NetFile;
  NetFile file;
  const auto weight = file.parameter("weight", torch::tensor({0.5F, -1.0F, 2.0F}));
  const auto x = file.input("x", {0, 3});
  const auto y = file.input("y", {0, 3});
  const auto scores = file.call("torch.ops.aten.mul.Tensor",
                                {{"self", N::tensor(x)}, {"other", N::tensor(weight)}}, {0, 3});
  const auto difference = file.call("torch.ops.aten.sub.Tensor",
                                    {{"self", N::tensor(scores)}, {"other", N::tensor(y)}}, {0, 3});
  const auto square =
      file.call("torch.ops.aten.square.default", {{"self", N::tensor(difference)}}, {0, 3});
  const auto loss = file.call("torch.ops.aten.mean.default", {{"self", N::tensor(square)}}, {});
  file.output(scores, "scores");
  file.output(loss, "loss");
  return file;
}

// As torch.export writes a model whose arguments x and y were one tensor.
NetFile one_tensor_for_two_inputs() {
  using N = NetFile;
  NetFile file;
  file.input("x", {0, 3});
  const auto y = file.input("y", {0, 3});
  const auto difference = file.call("torch.ops.aten.sub.Tensor",
                                    {{"self", N::tensor(y)}, {"other", N::tensor(y)}}, {0, 3});
  file.output(file.call("torch.ops.aten.mean.default", {{"self", N::tensor(difference)}}, {}));
  return file;
}

class LossProgramTest : public ::testing::Test {
 protected:
  std::string written(const NetFile& file) const {
    const std::string path = (directory_ / "net.pt2").string();
    file.write(path);
    return path;
  }
  std::string refusal(const NetFile& file) const {
    const std::string path = written(file);
    const std::string message = message_of<ConfigError>([&] { recipes::read_loss_program(path); });
    EXPECT_THAT(message, ::testing::StartsWith("recipe program: " + path));
    return message;
  }

  TemporaryDirectory directory_;
};

TEST_F(LossProgramTest, HasAPlaceForEachInput) {
  EXPECT_THAT(refusal(one_tensor_for_two_inputs()),
              HasSubstr(" does not use its input 'x': torch.export confuses arguments that are "
                        "the same tensor, here maybe 'y'; export the model with a tensor of "
                        "its own for each argument (y.clone()), or without the argument 'x'"));
}

TEST_F(LossProgramTest, IsATaskWhoseOutputWeighsEachSampleAlike) {
  const recipes::LossProgram program = recipes::read_loss_program(written(two_inputs()));
  ASSERT_EQ(program.inputs.size(), 2U);
  EXPECT_EQ(program.inputs[1].name, "y");
  const auto task = recipes::make_loss_task(program);
  auto& output_task = dynamic_cast<detail::OutputTaskBase&>(*task);
  torch::manual_seed(1);
  const Tensors inputs = {torch::randn({5, 3}), torch::randn({5, 3})};
  const torch::Tensor weight = task->module().parameters().at(0).detach();
  const torch::Tensor expected = (inputs[0] * weight - inputs[1]).square().mean();
  const torch::Tensor loss = task->training_step(inputs);
  EXPECT_TRUE(torch::allclose(loss, expected));
  EXPECT_EQ(task->batch_size(inputs), 5);
  Metrics metrics;
  task->evaluation_step(inputs, metrics);
  EXPECT_FLOAT_EQ(static_cast<float>(metrics.mean().loss), expected.item<float>());
  EXPECT_EQ(metrics.mean().samples, 5);

  LoadedBatch loaded;
  loaded.store(inputs);
  const detail::OutputBatch batch = output_task.output_batch(loaded);
  EXPECT_EQ(batch.size, 5);
  ASSERT_EQ(batch.inputs.size(), 2U);
  EXPECT_EQ(batch.targets.size(0), 5);
  // The parts of two and three samples together have the loss of the whole batch.
  Tensors outputs;
  for (const auto& [first, count] : {std::pair(0, 2), std::pair(2, 3)}) {
    const Tensors part = {inputs[0].narrow(0, first, count), inputs[1].narrow(0, first, count)};
    outputs.push_back(output_task.output(task->module(), part));
    EXPECT_EQ(outputs.back().sizes(), (std::vector<std::int64_t>{count}));
  }
  const torch::Tensor all = torch::cat(outputs);
  EXPECT_TRUE(torch::allclose(output_task.loss(all, batch.targets), expected));
  Metrics gathered;
  output_task.evaluate(all, batch.targets, gathered);
  EXPECT_NEAR(gathered.mean().loss, expected.item<double>(), 1e-6);
  EXPECT_EQ(gathered.mean().samples, 5);
}

TEST_F(LossProgramTest, HasStagesThatComputeTheSame) {
  const auto task = recipes::make_loss_task(recipes::read_loss_program(written(two_inputs())));
  auto& output_task = dynamic_cast<detail::OutputTaskBase&>(*task);
  const Tensors inputs = {torch::randn({4, 3}), torch::randn({4, 3})};
  const torch::Tensor expected = output_task.output(task->module(), inputs);
  for (const int count : {1, 2}) {
    const auto stages = output_task.stages(count);
    ASSERT_EQ(stages.size(), static_cast<std::size_t>(count));
    Tensors values = inputs;
    for (const auto& stage : stages) values = stage.forward(values);
    ASSERT_EQ(values.size(), 1U);
    EXPECT_TRUE(torch::equal(values[0], expected)) << count;
  }
}

TEST_F(LossProgramTest, MustReturnANumber) {
  using N = NetFile;
  NetFile file;
  const auto x = file.input("x", {0, 3});
  file.output(file.call("torch.ops.aten.relu.default", {{"self", N::tensor(x)}}, {0, 3}));
  EXPECT_THAT(refusal(file), HasSubstr("is float32 [any, 3], expected the loss, a floating-point "
                                       "number: export a model whose output 'loss', or first"));
  NetFile fixed;
  const auto y = fixed.input("y", {4, 3});
  fixed.output(fixed.call("torch.ops.aten.mean.default", {{"self", N::tensor(y)}}, {}));
  EXPECT_THAT(refusal(fixed), HasSubstr(" takes float32 [4, 3] as 'y', whose first dimension must "
                                        "count the samples, in any number; export the model with"));
}

TEST_F(LossProgramTest, GetsTheImagesThatItsInputsName) {
  const recipes::LossProgram program = {
      .path = "net.pt2",
      .inputs = {{.name = "labels", .dtype = "int64", .sizes = {std::nullopt}},
                 {.name = "pixels", .dtype = "float32", .sizes = {std::nullopt, 3, 8, 8}}}};
  const auto parse = [&](const std::string& text) {
    return recipes::parse_image_inputs(program, text);
  };
  const auto refused = [&](const std::string& text) {
    return message_of<ConfigError>([&] { parse(text); });
  };
  EXPECT_THAT(parse("pixels=images,labels=labels"),
              ElementsAre(ImageInput::kLabels, ImageInput::kImages));
  EXPECT_EQ(refused("pixels=images"), "recipe program: the input 'labels' of net.pt2 gets nothing");
  EXPECT_EQ(refused("pixels=images,label=labels"),
            "recipe program: net.pt2 has no input 'label', it takes labels, pixels; did you mean "
            "'labels'?");
  EXPECT_EQ(refused("pixels=images,labels=targets"),
            "recipe program: the input 'labels' gets images or labels, got 'targets'");
  EXPECT_EQ(refused("pixels=images,pixels=labels"),
            "recipe program: the input 'pixels' is named twice");
  EXPECT_EQ(refused("pixels"),
            "recipe program: the inputs are NAME=images,NAME=labels, got 'pixels'");
  EXPECT_EQ(refused("pixels=labels,labels=labels"),
            "recipe program: net.pt2 takes float32 [any, 3, 8, 8] as 'pixels', but labels are "
            "int64 [N]");
}

TEST_F(LossProgramTest, MakesTheRecipe) {
  const std::string path = written(two_inputs());
  EXPECT_EQ(message_of<ConfigError>([] { recipes::chosen_recipe("program", {}); }),
            "recipe program trains the model of a program, got none");
  const recipes::Recipe recipe = recipes::chosen_recipe("program", {.program = path});
  EXPECT_FALSE(recipe.make_task);
  EXPECT_EQ(recipe.make_tensor_task({})->module().parameters().size(), 1U);
  EXPECT_FALSE(recipe.reads_image_folder);
  EXPECT_GT(recipe.max_stages, 1);
  EXPECT_THAT(recipe.choices, ElementsAre(::testing::Pair("program", path)));
  EXPECT_THAT(message_of<ConfigError>([&] {
                recipes::chosen_recipe("program", {.program = path, .inputs = "x=images,y=images"});
              }),
              HasSubstr("takes float32 [any, 3], expected images, float32 [N, 3, H, W]"));
}

}  // namespace
}  // namespace lockstep::testing_support
