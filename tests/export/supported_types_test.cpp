// The element types in which onnxruntime computes an operator, and those of its results.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <lockstep/export/lowering/supported_types.h>

namespace lockstep {
namespace {

using onnx::ElementType;
using ::testing::ElementsAre;

TEST(SupportedTypes, AreTheirOwnOrWider) {
  struct Case {
    const char* op;
    ElementType type;
    std::optional<ElementType> computed;
    int opset = 20;
  };
  const Case cases[] = {{"Add", ElementType::kInt64, ElementType::kInt64},
                        {"Add", ElementType::kUint8, ElementType::kUint8},
                        {"And", ElementType::kBool, ElementType::kBool},
                        {"Pow", ElementType::kFloat16, ElementType::kFloat16},
                        // Arithmetic that wraps around, in wider integers only.
                        {"Add", ElementType::kBool, ElementType::kInt32},
                        {"Add", ElementType::kBfloat16, std::nullopt},
                        {"MatMul", ElementType::kBool, ElementType::kInt32},
                        {"MatMul", ElementType::kUint8, ElementType::kInt32},
                        {"MatMul", ElementType::kInt16, ElementType::kInt32},
                        {"CumSum", ElementType::kInt8, ElementType::kInt32},
                        {"Neg", ElementType::kBool, ElementType::kInt32},
                        // Elements that are moved, compared or ordered, in whatever holds them.
                        {"Relu", ElementType::kUint8, ElementType::kInt32},
                        {"Relu", ElementType::kInt64, std::nullopt},
                        {"Where", ElementType::kBool, ElementType::kInt32},
                        {"Where", ElementType::kInt16, ElementType::kInt32},
                        {"ReduceMax", ElementType::kBool, ElementType::kInt32},
                        {"MaxPool", ElementType::kInt16, ElementType::kFloat},
                        {"MaxPool", ElementType::kInt32, ElementType::kDouble},
                        {"MaxPool", ElementType::kInt64, std::nullopt},
                        {"DepthToSpace", ElementType::kBool, ElementType::kFloat},
                        {"DepthToSpace", ElementType::kInt32, ElementType::kDouble},
                        {"GlobalMaxPool", ElementType::kUint8, ElementType::kFloat},
                        {"GlobalMaxPool", ElementType::kInt32, std::nullopt},
                        {"GlobalMaxPool", ElementType::kDouble, std::nullopt},
                        {"Trilu", ElementType::kUint8, ElementType::kInt32},
                        // Operators whose results depend on the type.
                        {"And", ElementType::kInt32, std::nullopt},
                        {"Celu", ElementType::kFloat, ElementType::kFloat},
                        {"Celu", ElementType::kFloat16, std::nullopt},
                        {"Celu", ElementType::kDouble, std::nullopt},
                        {"Pow", ElementType::kInt16, std::nullopt},
                        {"Range", ElementType::kInt8, std::nullopt},
                        {"Sign", ElementType::kBool, std::nullopt},
                        {"Sqrt", ElementType::kInt64, std::nullopt},
                        // Newer opsets may have more.
                        {"IsInf", ElementType::kFloat16, ElementType::kFloat, 17},
                        {"IsInf", ElementType::kFloat16, ElementType::kFloat, 19},
                        {"IsInf", ElementType::kFloat16, ElementType::kFloat16, 20},
                        {"IsInf", ElementType::kInt32, ElementType::kDouble, 19},
                        {"IsInf", ElementType::kInt32, std::nullopt, 20},
                        // An operator that is not listed.
                        {"Mish", ElementType::kFloat, ElementType::kFloat},
                        {"Mish", ElementType::kFloat16, ElementType::kFloat16},
                        {"Mish", ElementType::kDouble, std::nullopt}};
  for (const Case& each : cases) {
    EXPECT_EQ(onnx::computable_type(each.op, each.type, each.opset), each.computed)
        << each.op << " of " << onnx::type_name(each.type) << " in opset " << each.opset;
  }
}

TEST(SupportedTypes, AreDecidedByAnInput) {
  EXPECT_EQ(onnx::deciding_input("Where"), 1U);
  EXPECT_EQ(onnx::deciding_input("Clip"), 0U);
  using Inputs = std::vector<std::size_t>;
  const std::pair<const char*, Inputs> cases[] = {
      {"Where", {1, 2}},     {"Clip", {0, 1, 2}},    {"Gather", {0}},
      {"GRU", {0, 1, 2, 3}}, {"LSTM", {0, 1, 2, 3}}, {"Gemm", {0, 1, 2}},
      {"IsInf", {0}},        {"Pad", {0, 2}},        {"ScatterElements", {0, 2}},
      {"Mish", {0}},         {"Add", {0, 1}},        {"Resize", {0}},
      {"TopK", {0}}};
  for (const auto& [op, inputs] : cases) {
    EXPECT_EQ(onnx::inputs_of_one_type(op, 5), inputs) << op;
  }
  for (const char* const op : {"Concat", "Max", "Conv", "Range", "LayerNormalization"}) {
    EXPECT_EQ(onnx::inputs_of_one_type(op, 5), (Inputs{0, 1, 2, 3, 4})) << op;
  }
  EXPECT_EQ(onnx::inputs_of_one_type("Pad", 2), Inputs{0});
  EXPECT_EQ(onnx::inputs_of_one_type("Clip", 1), Inputs{0});
}

TEST(SupportedTypes, OfResults) {
  const auto of = [](const char* op, const std::vector<ElementType>& inputs, std::size_t outputs) {
    return onnx::output_types({.op_type = op}, inputs, outputs);
  };
  const ElementType single = ElementType::kFloat, whole = ElementType::kInt64;
  const ElementType truth = ElementType::kBool, half = ElementType::kFloat16;
  EXPECT_THAT(of("Add", {half, half}, 1), ElementsAre(half));
  EXPECT_THAT(of("Gather", {single, whole}, 1), ElementsAre(single));
  for (const char* const op : {"Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual"}) {
    EXPECT_THAT(of(op, {half, half}, 1), ElementsAre(truth)) << op;
  }
  for (const char* const op : {"IsInf", "IsNaN", "Not"}) {
    EXPECT_THAT(of(op, {half}, 1), ElementsAre(truth)) << op;
  }
  for (const char* const op : {"ArgMax", "ArgMin", "Shape"}) {
    EXPECT_THAT(of(op, {half}, 1), ElementsAre(whole)) << op;
  }
  EXPECT_THAT(of("Where", {truth, half, half}, 1), ElementsAre(half));
  EXPECT_THAT(of("Split", {half, whole}, 3), ElementsAre(half, half, half));
  EXPECT_THAT(of("TopK", {half, whole}, 2), ElementsAre(half, whole));
  EXPECT_THAT(of("MaxPool", {half}, 2), ElementsAre(half, whole));
  EXPECT_THAT(of("MaxPool", {half}, 1), ElementsAre(half));
  const onnx::OnnxNode cast = {.op_type = "Cast",
                               .attributes = {{"to", static_cast<std::int64_t>(half)}}};
  EXPECT_THAT(onnx::output_types(cast, {whole}, 1), ElementsAre(half));
}

TEST(SupportedTypes, HaveNames) {
  const std::pair<ElementType, const char*> cases[] = {
      {ElementType::kFloat, "float32"},    {ElementType::kDouble, "float64"},
      {ElementType::kFloat16, "float16"},  {ElementType::kBfloat16, "bfloat16"},
      {ElementType::kBool, "bool"},        {ElementType::kInt8, "int8"},
      {ElementType::kInt16, "int16"},      {ElementType::kInt32, "int32"},
      {ElementType::kInt64, "int64"},      {ElementType::kUint8, "uint8"},
      {ElementType::kUndefined, "no type"}};
  for (const auto& [type, name] : cases) EXPECT_EQ(onnx::type_name(type), name);
}

}  // namespace
}  // namespace lockstep
