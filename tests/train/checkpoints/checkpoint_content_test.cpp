#include <lockstep/train/checkpoints/checkpoint_content.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <torch/types.h>

#include <lockstep/core/error.h>
#include <lockstep/core/strings.h>
#include <lockstep/formats/safetensors.h>
#include <lockstep/train/checkpoints/checkpoint_folder.h>
#include <lockstep/train/checkpoints/tensor_types.h>
#include <tests/support/messages.h>

namespace lockstep::train {
namespace {

constexpr double kInfinite = std::numeric_limits<double>::infinity();
constexpr double kNotANumber = std::numeric_limits<double>::quiet_NaN();
// One more than the elements that are looked at, or copied, at once.
constexpr std::int64_t kPieceElements = 1 << 14;

torch::Tensor ones_with(const std::vector<std::int64_t>& sizes, std::int64_t at, double value,
                        torch::ScalarType type = torch::kFloat32) {
  torch::Tensor tensor = torch::ones(sizes, type);
  tensor.view({-1})[at] = value;
  return tensor;
}

bool all_finite(const StateDict& state, const std::set<std::string>& may_be_infinite = {}) {
  return FileTensors(state).all_finite(may_be_infinite);
}

TEST(AllFinite, LooksAtEachPieceOfALargeTensor) {
  const std::vector<std::vector<std::int64_t>> shapes = {{2},
                                                         {kPieceElements},
                                                         {kPieceElements + 1},
                                                         {3 * kPieceElements},
                                                         {1, kPieceElements + 3},
                                                         {3, kPieceElements + 1},
                                                         {5, kPieceElements / 2},
                                                         {2, 3, kPieceElements - 1}};
  for (const std::vector<std::int64_t>& shape : shapes) {
    const std::int64_t count = torch::ones(shape).numel();
    EXPECT_TRUE(all_finite({{"a", torch::ones(shape)}})) << torch::IntArrayRef(shape);
    for (const std::int64_t at : {std::int64_t{0}, count / 2, count - 1}) {
      for (const double value : {kNotANumber, kInfinite, -kInfinite}) {
        EXPECT_FALSE(all_finite({{"a", ones_with(shape, at, value)}}))
            << torch::IntArrayRef(shape) << " has " << value << " at " << at;
      }
    }
  }
}

TEST(AllFinite, LooksAtEachTensor) {
  const torch::Tensor good = torch::ones({3});
  const torch::Tensor bad = ones_with({3}, 1, kNotANumber);
  EXPECT_TRUE(all_finite({}));
  EXPECT_TRUE(all_finite({{"a", good}, {"b", torch::empty({0})}, {"c", good}}));
  EXPECT_FALSE(all_finite({{"a", bad}, {"b", good}}));
  EXPECT_FALSE(all_finite({{"a", good}, {"b", bad}}));
}

TEST(AllFinite, AllowsInfinityOnlyInTheTensorsNamed) {
  for (const std::int64_t size : {std::int64_t{4}, kPieceElements + 1}) {
    const torch::Tensor infinite = ones_with({size}, size - 1, -kInfinite);
    EXPECT_TRUE(all_finite({{"mask", infinite}}, {"mask"}));
    EXPECT_FALSE(all_finite({{"mask", infinite}}, {"other"}));
    EXPECT_FALSE(all_finite({{"mask", infinite}, {"weight", infinite}}, {"mask"}));
    EXPECT_FALSE(all_finite({{"mask", ones_with({size}, size - 1, kNotANumber)}}, {"mask"}));
  }
}

TEST(AllFinite, KnowsEveryType) {
  EXPECT_TRUE(all_finite({{"a", torch::full({3}, std::numeric_limits<std::int64_t>::max())},
                          {"b", torch::ones({3}, torch::kBool)},
                          {"c", torch::full({3}, 255, torch::kUInt8)}}));
  for (const torch::ScalarType type : {torch::kFloat16, torch::kBFloat16, torch::kFloat64}) {
    EXPECT_TRUE(all_finite({{"a", torch::ones({}, type)}})) << type;
    EXPECT_FALSE(all_finite({{"a", torch::full({}, kNotANumber, type)}})) << type;
    EXPECT_FALSE(all_finite({{"a", ones_with({3}, 2, kInfinite, type)}})) << type;
  }
  // More than the largest of 32 bits.
  EXPECT_TRUE(all_finite({{"a", torch::full({2}, 1e300, torch::kFloat64)}}));
  const torch::Tensor bytes = torch::full({3}, 0x38, torch::kUInt8);
  EXPECT_TRUE(all_finite({{"a", bytes.view(torch::kFloat8_e4m3fn)}}));
  bytes[2] = 0x7f;
  EXPECT_FALSE(all_finite({{"a", bytes.view(torch::kFloat8_e4m3fn)}}));
  const torch::Tensor parts = torch::ones({2, 2});
  EXPECT_TRUE(all_finite({{"a", torch::view_as_complex(parts)}}));
  parts[1][1] = kNotANumber;
  EXPECT_FALSE(all_finite({{"a", torch::view_as_complex(parts)}}));
}

// The names of the format's description, https://huggingface.co/docs/safetensors.
TEST(FileTensors, HaveTheTypesOfTheFormat) {
  const std::map<torch::ScalarType, std::string> names = {{torch::kFloat32, "F32"},
                                                          {torch::kFloat64, "F64"},
                                                          {torch::kFloat16, "F16"},
                                                          {torch::kBFloat16, "BF16"},
                                                          {torch::kComplexFloat, "C64"},
                                                          {torch::kFloat8_e5m2, "F8_E5M2"},
                                                          {torch::kFloat8_e4m3fn, "F8_E4M3"},
                                                          {torch::kInt64, "I64"},
                                                          {torch::kInt32, "I32"},
                                                          {torch::kInt16, "I16"},
                                                          {torch::kInt8, "I8"},
                                                          {torch::kUInt64, "U64"},
                                                          {torch::kUInt32, "U32"},
                                                          {torch::kUInt16, "U16"},
                                                          {torch::kUInt8, "U8"},
                                                          {torch::kBool, "BOOL"}};
  for (int i = 0; i < static_cast<int>(torch::ScalarType::NumOptions); ++i) {
    const auto type = static_cast<torch::ScalarType>(i);
    const auto found = names.find(type);
    EXPECT_EQ(dtype_of(type), found == names.end() ? "" : found->second) << type;
    if (found == names.end()) continue;
    EXPECT_EQ(scalar_type_of(found->second), type) << type;
    const torch::Tensor bytes = torch::arange(48, torch::kUInt8).remainder(2);
    const StateDict state = {{"a", bytes.view(type).view({3, -1})}};
    const FileTensors tensors(state);
    const TensorView& view = tensors.views().at("a");
    EXPECT_EQ(view.dtype, found->second);
    const auto element_bytes = static_cast<std::int64_t>(c10::elementSize(type));
    EXPECT_THAT(view.shape, ::testing::ElementsAre(3, 16 / element_bytes)) << type;
    ASSERT_EQ(view.bytes.size(), 48U) << type;
    EXPECT_EQ(std::memcmp(view.bytes.data(), bytes.const_data_ptr(), 48), 0) << type;
  }
  for (const char* unknown : {"", "f32", "F32 ", "F4", "C128"}) {
    EXPECT_EQ(scalar_type_of(unknown), std::nullopt) << unknown;
  }
}

TEST(FileTensors, HaveLargeTransposedTensorsInRows) {
  const std::vector<std::vector<std::int64_t>> shapes = {
      {3, 4}, {kPieceElements + 1, 2}, {3, kPieceElements + 5}, {kPieceElements / 4 + 1, 7}};
  for (const std::vector<std::int64_t>& shape : shapes) {
    const torch::Tensor numbers = torch::arange(shape[0] * shape[1], torch::kFloat32).view(shape);
    const torch::Tensor transposed = numbers.t();
    const StateDict state = {{"a", transposed}};
    const FileTensors tensors(state);
    const TensorView& view = tensors.views().at("a");
    EXPECT_EQ(view.dtype, "F32");
    EXPECT_THAT(view.shape, ::testing::ElementsAre(shape[1], shape[0]));
    const torch::Tensor rows = transposed.contiguous();
    ASSERT_EQ(view.bytes.size(), rows.nbytes());
    EXPECT_EQ(std::memcmp(view.bytes.data(), rows.const_data_ptr(), rows.nbytes()), 0)
        << torch::IntArrayRef(shape);
  }
}

const CheckpointInfo kContentInfo = {
    .recipe = "mnist", .epoch = 3, .step = 7, .settings = {{"seed", "18"}, {"lr", "0.1"}}};

// A module may have a part whose name begins like those of the training's tensors.
TEST(CheckpointContent, RefusesTwoTensorsOfOneName) {
  const torch::Tensor one = torch::ones({1});
  struct Case {
    StateDict model, training;
    const char* name;
  };
  const Case cases[] = {{{{"a", one}, {"b", one}, {"a", one}}, {}, "a"},
                        {{{"a", one}}, {{"m", one}, {"m", one}}, "optimizer.m"},
                        {{{"optimizer.weight", one}}, {{"weight", one}}, "optimizer.weight"}};
  for (const Case& c : cases) {
    EXPECT_THAT(testing_support::message_of<CheckpointError>(
                    [&] { CheckpointContent(c.model, c.training, kContentInfo); }),
                ::testing::StartsWith(lockstep::str(
                    "cannot write the checkpoint: two tensors have the name '", c.name, "'; ")));
  }
  EXPECT_NO_THROW(
      CheckpointContent({{"a", one}, {"b", one}}, {{"a", one}, {"b", one}}, kContentInfo));
}

std::string bytes_of(const CheckpointFile& file) {
  std::string all;
  for (const std::span<const std::byte> piece : file.pieces) {
    all.append(reinterpret_cast<const char*>(piece.data()), piece.size());
  }
  return all;
}

TEST(CheckpointContent, IsThatOfAFileForTheModelAndOneForTheTraining) {
  const StateDict model = {{"weight", torch::arange(6, torch::kFloat32).view({2, 3})},
                           {"half", torch::ones({1}, torch::kFloat16)}};
  const StateDict training = {{"momentum_buffer.weight", torch::full({2, 3}, 7)}};
  const CheckpointContent content(model, training, kContentInfo);
  const std::vector<CheckpointFile> files = content.files();
  ASSERT_EQ(files.size(), 2U);
  EXPECT_EQ(files[0].name, kModelFile);
  EXPECT_EQ(files[1].name, kTrainingFile);
  const SafetensorsMetadata expected = {{"format", "lockstep checkpoint 2"},
                                        {"recipe", "mnist"},
                                        {"epoch", "3"},
                                        {"step", "7"},
                                        {"seed", "18"},
                                        {"lr", "0.1"}};
  const StateDict named[] = {model, named_for_file(training)};
  for (const std::size_t f : {0U, 1U}) {
    const std::string bytes = bytes_of(files[f]);
    const Safetensors read = parse_safetensors(std::as_bytes(std::span(bytes)), "the file");
    EXPECT_EQ(read.metadata, expected) << f;
    EXPECT_TRUE(read.has_checksums) << f;
    ASSERT_EQ(read.tensors.size(), named[f].size()) << f;
    for (const auto& [name, tensor] : named[f]) {
      const TensorView& view = read.tensors.at(name);
      EXPECT_EQ(view.dtype, dtype_of(tensor.scalar_type())) << name;
      EXPECT_EQ(view.shape, tensor.sizes().vec()) << name;
      ASSERT_EQ(view.bytes.size(), tensor.nbytes()) << name;
      EXPECT_EQ(std::memcmp(view.bytes.data(), tensor.const_data_ptr(), tensor.nbytes()), 0)
          << name;
    }
  }
  EXPECT_EQ(named[1][0].first, "optimizer.momentum_buffer.weight");
}

// Only the model may have infinities on purpose.
TEST(CheckpointContent, IsFiniteIfBothFilesAre) {
  const torch::Tensor good = torch::ones({2});
  const torch::Tensor infinite = ones_with({2}, 1, kInfinite);
  const auto finite = [&](const StateDict& model, const StateDict& training,
                          const std::set<std::string>& may_be_infinite) {
    return CheckpointContent(model, training, kContentInfo).all_finite(may_be_infinite);
  };
  EXPECT_TRUE(finite({{"w", good}}, {{"m", good}}, {}));
  EXPECT_FALSE(finite({{"w", infinite}}, {{"m", good}}, {}));
  EXPECT_TRUE(finite({{"w", infinite}}, {{"m", good}}, {"w"}));
  EXPECT_FALSE(finite({{"w", good}}, {{"m", infinite}}, {}));
  EXPECT_FALSE(finite({{"w", good}}, {{"m", infinite}}, {"m", "optimizer.m"}));
  EXPECT_FALSE(finite({{"w", ones_with({2}, 0, kNotANumber)}}, {}, {"w"}));
}

TEST(CheckpointContent, StoresOnlyDenseTensorsWithValues) {
  const torch::Tensor one = torch::ones({2});
  const std::pair<torch::Tensor, const char*> cases[] = {
      {one.to_sparse(), "which is SparseCPUFloatType, expected a dense tensor with values"},
      {torch::ones({2}, torch::kMeta), "expected a dense tensor with values"},
      {torch::quantize_per_tensor(one, 0.1, 0, torch::kQInt8),
       "expected a dense tensor with values"},
      {torch::ones({2}, torch::kComplexDouble), "of type ComplexDouble, which has no name in"}};
  for (const auto& [tensor, text] : cases) {
    const auto refusal = ::testing::AllOf(::testing::HasSubstr("checkpoint: cannot store 'odd'"),
                                          ::testing::HasSubstr(text));
    const StateDict odd = {{"one", one}, {"odd", tensor}};
    EXPECT_THAT(testing_support::message_of<CheckpointError>([&] { require_storable(odd); }),
                refusal);
    EXPECT_THAT(testing_support::message_of<CheckpointError>([&] { FileTensors files(odd); }),
                refusal);
  }
  EXPECT_NO_THROW(require_storable({{"one", one}, {"two", torch::zeros({0})}}));
}

}  // namespace
}  // namespace lockstep::train
