// The sizes of an operation's results, from tensors without memory.
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <torch/nn/module.h>

#include <lockstep/export/trace/sizes_without_data.h>

namespace lockstep {
namespace {

using ResultSizes = std::vector<std::vector<std::int64_t>>;
using SizeList = std::vector<std::int64_t>;

torch::Tensor without_data(const SizeList& sizes) { return torch::empty(sizes, torch::kMeta); }

// More rows than any machine's memory holds.
constexpr std::int64_t kManyRows = std::int64_t{1} << 40;

c10::IValue whole_number(std::int64_t value) { return value; }

std::optional<ResultSizes> sizes_of_results(const char* name, const char* overload,
                                            const std::vector<c10::IValue>& arguments) {
  const auto op = c10::Dispatcher::singleton().findSchemaOrThrow(name, overload);
  return onnx::sizes_without_data(op, arguments);
}

TEST(OnnxSizesWithoutData, AreThoseOfAllResults) {
  const c10::IValue x = without_data({kManyRows, 3});
  const c10::IValue five = without_data({5, 3});
  const std::vector<torch::Tensor> pair = {without_data({kManyRows, 3}), without_data({4, 3})};
  EXPECT_EQ(sizes_of_results("aten::sigmoid", "", {x}), (ResultSizes{{kManyRows, 3}}));
  EXPECT_EQ(sizes_of_results("aten::cat", "", {c10::IValue(pair), whole_number(0)}),
            (ResultSizes{{kManyRows + 4, 3}}));
  EXPECT_EQ(sizes_of_results("aten::max", "dim", {x, whole_number(1), c10::IValue(false)}),
            (ResultSizes{{kManyRows}, {kManyRows}}));
  EXPECT_EQ(sizes_of_results("aten::split", "Tensor", {five, whole_number(2), whole_number(0)}),
            (ResultSizes{{2, 3}, {2, 3}, {1, 3}}));
}

// A bias that is not given may be an undefined tensor.
TEST(OnnxSizesWithoutData, TakeUndefinedTensors) {
  const c10::IValue x = without_data({2, 3});
  const c10::IValue weight = without_data({4, 3});
  EXPECT_EQ(sizes_of_results("aten::linear", "", {x, weight, c10::IValue(torch::Tensor())}),
            (ResultSizes{{2, 4}}));
  EXPECT_EQ(sizes_of_results("aten::linear", "", {x, weight, c10::IValue()}),
            (ResultSizes{{2, 4}}));
}

// The device is replaced, whether the call names one or not.
TEST(OnnxSizesWithoutData, OfNewTensorsNeedNoMemory) {
  const c10::IValue sizes = SizeList{kManyRows, 1024};
  for (const c10::IValue& device : {c10::IValue(), c10::IValue(c10::Device(at::kCPU))}) {
    EXPECT_EQ(sizes_of_results("aten::zeros", "",
                               {sizes, c10::IValue(), c10::IValue(), device, c10::IValue()}),
              (ResultSizes{{kManyRows, 1024}}));
  }
}

// The elements of a transposed tensor are not in one row.
TEST(OnnxSizesWithoutData, DependOnStrides) {
  const torch::Tensor x = without_data({2, 3});
  EXPECT_EQ(sizes_of_results("aten::view", "", {c10::IValue(x), c10::IValue(SizeList{6})}),
            (ResultSizes{{6}}));
  EXPECT_EQ(sizes_of_results("aten::view", "", {c10::IValue(x.t()), c10::IValue(SizeList{6})}),
            std::nullopt);
}

TEST(OnnxSizesWithoutData, AreUnknownIfValuesDecide) {
  EXPECT_EQ(sizes_of_results("aten::_local_scalar_dense", "", {c10::IValue(without_data({1}))}),
            std::nullopt);
  // Packed sequences have a tensor of batch sizes.
  const std::vector<torch::Tensor> parameters = {without_data({15, 4}), without_data({15, 5}),
                                                 without_data({15}), without_data({15})};
  EXPECT_EQ(sizes_of_results(
                "aten::gru", "data",
                {c10::IValue(without_data({3, 4})), c10::IValue(torch::tensor({2, 1})),
                 c10::IValue(without_data({1, 2, 5})), c10::IValue(parameters), c10::IValue(true),
                 whole_number(1), c10::IValue(0.0), c10::IValue(false), c10::IValue(false)}),
            std::nullopt);
}

std::optional<ResultSizes> sizes_of_convolution(const SizeList& x, const SizeList& weight,
                                                const SizeList& stride, const SizeList& padding,
                                                const SizeList& dilation,
                                                bool is_transposed = false) {
  return sizes_of_results(
      "aten::_convolution", "",
      {c10::IValue(without_data(x)), c10::IValue(without_data(weight)), c10::IValue(),
       c10::IValue(stride), c10::IValue(padding), c10::IValue(dilation), c10::IValue(is_transposed),
       c10::IValue(SizeList{0}), whole_number(1), c10::IValue(false), c10::IValue(false),
       c10::IValue(true), c10::IValue(true)});
}

// A list of one number stands for all dimensions.
TEST(OnnxSizesWithoutData, OfConvolutions) {
  // (10 + 2 - 2 - 1) / 2 + 1 and (9 - 2 - 1) / 1 + 1
  EXPECT_EQ(sizes_of_convolution({2, 3, 10, 9}, {4, 3, 3, 2}, {2, 1}, {1, 0}, {1, 2}),
            (ResultSizes{{2, 4, 5, 7}}));
  // (10 + 2 - 2 - 1) / 2 + 1 and (9 + 2 - 1 - 1) / 2 + 1
  EXPECT_EQ(sizes_of_convolution({2, 3, 10, 9}, {4, 3, 3, 2}, {2}, {1}, {1}),
            (ResultSizes{{2, 4, 5, 5}}));
  EXPECT_EQ(sizes_of_convolution({2, 3, 10, 9}, {4, 3, 3, 2}, {1}, {0}, {3}),
            (ResultSizes{{2, 4, 4, 6}}));
  EXPECT_EQ(sizes_of_convolution({kManyRows, 3, 10}, {4, 3, 1}, {10}, {0}, {1}),
            (ResultSizes{{kManyRows, 4, 1}}));
  // They may be unknown, but must not be wrong: (5 - 1) * 2 + 3.
  const auto transposed = sizes_of_convolution({2, 4, 5}, {4, 3, 3}, {2}, {0}, {1}, true);
  EXPECT_EQ(transposed.value_or(ResultSizes{{2, 3, 11}}), (ResultSizes{{2, 3, 11}}));
}

TEST(OnnxSizesWithoutData, OfConvolutionsWithAMode) {
  const auto sizes = [](const char* mode, std::int64_t stride) {
    return sizes_of_results(
        "aten::_convolution_mode", "",
        {c10::IValue(without_data({2, 3, 10})), c10::IValue(without_data({4, 3, 2})), c10::IValue(),
         c10::IValue(SizeList{stride}), c10::IValue(std::string(mode)), c10::IValue(SizeList{2}),
         whole_number(1)});
  };
  EXPECT_EQ(sizes("valid", 3), (ResultSizes{{2, 4, 3}}));  // (10 - 2 - 1) / 3 + 1
  EXPECT_EQ(sizes("valid", 1), (ResultSizes{{2, 4, 8}}));
  EXPECT_EQ(sizes("same", 1).value_or(ResultSizes{{2, 4, 10}}), (ResultSizes{{2, 4, 10}}));
}

}  // namespace
}  // namespace lockstep
