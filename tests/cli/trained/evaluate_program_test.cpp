// `lockstep evaluate` for a program that computes its own loss.
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <lockstep/formats/safetensors.h>
#include <tests/cli/trained/trained_nets.h>
#include <tests/program/pt2_bytes.h>
#include <tests/support/data_bytes.h>

namespace lockstep::testing_support {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

// The net of pt2_entries(), which returns the mean of its result as the loss.
std::string net_with_loss() {
  ArchiveEntries entries = pt2_entries();
  json model = small_model();
  json& module = model["graph_module"];
  json mean =
      call("torch.ops.aten.mean.default", {tensor_argument("add")}, {tensor_argument("loss")});
  mean["inputs"][0]["name"] = "self";
  module["graph"]["nodes"].push_back(mean);
  module["graph"]["tensor_values"]["loss"] = tensor_meta({});
  module["graph"]["outputs"][0] = tensor_argument("loss");
  module["signature"]["output_specs"][0] = {{"user_output", {{"arg", tensor_argument("loss")}}}};
  entry(entries, "net/models/model.json") = model.dump();
  for (const char* name : {"weights/weight_0", "weights/weight_1", "constants/tensor_0"}) {
    const std::vector<float> numbers = {1, 2, 3};
    const auto* bytes = reinterpret_cast<const char*>(numbers.data());
    entry(entries, std::string("net/data/") + name).assign(bytes, numbers.size() * sizeof(float));
  }
  return zip_of(entries);
}

class EvaluateProgram : public TrainedNets {
 protected:
  void write_samples(const std::string& name, std::int64_t count) const {
    std::vector<float> numbers(static_cast<std::size_t>(3 * count));
    for (std::size_t i = 0; i < numbers.size(); ++i) numbers[i] = static_cast<float>(i % 17);
    const std::string bytes(reinterpret_cast<const char*>(numbers.data()),
                            numbers.size() * sizeof(float));
    scratch.write(name, serialize_safetensors({{"x", {"F32", {count, 3}, as_bytes(bytes)}}}));
  }
  // Trains on 16 of 20 samples, in batches of 4.
  void train_program() const {
    scratch.write("net.pt2", net_with_loss());
    write_samples("x.safetensors", 20);
    train_net("program", {"--program", in_scratch("net.pt2"), "--data", in_scratch("x.safetensors"),
                          "--batch-size", "4", "--lr", "0.1"});
  }
  json evaluated(const Words& more = {}) const {
    const ProgramResult result = use("evaluate", joined({"--json", in_scratch("e.json")}, more));
    EXPECT_EQ(result.exit_code, 0) << result.err;
    return read_json("e.json");
  }
};

TEST_F(EvaluateProgram, ComputesTheLossThatTheTrainingComputed) {
  train_program();
  const ProgramResult result = use("evaluate", {"--json", in_scratch("e.json")});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(result.lines_beside_notes(), 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("/step-00000004 (epoch 1, step 4)\nprogram: x.safetensors, "
                                    "validation: 4 samples, loss "));
  const json validation = read_json("e.json");
  EXPECT_EQ(validation["loss"], read_json("run.json")["validation"]["loss"]);
  EXPECT_EQ(validation["samples"], 4);
  EXPECT_EQ(validation["split"], "validation");
  EXPECT_EQ(validation["recipe"], "program");
  EXPECT_EQ(validation["recipe_options"]["program"], in_scratch("net.pt2"));
  const json train = evaluated({"--split", "train"});
  EXPECT_EQ(train["samples"], 16);
  const json all = evaluated({"--data", in_scratch("x.safetensors")});
  EXPECT_EQ(all["samples"], 20);
  EXPECT_EQ(all["split"], "all");
  EXPECT_NEAR(all["loss"].get<double>(),
              0.8 * train["loss"].get<double>() + 0.2 * validation["loss"].get<double>(), 1e-5);
  EXPECT_NE(train["loss"], validation["loss"]);
}

TEST_F(EvaluateProgram, TakesTheOwnPartsOfAFolder) {
  train_program();
  write_samples("parts/train.safetensors", 12);
  write_samples("parts/val.safetensors", 8);
  EXPECT_EQ(evaluated({"--data", in_scratch("parts")})["samples"], 8);
  EXPECT_EQ(evaluated({"--data", in_scratch("parts"), "--split", "train"})["samples"], 12);
  expect_one_error(use("evaluate", {"--data", in_scratch("parts"), "--split", "all"}), 2,
                   "which are not taken together; give the path of one of them", "all");
}

TEST_F(EvaluateProgram, RefusesWhatALossCannotGive) {
  train_program();
  const std::string reason =
      " has no effect on recipe program, whose model returns one loss for a batch; remove ";
  for (const auto& [option, value] :
       {std::pair{"--worst", "3"}, std::pair{"--csv", "e.csv"}, std::pair{"--sheet", "e.png"}}) {
    const std::string word = option == std::string("--worst") ? value : in_scratch(value);
    expect_one_error(use("evaluate", {option, word}), 2, option + reason + option, option);
  }
  expect_one_error(use("evaluate", {"--image-size", "64"}), 2,
                   "--image-size has no effect on recipe program", "a size");
  write_samples("x.safetensors", 21);
  expect_one_error(use("evaluate", {}), 1,
                   "do not have the names, types and shapes of the run's, so the samples that the "
                   "network was trained on cannot be identified",
                   "other samples");
  write_colours(scratch, "photos", 2, 1);
  expect_one_error(use("predict", {in_scratch("photos")}), 2,
                   "whose model returns a loss and no predictions; `lockstep evaluate` computes",
                   "predict");
}

}  // namespace
}  // namespace lockstep::testing_support
