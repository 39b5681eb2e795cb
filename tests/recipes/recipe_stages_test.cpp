// The recipes' models in stages, as strategies pipeline and hybrid train them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include <ATen/Parallel.h>

#include <lockstep/core/error.h>
#include <lockstep/core/strings.h>
#include <lockstep/parallel/pipeline/pipeline.h>
#include <lockstep/parallel/pipeline/schedule/check.h>
#include <lockstep/recipes/recipe.h>
#include <tests/support/messages.h>

namespace lockstep::recipes {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsSupersetOf;
using ::testing::Not;
using testing_support::message_of;

OutputTask& output_task(Task& task) { return dynamic_cast<OutputTask&>(task); }

std::vector<Recipe> staged_recipes() {
  std::vector<Recipe> staged;
  for (const Recipe& recipe : all_recipes()) {
    if (recipe.max_stages > 0) staged.push_back(recipe);
  }
  return staged;
}

std::vector<std::string> staged_names() {
  std::vector<std::string> names;
  for (const Recipe& recipe : staged_recipes()) names.push_back(recipe.name);
  return names;
}

TEST(RecipeStages, AreThereForTheseModels) {
  EXPECT_THAT(staged_names(), IsSupersetOf({"mnist", "cifar10", "classify", "resnet50-split"}));
}

TEST(RecipeStages, HaveAllParametersOfTheModel) {
  for (const Recipe& recipe : staged_recipes()) {
    const auto task = recipe.make_task({.num_classes = 10});
    OutputTask& whole = output_task(*task);
    const std::size_t expected = whole.module().parameters().size();
    ASSERT_GT(recipe.max_stages, 1) << recipe.name;
    for (int count = 1; count <= recipe.max_stages; ++count) {
      const auto stages = whole.stages(count);
      EXPECT_EQ(stages.size(), static_cast<std::size_t>(count)) << recipe.name;
      std::size_t parameters = 0;
      for (const auto& stage : stages) parameters += stage.module().parameters().size();
      EXPECT_EQ(parameters, expected) << recipe.name << " in " << count;
    }
    EXPECT_THROW(whole.stages(recipe.max_stages + 1), ConfigError) << recipe.name;
  }
}

torch::Tensor images_for(const Recipe& recipe) {
  return recipe.input.channels == 1 ? torch::randn({4, 1, 28, 28}) : torch::randn({4, 3, 32, 32});
}

// In eval mode nothing is random, and no statistics depend on the size of a micro-batch.
TEST(RecipeStages, GiveTheGradientsOfTheWholeModel) {
  at::set_num_threads(1);
  torch::manual_seed(2);
  for (const Recipe& recipe : staged_recipes()) {
    const auto task = recipe.make_task({.num_classes = 10});
    OutputTask& whole = output_task(*task);
    torch::nn::Module& module = whole.module();
    const torch::Tensor images = images_for(recipe), labels = torch::randint(10, {4}, torch::kLong);
    module.eval();
    whole.loss(whole.forward(module, images), labels).backward();
    Tensors expected;
    for (const torch::Tensor& parameter : module.parameters()) {
      expected.push_back(parameter.grad().clone());
    }
    module.zero_grad();

    // The schedule splits every backward that can be split.
    Pipeline pipe(whole.stages(2), std::vector<torch::Device>(2, torch::kCPU),
                  {.micro_batches = 2, .schedule = Schedule::kZbH1});
    pipe.eval();
    pipe.step([&](const torch::Tensor& output,
                  const torch::Tensor& target) { return whole.loss(output, target); },
              images, labels);
    const Tensors got = module.parameters();
    for (std::size_t i = 0; i < expected.size(); ++i) {
      ASSERT_TRUE(got[i].grad().defined()) << recipe.name << ' ' << i;
      const double norm = expected[i].norm().item<double>();
      // Rounding may move an activation near zero to the other side of a ReLU, which changes
      // gradients by up to a hundredth. A micro-batch that is left out changes them by a half.
      EXPECT_LE((got[i].grad() - expected[i]).norm().item<double>(), 2e-2 * norm + 1e-6)
          << recipe.name << ' ' << i;
    }
  }
}

// Our kernel computes all gradients of a convolution at once. Schedules that split backwards
// therefore leave these whole, and predict less memory.
TEST(RecipeStages, OfMnistHaveWholeBackwardsWithOurKernel) {
  const Recipe& mnist = find_recipe("mnist");
  const auto table_with = [&](bool fused_kernels) {
    const auto task = mnist.make_task({.fused_kernels = fused_kernels, .num_classes = 10});
    const Pipeline pipe(output_task(*task).stages(2), std::vector<torch::Device>(2, torch::kCPU),
                        {.micro_batches = 4, .schedule = Schedule::kZbH1});
    return pipe.table();
  };
  const pipeline::Table whole = table_with(true), split = table_with(false);
  EXPECT_THAT(csv(whole), AllOf(HasSubstr("1F0,1B0,"), Not(HasSubstr("0I")), Not(HasSubstr("1W"))));
  EXPECT_THAT(csv(split), AllOf(HasSubstr("0I0,0W0,"), HasSubstr("1W3")));
  EXPECT_THAT(check(whole).peak_activations, ElementsAre(2, 1));
  EXPECT_THAT(check(split).peak_activations, ElementsAre(2, 2));
}

TEST(RecipeStages, AreRefusedByNameWhereThereAreNone) {
  const Recipe whole = {.name = "whole"};
  EXPECT_THAT(message_of<ConfigError>([&] { require_stages(whole, 2); }),
              HasSubstr("recipe whole: the model cannot be cut into stages; recipes whose model "
                        "can: " +
                        join(staged_names())));
  const Recipe& mnist = find_recipe("mnist");
  for (const int wrong : {0, 5}) {
    EXPECT_THAT(message_of<ConfigError>([&] { require_stages(mnist, wrong); }),
                HasSubstr("recipe mnist: the number of stages must be from 1 to 4, got "));
  }
  require_stages(mnist, 4);
}

}  // namespace
}  // namespace lockstep::recipes
