// The ONNX operators of some lowerings, and the numbers in them, where arguments decide between
// several forms. onnx_oracle.py compares the results.
#include <cmath>
#include <cstring>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <torch/nn/module.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/rnn.h>

#include <lockstep/export/onnx_export.h>
#include <tests/export/onnx_reader.h>

namespace lockstep {
namespace {

namespace nn = torch::nn;
using ::testing::Contains;
using ::testing::Not;
using testing_support::ReadModel;
using torch::Tensor;

using Operation = std::function<Tensor(const Tensor& x)>;

class Lowerings : public ::testing::Test {
 protected:
  ReadModel lowered(const Operation& operation, const Tensor& x) const {
    nn::Sequential empty;
    const OnnxForward forward = [&](const std::vector<Tensor>& inputs) {
      return std::vector<Tensor>{operation(inputs[0])};
    };
    export_onnx(*empty, forward, {x}, path);
    return testing_support::read_model(path);
  }

  testing_support::TemporaryDirectory folder;
  const std::filesystem::path path = folder / "net.onnx";
};

// The initializers that are a single number of the given type.
template <class Number>
std::vector<Number> single_numbers(const ReadModel& model, std::int32_t type) {
  std::vector<Number> numbers;
  for (const auto& [name, bytes] : model.values) {
    if (model.initializers.at(name) != type || bytes.size() != sizeof(Number)) continue;
    std::memcpy(&numbers.emplace_back(), bytes.data(), sizeof(Number));
  }
  return numbers;
}

TEST_F(Lowerings, DependOnTheArguments) {
  using Operators = std::vector<std::string>;
  struct Case {
    const char* name;
    Operation operation;
    Operators operators;
  };
  const Case cases[] = {
      // A reflection may repeat what is cut away; a circle is made of what is left.
      {"reflection",
       [](const Tensor& x) { return at::pad(x, {-6, 2}, "reflect"); },
       {"Pad", "Slice"}},
      {"circle",
       [](const Tensor& x) { return at::pad(x, {-2, 3}, "circular"); },
       {"Slice", "Slice", "Concat"}},
      {"constant",
       [](const Tensor& x) { return at::constant_pad_nd(x, {1, -2}, 3); },
       {"Pad", "Slice"}},
      {"rows", [](const Tensor& x) { return x.flatten(1); }, {"Flatten"}},
      {"no rows", [](const Tensor& x) { return x.flatten(0, 1); }, {"Reshape"}},
      {"all of a dimension", [](const Tensor& x) { return x.slice(1, 0, 100); }, {"Identity"}},
      {"a part of it", [](const Tensor& x) { return x.slice(1, 0, 2); }, {"Slice"}},
      {"no dropout", [](const Tensor& x) { return at::dropout(x, 0.5, false); }, {"Identity"}},
      {"square root", [](const Tensor& x) { return x.pow(0.5); }, {"Sqrt"}},
      {"its reciprocal", [](const Tensor& x) { return x.pow(-0.5); }, {"Sqrt", "Reciprocal"}},
      {"reciprocal", [](const Tensor& x) { return x.pow(-1); }, {"Reciprocal"}},
      {"that of a square", [](const Tensor& x) { return x.pow(-2); }, {"Mul", "Reciprocal"}},
      {"another power", [](const Tensor& x) { return x.pow(-3); }, {"Pow"}},
      {"limits", [](const Tensor& x) { return x.clamp(-1, 1); }, {"Clip"}},
      {"a limit that is NaN",
       [](const Tensor& x) { return x.clamp(std::nan(""), 1); },
       {"Max", "Min"}},
      {"relu of whole numbers",
       [](const Tensor& x) { return x.to(torch::kInt).relu(); },
       {"Cast", "Max"}},
      {"a precise slope",
       [](const Tensor& x) { return at::leaky_relu(x.to(torch::kDouble), 0.1); },
       {"Cast", "Mul", "Less", "Where"}},
      {"finite numbers",
       [](const Tensor& x) { return x.isfinite(); },
       {"IsNaN", "IsInf", "Or", "Not"}},
      {"whole numbers are no NaN",
       [](const Tensor& x) { return x.to(torch::kInt).isnan(); },
       {"Shape", "Concat", "Expand"}},
      {"a sum of int64",
       [](const Tensor& x) { return x.to(torch::kLong).sum(1); },
       {"Cast", "CumSum", "Slice", "Squeeze"}},
      {"a sum of int32",
       [](const Tensor& x) { return x.to(torch::kInt).sum(1); },
       {"Cast", "Cast", "ReduceSum"}}};
  for (const Case& each : cases) {
    EXPECT_EQ(lowered(each.operation, torch::rand({2, 3, 8})).operators, each.operators)
        << each.name;
  }
}

// 2 * 24 + 5 elements, and 24 for each further sample.
TEST_F(Lowerings, OfARepetitionKeepWhatDoesNotFollowTheBatch) {
  const Tensor more = torch::arange(5, torch::kFloat);
  const ReadModel model =
      lowered([more](const Tensor& x) { return at::cat({x.flatten(), more}).repeat_interleave(3); },
              torch::rand({2, 3, 8}));
  EXPECT_THAT(model.operators, Contains("Add"));
  EXPECT_THAT(single_numbers<std::int64_t>(model, /*type=*/7), Contains(5));
}

TEST_F(Lowerings, OfAVarianceDivideByAtLeastZero) {
  const std::pair<int, float> cases[] = {{0, 3}, {1, 2}, {3, 0}, {5, 0}};
  for (const auto& [correction, divisor] : cases) {
    const ReadModel model = lowered(
        [correction = correction](const Tensor& x) {
          return x.var(torch::IntArrayRef{1}, std::optional<torch::Scalar>(correction));
        },
        torch::rand({2, 3, 8}));
    EXPECT_THAT(single_numbers<float>(model, /*type=*/1), ::testing::ElementsAre(divisor))
        << correction;
  }
}

// The second layer begins with the third and the fourth of four states.
TEST_F(Lowerings, OfARecurrentNetGiveEachLayerItsStates) {
  nn::GRU net(nn::GRUOptions(3, 4).num_layers(2).bidirectional(true).batch_first(true));
  export_onnx(net, {torch::rand({2, 5, 3}), torch::rand({4, 2, 4})}, path,
              {.batch_dimensions = {0, 1}});
  const ReadModel model = testing_support::read_model(path);
  const auto numbers = single_numbers<std::int64_t>(model, /*type=*/7);
  EXPECT_THAT(numbers, Contains(4));
  EXPECT_THAT(numbers, Not(Contains(3)));
}

}  // namespace
}  // namespace lockstep
