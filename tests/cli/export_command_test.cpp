// `lockstep export` as its users see it.
#include <fstream>
#include <iterator>
#include <map>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <lockstep/formats/safetensors.h>
#include <lockstep/formats/torch_file.h>
#include <tests/cli/forked_program.h>
#include <tests/cli/train_command.h>
#include <tests/export/onnx_reader.h>

namespace lockstep::testing_support {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

class ExportCommand : public TrainCommand {
 protected:
  ProgramResult export_to(const std::string& name, std::vector<std::string> more = {}) const {
    std::vector<std::string> words = {LOCKSTEP_PROGRAM, "export",
                                      in_scratch("run/checkpoint.safetensors"), "--onnx",
                                      in_scratch(name)};
    words.insert(words.end(), more.begin(), more.end());
    return run_forked(words);
  }
  void train_two_steps() const {
    const ProgramResult trained =
        train({"mnist", "--max-steps", "2", "--batch-size", "16", "--limit-test-batches", "0",
               "--threads", "1", "--out", in_scratch("run")});
    ASSERT_EQ(trained.exit_code, 0) << trained.err;
  }
};

TEST_F(ExportCommand, WritesTheNetOfACheckpoint) {
  train_two_steps();
  const ProgramResult dynamic = export_to("net.onnx", {"--dynamic-batch"});
  EXPECT_EQ(dynamic.exit_code, 0) << dynamic.err;
  EXPECT_THAT(dynamic.out, HasSubstr("11 nodes, opset 20, input [batch, 1, 28, 28]"));
  const ReadModel model = read_model(scratch / "net.onnx");
  EXPECT_EQ(model.sizes.at("input"), "batch,1,28,28");
  EXPECT_EQ(model.sizes.at("output"), "batch,10");
  EXPECT_TRUE(model.initializers.contains("conv1.weight"));
  const std::map<std::string, std::string> notes = {
      {"classes", R"(["0","1","2","3","4","5","6","7","8","9"])"},
      {"input", "[1,28,28]"},
      {"mean", "[0.1307]"},
      {"std", "[0.3081]"},
      {"preparation", "Normalize(mean 0.1307, std 0.3081)"},
      {"recipe", "mnist"}};
  for (const auto& [name, text] : notes) EXPECT_EQ(model.metadata.at(name), text) << name;
  EXPECT_EQ(model.metadata.size(), notes.size() + 1) << "and that of LibTorch, but no paths";

  const ProgramResult fixed =
      export_to("fixed.onnx", {"--batch-size", "3", "--opset", "17", "--half"});
  EXPECT_EQ(fixed.exit_code, 0) << fixed.err;
  const ReadModel other = read_model(scratch / "fixed.onnx");
  EXPECT_EQ(other.sizes.at("input"), "3,1,28,28");
  EXPECT_EQ(other.opset, 17);
  constexpr std::int32_t kFloat16 = 10;
  EXPECT_EQ(other.initializers.at("conv1.weight"), kFloat16);
}

// The exported weights are those that the run evaluated.
TEST_F(ExportCommand, TakesTheAverageOfTheWeights) {
  const ProgramResult trained =
      train({"mnist", "--max-steps", "3", "--batch-size", "16", "--limit-val-batches", "0",
             "--threads", "1", "--ema-decay", "0.5", "--out", in_scratch("run")});
  ASSERT_EQ(trained.exit_code, 0) << trained.err;
  const ProgramResult averaged = export_to("averaged.onnx");
  EXPECT_THAT(averaged.out, HasSubstr("averaged weights")) << averaged.err;
  for (const char* folder : {"run", "run/checkpoints/latest"}) {
    const ProgramResult of_folder = run_forked(
        {LOCKSTEP_PROGRAM, "export", in_scratch(folder), "--onnx", in_scratch("same.onnx")});
    EXPECT_THAT(of_folder.out, HasSubstr("averaged weights")) << folder << of_folder.err;
  }
  const ProgramResult last = export_to("last.onnx", {"--no-average"});
  EXPECT_THAT(last.out, Not(HasSubstr("averaged weights"))) << last.err;

  const auto content_of = [&](const char* name) {
    std::ifstream file(scratch / name, std::ios::binary);
    return std::string(std::istreambuf_iterator<char>(file), {});
  };
  EXPECT_NE(content_of("averaged.onnx"), content_of("last.onnx"));
}

TEST_F(ExportCommand, SaysInOneLineWhatIsWrong) {
  expect_one_error(export_to("net.onnx"), 2,
                   "checkpoint.safetensors does not exist; give the folder", "no such file");
  train_two_steps();
  struct Case {
    std::vector<std::string> arguments;
    const char* text;
  };
  const Case cases[] = {
      {{"--opset", "16"}, "opset must be from 17 to 20, got 16"},
      {{"--recipe", "nosuch"}, "recipe must be one of mnist, cifar10"},
      {{"--batch-size", "0"}, "--batch-size must be at least 1, got 0"},
      {{"--batch-size", "2", "--dynamic-batch"}, "--dynamic-batch"},
  };
  for (const Case& each : cases) {
    expect_one_error(export_to("net.onnx", each.arguments), 2, each.text, each.text);
  }
  std::filesystem::create_directory(scratch / "empty");
  const Case places[] = {
      {{in_scratch("empty")}, "empty holds no checkpoint; give the folder"},
      {{in_scratch("empty/best")}, "empty/best does not exist; give the folder"},
      {{in_scratch("run/best")}, "run/best does not exist: the run kept no best checkpoint"}};
  for (const Case& each : places) {
    expect_one_error(run_forked({LOCKSTEP_PROGRAM, "export", each.arguments[0], "--onnx",
                                 in_scratch("net.onnx")}),
                     2, each.text, each.text);
  }
  EXPECT_FALSE(std::filesystem::exists(scratch / "net.onnx"));
}

// The weights come from another program, which records no recipe.
TEST_F(ExportCommand, AsksForTheRecipeOfWeightsFromElsewhere) {
  const std::pair<const char*, std::string> files[] = {
      {"weights.pth", serialize_torch_file({})},
      {"weights.safetensors", serialize_safetensors({})}};
  for (const auto& [name, content] : files) {
    scratch.write(name, content);
    const std::string text = in_scratch(name) + " names no recipe; give --recipe";
    expect_one_error(
        run_forked({LOCKSTEP_PROGRAM, "export", in_scratch(name), "--onnx", in_scratch("x.onnx")}),
        2, text, text);
  }
}

// What the user chooses takes precedence over what the checkpoint says of its recipe.
TEST_F(ExportCommand, TakesTheChoicesOfTheUserAndThenOfTheCheckpoint) {
  scratch.write("elsewhere.safetensors", serialize_safetensors({}));
  scratch.write("mnist.safetensors",
                serialize_safetensors({}, {{"recipe", "mnist"}, {"recipe.image_size", "31"}}));
  struct Case {
    const char* weights;
    std::vector<std::string> arguments;
    const char* text;
  };
  const Case cases[] = {
      {"elsewhere",
       {"--recipe", "mnist", "--image-size", "30"},
       "recipe mnist takes images of 28x28 pixels only; got 30 for their size"},
      {"elsewhere",
       {"--recipe", "mnist", "--model", "big"},
       "recipe mnist has one model, which it trains; got 'big' for its model"},
      {"mnist", {}, "recipe mnist takes images of 28x28 pixels only; got 31 for their size"},
      {"mnist",
       {"--image-size", "30"},
       "recipe mnist takes images of 28x28 pixels only; got 30 for their size"},
      {"mnist",
       {"--recipe", "cifar10", "--image-size", "29"},
       "recipe cifar10 takes images of 32x32 pixels only; got 29 for their size"},
      {"elsewhere", {"--image-size", "x"}, "--image-size: must be a whole number, got 'x'"}};
  for (const Case& each : cases) {
    std::vector<std::string> words = {LOCKSTEP_PROGRAM, "export",
                                      in_scratch(std::string(each.weights) + ".safetensors"),
                                      "--onnx", in_scratch("x.onnx")};
    words.insert(words.end(), each.arguments.begin(), each.arguments.end());
    expect_one_error(run_forked(words), 2, each.text, each.text);
  }
}

}  // namespace
}  // namespace lockstep::testing_support
