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

#include <ATen/TensorIndexing.h>
#include <torch/nn/module.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/rnn.h>

#include <lockstep/core/error.h>
#include <lockstep/export/onnx_export.h>
#include <tests/export/onnx_reader.h>
#include <tests/support/messages.h>

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
  ReadModel lowered(const Operation& operation, const Tensor& x,
                    const OnnxExportOptions& options = {}) const {
    nn::Sequential empty;
    const OnnxForward forward = [&](const std::vector<Tensor>& inputs) {
      return std::vector<Tensor>{operation(inputs[0])};
    };
    export_onnx(*empty, forward, {x}, path, options);
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
      {"one limit of numbers that are converted",
       [](const Tensor& x) { return x.to(torch::kShort).clamp(std::nullopt, 1); },
       {"Cast", "Cast", "Cast", "Clip", "Cast"}},
      {"the other one",
       [](const Tensor& x) { return x.to(torch::kShort).clamp(1, std::nullopt); },
       {"Cast", "Cast", "Cast", "Clip", "Cast"}},
      {"a border of numbers that are converted",
       [](const Tensor& x) { return at::constant_pad_nd(x.to(torch::kShort), {1, 2}, 3); },
       {"Cast", "Cast", "Cast", "Pad", "Cast"}},
      {"a limit that is NaN",
       [](const Tensor& x) { return x.clamp(std::nan(""), 1); },
       {"Max", "Min"}},
      {"relu of whole numbers",
       [](const Tensor& x) { return x.to(torch::kInt).relu(); },
       {"Cast", "Max"}},
      {"relu of numbers", [](const Tensor& x) { return x.relu(); }, {"Relu"}},
      {"a precise slope",
       [](const Tensor& x) { return at::leaky_relu(x.to(torch::kDouble), 0.1); },
       {"Cast", "Mul", "Less", "Where"}},
      {"finite numbers",
       [](const Tensor& x) { return x.isfinite(); },
       {"IsNaN", "IsInf", "Or", "Not"}},
      {"whole numbers are no NaN",
       [](const Tensor& x) { return x.to(torch::kInt).isnan(); },
       {"Shape", "Concat", "Expand"}},
      {"whether each element is true",
       [](const Tensor& x) { return x.gt(0.5).all(torch::IntArrayRef{}); },
       {"Greater", "Cast", "Greater"}},
      {"whether all are true",
       [](const Tensor& x) { return x.gt(0.5).all(); },
       {"Greater", "Cast", "ReduceMin", "Greater"}},
      {"a factor for one side",
       [](const Tensor& x) {
         return at::upsample_bilinear2d(x.unsqueeze(1), {4, 8}, false, 1.5, std::nullopt);
       },
       {"Unsqueeze", "Transpose", "MatMul", "Transpose", "MatMul"}},
      {"a size",
       [](const Tensor& x) { return at::upsample_bilinear2d(x.unsqueeze(1), {4, 8}, false); },
       {"Unsqueeze", "Shape", "Concat", "Resize"}},
      // One Resize if all pixels of all sides are repeated equally often; otherwise a Gather for
      // each side that changes.
      {"pixels that are repeated",
       [](const Tensor& x) { return at::upsample_nearest2d(x.unsqueeze(1), {6, 16}); },
       {"Unsqueeze", "Shape", "Concat", "Resize"}},
      {"pixels that are repeated along one side",
       [](const Tensor& x) { return at::_upsample_nearest_exact2d(x.unsqueeze(1), {9, 8}); },
       {"Unsqueeze", "Shape", "Concat", "Resize"}},
      {"pixels that are repeated along the last side only",
       [](const Tensor& x) { return at::upsample_nearest2d(x.unsqueeze(1), {5, 16}); },
       {"Unsqueeze", "Gather", "Gather"}},
      {"pixels that are repeated along the first side only",
       [](const Tensor& x) { return at::upsample_nearest2d(x.unsqueeze(1), {6, 13}); },
       {"Unsqueeze", "Gather", "Gather"}},
      {"pixels of which a side is left as it is",
       [](const Tensor& x) { return at::upsample_nearest2d(x.unsqueeze(1), {3, 13}); },
       {"Unsqueeze", "Gather"}},
      {"fewer pixels",
       [](const Tensor& x) { return at::upsample_nearest2d(x.unsqueeze(1), {3, 4}); },
       {"Unsqueeze", "Gather"}},
      {"a source as large as its index",
       [](const Tensor& x) {
         const Tensor part = x.slice(2, 0, 1);
         return x.scatter(2, part.to(torch::kLong), part);
       },
       {"Slice", "Cast", "ScatterElements"}},
      {"a source larger than its index",
       [](const Tensor& x) { return x.scatter(2, x.slice(2, 0, 1).to(torch::kLong), x); },
       {"Slice", "Cast", "Slice", "ScatterElements"}},
      {"aligned corners without aliasing",
       [](const Tensor& x) { return at::_upsample_bilinear2d_aa(x.unsqueeze(1), {2, 4}, true); },
       {"Unsqueeze", "Transpose", "MatMul", "Transpose", "MatMul"}},
      {"no aliasing",
       [](const Tensor& x) { return at::_upsample_bilinear2d_aa(x.unsqueeze(1), {2, 4}, false); },
       {"Unsqueeze", "Shape", "Concat", "Resize"}},
      {"an exponent in a tensor",
       [](const Tensor& x) { return x.to(torch::kInt).pow(torch::tensor(2)); },
       {"Cast", "Mul"}},
      {"a mean", [](const Tensor& x) { return x.mean(1); }, {"ReduceMean"}},
      {"a mean of nothing",
       [](const Tensor& x) { return x.slice(1, 0, 0).mean(1); },
       {"Slice", "ReduceMean", "ReduceMin", "Equal", "Div", "Where"}},
      {"a mean of all but one sample",
       [](const Tensor& x) { return x.slice(0, 1).mean(0); },
       {"Slice", "ReduceMean", "Shape", "Add", "ReduceMin", "Equal", "Div", "Where"}},
      {"a sum of int64",
       [](const Tensor& x) { return x.to(torch::kLong).sum(1); },
       {"Cast", "CumSum", "Slice", "Squeeze"}},
      {"a sum of int32",
       [](const Tensor& x) { return x.to(torch::kInt).sum(1); },
       {"Cast", "Cast", "ReduceSum"}},
      // The first half times the second; the last one of an odd number is left.
      {"a product of two whole numbers",
       [](const Tensor& x) { return x.to(torch::kLong).slice(1, 1).prod(1); },
       {"Cast", "Slice", "Slice", "Slice", "Mul", "Squeeze"}},
      {"a product of three whole numbers",
       [](const Tensor& x) { return x.to(torch::kLong).prod(1); },
       {"Cast", "Slice", "Slice", "Slice", "Mul", "Mul", "Squeeze"}},
      {"a product of numbers", [](const Tensor& x) { return x.prod(1); }, {"ReduceProd"}}};
  for (const Case& each : cases) {
    EXPECT_EQ(lowered(each.operation, torch::rand({2, 3, 8})).operators, each.operators)
        << each.name;
  }
}

// onnxruntime's Gemm takes no whole numbers, and has factors of float32.
TEST_F(Lowerings, OfAMatrixProductAreGemmIfItIsPrecise) {
  struct Case {
    torch::ScalarType type;
    torch::Scalar beta;
    torch::Scalar alpha;
    bool is_gemm;
  };
  const Case cases[] = {{torch::kFloat, 0.1, 0.3, true},   {torch::kDouble, 1, 1, true},
                        {torch::kDouble, 0.1, 1, false},   {torch::kDouble, 1, 0.1, false},
                        {torch::kDouble, 0.1, 0.3, false}, {torch::kLong, 1, 1, false}};
  for (const Case& each : cases) {
    const Tensor weight = torch::ones({8, 4}).to(each.type);
    const Tensor added = torch::ones({4}).to(each.type);
    const ReadModel model = lowered(
        [&](const Tensor& x) {
          return at::addmm(added, x.to(each.type), weight, each.beta, each.alpha);
        },
        torch::rand({2, 8}));
    EXPECT_EQ(::testing::Matches(Contains("Gemm"))(model.operators), each.is_gemm)
        << each.type << ' ' << each.beta << ' ' << each.alpha;
    EXPECT_EQ(::testing::Matches(Contains("MatMul"))(model.operators), !each.is_gemm)
        << each.type << ' ' << each.beta << ' ' << each.alpha;
  }
}

// ONNX's Einsum broadcasts a size of 1 in an ellipsis only.
TEST_F(Lowerings, OfEinsumExpandSizesOfOne) {
  const auto operators = [this](std::int64_t rows) {
    return lowered(
               [rows](const Tensor& x) {
                 return at::einsum("bij,bij->bij", {x, x.slice(1, 0, rows)});
               },
               torch::rand({2, 3, 8}))
        .operators;
  };
  EXPECT_THAT(operators(1), Contains("Expand"));
  EXPECT_THAT(operators(3), Not(Contains("Expand")));
}

// Float16 is computed in float32, and other types in their own.
TEST_F(Lowerings, HaveConstantsOfTheTypeOfTheArithmetic) {
  const auto model_in = [this](torch::ScalarType type) {
    return lowered([type](const Tensor& x) { return at::hardswish(x.to(type)); },
                   torch::rand({2, 3}));
  };
  constexpr std::int32_t kFloat32 = 1;
  constexpr std::int32_t kFloat64 = 11;
  EXPECT_THAT(single_numbers<float>(model_in(torch::kFloat), kFloat32), Contains(6));
  EXPECT_THAT(single_numbers<float>(model_in(torch::kHalf), kFloat32), Contains(6));
  EXPECT_THAT(single_numbers<double>(model_in(torch::kDouble), kFloat64), Contains(6));
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
  const std::pair<int, double> cases[] = {{0, 3}, {1, 2}, {3, 0}, {5, 0}};
  for (const auto& [correction, divisor] : cases) {
    const ReadModel model = lowered(
        [correction = correction](const Tensor& x) {
          return x.var(torch::IntArrayRef{1}, std::optional<torch::Scalar>(correction));
        },
        torch::rand({2, 3, 8}));
    EXPECT_THAT(single_numbers<double>(model, /*type=*/11), ::testing::ElementsAre(divisor))
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

// Dropout has an effect only in training, and only with a probability above 0.
TEST_F(Lowerings, OfARecurrentNetRefuseDropoutOnlyWhereItHasAnEffect) {
  nn::GRU net(nn::GRUOptions(3, 4).batch_first(true));
  const auto refusal = [&](double dropout, bool is_training) {
    const OnnxForward forward = [&](const std::vector<Tensor>& x) {
      return std::vector<Tensor>{std::get<0>(
          at::gru(x[0], x[1], net->parameters(), /*has_biases=*/true, /*num_layers=*/1, dropout,
                  is_training, /*bidirectional=*/false, /*batch_first=*/true))};
    };
    return testing_support::message_of<ConfigError>([&] {
      export_onnx(*net, forward, {torch::rand({2, 5, 3}), torch::rand({1, 2, 4})}, path,
                  {.batch_dimensions = {0, 1}});
    });
  };
  EXPECT_EQ(refusal(0.5, false), "nothing was thrown");
  EXPECT_EQ(refusal(0, true), "nothing was thrown");
  EXPECT_THAT(refusal(0.5, true), ::testing::HasSubstr("dropout is on"));
}

// The elements of a float tensor in a file.
std::vector<float> numbers_in(const std::string& bytes) {
  std::vector<float> numbers(bytes.size() / sizeof(float));
  std::memcpy(numbers.data(), bytes.data(), bytes.size());
  return numbers;
}

// forward() adds a tensor, and changes it in place after that.
TEST_F(Lowerings, ComputeInPlaceOnCopiesOfConstants) {
  const Tensor table = torch::tensor({1.0F, 2.0F, 3.0F});
  const ReadModel model = lowered(
      [table](const Tensor& x) {
        Tensor changed = table.clone();
        const Tensor y = x + changed;
        changed.mul_(10);
        return y * changed;
      },
      torch::rand({2, 3}));
  EXPECT_THAT(model.operators, ::testing::ElementsAre("Add", "Mul"));
  std::vector<std::vector<float>> constants;
  for (const auto& [name, bytes] : model.values) constants.push_back(numbers_in(bytes));
  EXPECT_THAT(constants, ::testing::UnorderedElementsAre(::testing::ElementsAre(1, 2, 3),
                                                         ::testing::ElementsAre(10, 20, 30)));
  EXPECT_TRUE(table.equal(torch::tensor({1.0F, 2.0F, 3.0F})));
}

// The weights of a transposed convolution are ordered by groups, which its statistics are not.
TEST_F(Lowerings, FoldABatchNormIntoATransposedConvolutionOfOneGroup) {
  for (const std::int64_t groups : {1, 2, 4}) {
    nn::Sequential net(nn::ConvTranspose2d(nn::ConvTranspose2dOptions(4, 4, 3).groups(groups)),
                       nn::BatchNorm2d(4));
    export_onnx(net, {torch::rand({2, 4, 5, 5})}, path);
    const auto operators = testing_support::read_model(path).operators;
    EXPECT_EQ(operators.front(), "ConvTranspose");
    EXPECT_EQ(::testing::Matches(Contains("BatchNormalization"))(operators), groups > 1) << groups;
  }
}

// Float16 holds all numbers of int8 and uint8, and booleans, but not those of larger types. The
// input from which they come is not rounded to float16.
TEST_F(Lowerings, InHalfKeepWholeNumbersThatFloat16LacksInFloat32) {
  const std::pair<torch::ScalarType, std::size_t> cases[] = {{torch::kBool, 4}, {torch::kByte, 3},
                                                             {torch::kChar, 3}, {torch::kShort, 2},
                                                             {torch::kInt, 2},  {torch::kLong, 2}};
  for (const auto& [type, conversions] : cases) {
    const ReadModel model =
        lowered([type = type](const Tensor& x) { return x.to(type).to(torch::kFloat); },
                torch::rand({2, 3}) * 5, {.half = true});
    EXPECT_EQ(model.operators, std::vector<std::string>(conversions, "Cast")) << type;
  }
}

// What follows an operation in float32 is in float32, too, unless its results are small.
TEST_F(Lowerings, InHalfReturnToFloat16BehindSmallResults) {
  struct Case {
    const char* name;
    Operation operation;
    bool has_small_results = true;
  };
  const Case cases[] = {{"cos", [](const Tensor& x) { return x.cos(); }},
                        {"erf", [](const Tensor& x) { return x.erf(); }},
                        {"group_norm", [](const Tensor& x) { return at::group_norm(x, 2); }},
                        {"hardsigmoid", [](const Tensor& x) { return at::hardsigmoid(x); }},
                        {"instance_norm",
                         [](const Tensor& x) {
                           return at::instance_norm(x.unsqueeze(1), {}, {}, {}, {}, true, 0.1, 1e-5,
                                                    false)
                               .squeeze(1);
                         }},
                        {"layer_norm", [](const Tensor& x) { return at::layer_norm(x, {4}); }},
                        {"sigmoid", [](const Tensor& x) { return x.sigmoid(); }},
                        {"sin", [](const Tensor& x) { return x.sin(); }},
                        {"softmax", [](const Tensor& x) { return x.softmax(1); }},
                        {"tanh", [](const Tensor& x) { return x.tanh(); }},
                        {"abs", [](const Tensor& x) { return x.abs(); }, false},
                        {"relu", [](const Tensor& x) { return x.relu(); }, false},
                        {"log_softmax", [](const Tensor& x) { return x.log_softmax(1); }, false}};
  for (const Case& each : cases) {
    constexpr std::int32_t kFloat32 = 1;
    constexpr std::int32_t kFloat16 = 10;
    nn::Linear layer(4, 4);
    const OnnxForward forward = [&](const std::vector<Tensor>& x) {
      return std::vector<Tensor>{layer->forward(each.operation(x[0] * 1e6))};
    };
    export_onnx(*layer, forward, {torch::rand({2, 4})}, path, {.half = true});
    const ReadModel model = testing_support::read_model(path);
    EXPECT_EQ(model.initializers.at("weight"), each.has_small_results ? kFloat16 : kFloat32)
        << each.name;
  }
}

// An output has LibTorch's type, even if it is a parameter.
TEST_F(Lowerings, InHalfReturnParametersInFloat32) {
  constexpr std::int32_t kFloat32 = 1;
  nn::Linear layer(4, 3);
  const OnnxForward forward = [&](const std::vector<Tensor>& x) {
    return std::vector<Tensor>{x[0].relu(), layer->bias};
  };
  export_onnx(*layer, forward, {torch::rand({2, 4})}, path, {.half = true});
  const ReadModel model = testing_support::read_model(path);
  EXPECT_EQ(model.initializers, (std::map<std::string, std::int32_t>{{"bias", kFloat32}}));
}

// What the export computes has the name of its first parameter and of the operation.
TEST_F(Lowerings, NameComputedConstants) {
  const std::pair<Operation, const char*> cases[] = {
      {[](const Tensor& table) { return table; }, "table"},
      {[](const Tensor& table) { return table.contiguous(); }, "table"},
      {[](const Tensor& table) { return table.cumsum(1); }, "table.cumsum"},
      {[](const Tensor& table) { return table.t().contiguous(); }, "table.t.contiguous"},
      {[](const Tensor& table) { return table.chunk(3, 0)[1]; }, "table.chunk"},
      {[](const Tensor& table) { return torch::ones({3, 3}) * 2 + table; }, "table.add"}};
  for (const auto& [operation, name] : cases) {
    nn::Sequential net;
    const Tensor table = net->register_buffer("table", torch::rand({3, 3}));
    const OnnxForward forward = [&, code = operation](const std::vector<Tensor>& x) {
      return std::vector<Tensor>{x[0] + code(table)};
    };
    export_onnx(*net, forward, {torch::rand({2, 1, 3})}, path);
    const ReadModel model = testing_support::read_model(path);
    ASSERT_EQ(model.initializers.size(), 1U) << name;
    EXPECT_EQ(model.initializers.begin()->first, name);
  }
}

// Sizes that follow the batch, tensors without dimensions, and numbers out of range.
TEST_F(Lowerings, RefuseArgumentsWithTheReason) {
  struct Case {
    Operation operation;
    const char* op;
    const char* reason;
  };
  const Case cases[] = {
      {[](const Tensor& x) {
         return at::upsample_bilinear2d(x.to(torch::kByte).unsqueeze(1), {6, 16}, false);
       },
       "aten::upsample_bilinear2d", "whole numbers can be resized in nearest modes only"},
      {[](const Tensor& x) {
         return at::l1_loss(x.to(torch::kLong), x.to(torch::kLong), at::Reduction::Sum);
       },
       "aten::l1_loss",
       "a loss of whole numbers that is added up or of another type; use to() before it"},
      {[](const Tensor& x) { return at::einsum("bij->bi", {x.to(torch::kLong)}); }, "aten::einsum",
       "a sum of whole numbers over a dimension of one argument; use sum()"},
      {[](const Tensor& x) {
         return at::instance_norm(x.transpose(0, 1), {}, {}, {}, {}, true, 0.1, 1e-5, false);
       },
       "aten::instance_norm", "the number of channels follows the batch; expected a fixed size"},
      {[](const Tensor& x) { return at::group_norm(x.transpose(0, 1), 1); }, "aten::group_norm",
       "the number of channels follows the batch; expected a fixed size"},
      {[](const Tensor& x) { return x.repeat_interleave(0); }, "aten::repeat_interleave",
       "repeats of 0 without a dimension"},
      {[](const Tensor& x) { return x.to(torch::kChar) + 300; }, "aten::add",
       "cannot be converted to type int8_t without overflow"},
      {[](const Tensor& x) { return x.diff(1, -1, x.slice(2, 0, 1)); }, "aten::diff",
       "prepend or append; use cat() before it"},
      {[](const Tensor& x) { return x.diff(1, -1, std::nullopt, x.slice(2, 0, 1)); }, "aten::diff",
       "prepend or append; use cat() before it"},
      {[](const Tensor& x) { return x.to(torch::kLong).pow(0); }, "aten::pow",
       "a power of whole numbers needs a known exponent of at least 1"},
      {[](const Tensor& x) { return x.gt(0.5).add(x.gt(0.1), 0); }, "aten::add",
       "booleans times false"},
      {[](const Tensor& x) { return at::glu(at::cat({x, x}, 0), 0); }, "aten::glu",
       "glu's size follows the batch; expected a fixed size"},
      {[](const Tensor& x) { return at::prelu(x.transpose(0, 1), x.select(1, 0).select(1, 0)); },
       "aten::prelu", "the number of slopes follows the batch; expected a fixed size"},
      {[](const Tensor& x) {
         const Tensor q = x.permute({1, 2, 0});
         return at::scaled_dot_product_attention(q, q, q);
       },
       "aten::scaled_dot_product_attention", "the query's width follows the batch"},
      {[](const Tensor& x) {
         const Tensor q = x.transpose(0, 1);
         return at::scaled_dot_product_attention(q, q, q, {}, 0, /*is_causal=*/true);
       },
       "aten::scaled_dot_product_attention", "the number of queries follows the batch"},
      {[](const Tensor& x) {
         const Tensor k = x.transpose(0, 1);
         return at::scaled_dot_product_attention(torch::ones({3, 5, 8}), k, k, {}, 0, true);
       },
       "aten::scaled_dot_product_attention", "the number of keys follows the batch"},
      {[](const Tensor& x) { return x.unfold(0, 1, 1); }, "aten::unfold",
       "unfold()'s dimension follows the batch; expected a fixed size"},
      {[](const Tensor& x) { return x.chunk(1, 0)[0]; }, "aten::chunk",
       "a part's size follows the batch; expected a fixed size"},
      {[](const Tensor& x) {
         return at::max_pool1d(x.permute({1, 2, 0}), 1, 1, 0, 1, /*ceil_mode=*/true);
       },
       "aten::max_pool1d", "with ceil_mode, an image's size follows the batch"},
      {[](const Tensor& x) { return at::avg_pool1d(x, 2, 2, 1, /*ceil_mode=*/true); },
       "aten::avg_pool1d", "ceil_mode together with padding or divisor_override"},
      {[](const Tensor& x) { return x.sum().cumsum(0); }, "aten::cumsum",
       "a dimension of a tensor without dimensions"},
      {[](const Tensor& x) { return x.roll(1); }, "aten::roll",
       "the number of elements follows the batch; expected a fixed size"},
      {[](const Tensor& x) { return x.roll(1, 0); }, "aten::roll",
       "roll()'s dimension follows the batch; expected a fixed size"},
      {[](const Tensor& x) { return x.var(torch::IntArrayRef{0, 1}); }, "aten::var",
       "a dimension of var() or std() follows the batch; expected a fixed size"},
      {[](const Tensor& x) { return std::get<0>(x.sort(0)); }, "aten::sort",
       "the sorted dimension follows the batch; expected a fixed size"},
      {[](const Tensor& x) { return x.narrow(0, -1, 1); }, "aten::narrow",
       "narrow()'s dimension follows the batch; expected a fixed size"},
      {[](const Tensor& x) { return at::adaptive_avg_pool1d(x.permute({1, 2, 0}), 1); },
       "aten::adaptive_avg_pool1d", "an image's size follows the batch; expected a fixed size"}};
  for (const Case& each : cases) {
    try {
      lowered(each.operation, torch::rand({2, 3, 8}));
      ADD_FAILURE() << each.reason << ": nothing was refused";
    } catch (const ConfigError& error) {
      EXPECT_THAT(error.what(), ::testing::AllOf(::testing::HasSubstr(each.op),
                                                 ::testing::HasSubstr(each.reason)));
    }
  }
}

}  // namespace
}  // namespace lockstep
