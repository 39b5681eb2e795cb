// How the recipe program reads and splits tensors.
#include <lockstep/recipes/tensor_split.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <numeric>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <lockstep/core/error.h>
#include <lockstep/data/samplers/epoch_generator.h>
#include <lockstep/formats/safetensors.h>
#include <tests/support/data_bytes.h>
#include <tests/support/messages.h>
#include <tests/support/temporary_directory.h>

namespace lockstep::testing_support {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;

template <class Number>
std::string_view bytes_of_numbers(const std::vector<Number>& numbers) {
  return {reinterpret_cast<const char*>(numbers.data()), numbers.size() * sizeof(Number)};
}

template <class Number>
TensorView view_of(const char* dtype, std::vector<std::int64_t> shape,
                   const std::vector<Number>& numbers) {
  return {.dtype = dtype, .shape = std::move(shape), .bytes = std::as_bytes(std::span(numbers))};
}

class TensorSplit : public ::testing::Test {
 protected:
  TensorSplit() : ids_(20), labels_(10) {
    std::iota(ids_.begin(), ids_.end(), 0);
    std::iota(labels_.begin(), labels_.end(), 100);
  }

  // 10 samples: ids {2 i, 2 i + 1} and the label 100 + i.
  TensorViews samples() const {
    return {{"ids", view_of("I32", {10, 2}, ids_)}, {"labels", view_of("I64", {10}, labels_)}};
  }
  void write(const std::string& name, const TensorViews& tensors) const {
    directory_.write(name, serialize_safetensors(tensors));
  }
  recipes::RecipeData load(const std::string& name, recipes::RecipeDataOptions options = {}) {
    options.directory = (directory_ / name).string();
    options.message = [this](const std::string& text) { messages_.push_back(text); };
    return recipes::load_tensor_split(options, "net.pt2", inputs_);
  }
  std::string refusal(const std::string& name, const recipes::RecipeDataOptions& options = {}) {
    return message_of<ConfigError>([&] { load(name, options); });
  }
  // Why these tensors are refused, without the names of files.
  std::string refusal(const TensorViews& tensors) {
    write("bad.safetensors", tensors);
    const std::string begin = "program: " + (directory_ / "bad.safetensors").string() + ": ";
    const std::string message = refusal("bad.safetensors");
    EXPECT_THAT(message, StartsWith(begin));
    return message.substr(std::min(begin.size(), message.size()));
  }

  static Tensors batch_of(const BatchDataset<Tensors>& dataset,
                          const std::vector<std::int64_t>& indices) {
    Tensors batch;
    dataset.get({.indices = indices}, batch);
    return batch;
  }
  static std::vector<std::int64_t> labels_in(const BatchDataset<Tensors>& dataset) {
    std::vector<std::int64_t> all(static_cast<std::size_t>(dataset.size()));
    std::iota(all.begin(), all.end(), 0);
    return data::to_indices(batch_of(dataset, all).at(0));
  }

  std::vector<std::int32_t> ids_;
  std::vector<std::int64_t> labels_;
  std::vector<program::TensorSignature> inputs_ = {
      {.name = "labels", .dtype = "int64", .sizes = {std::nullopt}},
      {.name = "ids", .dtype = "int64", .sizes = {std::nullopt, 2}}};
  TemporaryDirectory directory_;
  std::vector<std::string> messages_;
};

TEST_F(TensorSplit, GivesTheRowsInTheOrderOfTheInputs) {
  write("train.safetensors", samples());
  write("val.safetensors", samples());
  const recipes::RecipeData data = load("");
  EXPECT_EQ(data.training_samples(), 10);
  EXPECT_FALSE(data.is_split_at_random);
  EXPECT_FALSE(data.fingerprint.empty());
  const Tensors batch = batch_of(*data.tensors->train, {3, 0, 3});
  ASSERT_EQ(batch.size(), 2U);
  EXPECT_TRUE(torch::equal(batch[0], torch::tensor({103, 100, 103}, torch::kLong)));
  EXPECT_TRUE(torch::equal(batch[1], torch::tensor({{6, 7}, {0, 1}, {6, 7}}, torch::kLong)))
      << "widened";
}

TEST_F(TensorSplit, ReusesTheMemoryOfABatch) {
  write("all.safetensors", samples());
  const recipes::RecipeData data = load("all.safetensors");
  const std::vector<std::int64_t> first = {0, 1}, second = {2, 3};
  Tensors batch;
  data.tensors->train->get({.indices = first}, batch);
  const void* const memory = batch[0].data_ptr();
  const torch::Tensor before = batch[0].clone();
  data.tensors->train->get({.indices = second}, batch);
  EXPECT_EQ(batch[0].data_ptr(), memory);
  EXPECT_FALSE(torch::equal(batch[0], before));
}

TEST_F(TensorSplit, SplitsOneFileByItsSeed) {
  write("all.safetensors", samples());
  const recipes::RecipeData data = load("all.safetensors", {.seed = 3});
  EXPECT_TRUE(data.is_split_at_random);
  EXPECT_EQ(data.description, "all.safetensors");
  EXPECT_THAT(messages_, ElementsAre("split by seed 3: 8 samples to train on, 2 to validate on"));
  // As torch.utils.data.random_split does.
  std::vector<std::int64_t> expected = data::random_permutation(10, 3, 0);
  for (std::int64_t& label : expected) label += 100;
  std::vector<std::int64_t> got = labels_in(*data.tensors->train);
  EXPECT_EQ(got.size(), 8U);
  for (const std::int64_t label : labels_in(*data.tensors->validation)) got.push_back(label);
  EXPECT_EQ(got, expected);

  EXPECT_EQ(load("all.safetensors", {.seed = 3}).fingerprint, data.fingerprint);
  EXPECT_NE(load("all.safetensors", {.seed = 4}).fingerprint, data.fingerprint);
  const recipes::RecipeData half = load("all.safetensors", {.seed = 3, .validation_fraction = 0.5});
  EXPECT_EQ(half.tensors->validation->size(), 5);
  EXPECT_NE(half.fingerprint, data.fingerprint);
}

TEST_F(TensorSplit, ReadsFoldersOfArrays) {
  directory_.write("arrays/ids.npy", npy_array("<i4", "(10, 2)", bytes_of_numbers(ids_)));
  directory_.write("arrays/labels.npy", npy_array("<i8", "(10,)", bytes_of_numbers(labels_)));
  directory_.write("arrays/README.md", "not an array");
  write("all.safetensors", samples());
  const recipes::RecipeData arrays = load("arrays", {.seed = 5});
  const recipes::RecipeData file = load("all.safetensors", {.seed = 5});
  EXPECT_EQ(labels_in(*arrays.tensors->train), labels_in(*file.tensors->train));
  EXPECT_EQ(arrays.fingerprint, file.fingerprint);

  for (const char* part : {"parts/train", "parts/validation", "parts/test"}) {
    std::filesystem::create_directories(directory_ / part);
    std::filesystem::copy(directory_ / "arrays", directory_ / part);
  }
  messages_.clear();
  const recipes::RecipeData parts = load("parts");
  EXPECT_FALSE(parts.is_split_at_random);
  EXPECT_EQ(parts.description, "parts (train, validation)");
  EXPECT_EQ(parts.tensors->validation->size(), 10);
  EXPECT_THAT(messages_, ElementsAre(HasSubstr("those in test are not used")));
  EXPECT_THAT(refusal("parts", {.validation_fraction = 0.5}),
              HasSubstr("has train and validation, which are the split; remove the validation "
                        "fraction"));
}

TEST_F(TensorSplit, RefusesTensorsThatAreNotTheInputs) {
  const std::string taken = "net.pt2 takes labels: int64 [any], ids: int64 [any, 2]";
  TensorViews tensors = samples();
  tensors.erase("ids");
  EXPECT_EQ(refusal(tensors), "lacks the tensor 'ids'; " + taken);
  tensors = samples();
  tensors["mask"] = tensors["labels"];
  EXPECT_EQ(refusal(tensors), "has the tensor 'mask', which is not an input; " + taken);
  tensors = samples();
  const std::vector<std::int32_t> eighteen(18);
  tensors["ids"] = view_of("I32", {9, 2}, eighteen);
  EXPECT_EQ(refusal(tensors),
            "'labels' has 10 samples, but 'ids' has 9; the first dimension counts the samples");
  tensors["ids"] = view_of("I32", {10, 2, 1}, ids_);
  EXPECT_EQ(refusal(tensors),
            "the tensor 'ids' is int32 [10, 2, 1], but net.pt2 takes int64 [any, 2]");
  tensors["ids"] = view_of("I32", {20}, ids_);
  EXPECT_THAT(refusal(tensors), StartsWith("the tensor 'ids' is int32 [20], but"));
  const std::vector<float> floats(20);
  tensors["ids"] = view_of("F32", {10, 2}, floats);
  EXPECT_EQ(refusal(tensors),
            "the tensor 'ids' is float32 [10, 2], but net.pt2 takes int64 [any, 2]; save it in "
            "that type, because only integers are converted");
  const std::vector<std::uint64_t> large(20);
  tensors["ids"] = view_of("U64", {10, 2}, large);
  EXPECT_THAT(refusal(tensors), HasSubstr("is U64 [10, 2], but"));
  EXPECT_EQ(refusal(TensorViews{{"ids", view_of("I32", {0, 2}, std::vector<std::int32_t>())},
                                {"labels", view_of("I64", {0}, std::vector<std::int64_t>())}}),
            "has no samples");
}

// A smaller type would change numbers.
TEST_F(TensorSplit, WidensIntegersOnly) {
  const std::vector<std::uint8_t> bytes(20, 200);
  TensorViews tensors = samples();
  tensors["ids"] = view_of("U8", {10, 2}, bytes);
  write("bytes.safetensors", tensors);
  const recipes::RecipeData data = load("bytes.safetensors");
  EXPECT_EQ(batch_of(*data.tensors->train, {0})[1].sum().item<std::int64_t>(), 400);
  inputs_[1].dtype = "int8";
  EXPECT_THAT(refusal("bytes.safetensors"), HasSubstr("is uint8 [10, 2], but net.pt2 takes int8"));
  inputs_[1].dtype = "float32";
  EXPECT_THAT(refusal("bytes.safetensors"), HasSubstr("only integers are converted"));
}

TEST_F(TensorSplit, SaysWhatDataItNeeds) {
  EXPECT_THAT(message_of<ConfigError>([&] { recipes::load_tensor_split({}, "net.pt2", inputs_); }),
              StartsWith("program: give --data FILE.safetensors, whose tensors have the names"));
  EXPECT_THAT(refusal("nothing"),
              HasSubstr("does not exist; give a .safetensors file, or a folder"));
  directory_.write("empty/notes.txt", "");
  EXPECT_THAT(refusal("empty"), HasSubstr("has no .npy files; give"));
  directory_.write("damaged/ids.npy", "no array");
  EXPECT_THAT(message_of<DataError>([&] { load("damaged"); }),
              HasSubstr("ids.npy: is not a file of numpy.save"));
  directory_.write("text.safetensors", "no tensors at all");
  EXPECT_THAT(message_of<CheckpointError>([&] { load("text.safetensors"); }),
              HasSubstr("text.safetensors: "));
  write("all.safetensors", samples());
  for (const double fraction : {0.0, 0.04, 1.0}) {
    EXPECT_THAT(refusal("all.safetensors", {.validation_fraction = fraction}),
                HasSubstr("each part needs at least 1 sample"));
  }
}

// Reading beyond the end of a mapped file would end the process.
TEST_F(TensorSplit, NoticesAFileThatIsCutShort) {
  write("all.safetensors", samples());
  const recipes::RecipeData data = load("all.safetensors");
  std::filesystem::resize_file(directory_ / "all.safetensors", 100);
  EXPECT_THAT(message_of<DataError>([&] { batch_of(*data.tensors->train, {0}); }),
              HasSubstr("all.safetensors has been cut short"));
}

}  // namespace
}  // namespace lockstep::testing_support
