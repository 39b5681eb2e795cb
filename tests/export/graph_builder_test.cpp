// Constants, sizes, types and names in a graph that is being built, and what a lowering reads from
// the operation that it translates.
#include <lockstep/export/lowering/graph_builder.h>

#include <limits>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <torch/csrc/jit/ir/ir.h>
#include <torch/csrc/jit/ir/irparser.h>
#include <torch/types.h>

#include <lockstep/core/error.h>
#include <lockstep/export/lowering/recorded_operation.h>
#include <tests/support/messages.h>

namespace lockstep {
namespace {

using onnx::BeyondFloat16;
using onnx::ElementType;
using onnx::Extent;
using onnx::GraphBuilder;
using onnx::static_extent;
using onnx::Unsupported;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing_support::message_of;

constexpr Extent kBatchRows = {.size = 2, .per_batch = 1};

std::string raw_text(const onnx::TensorData& data) {
  return {reinterpret_cast<const char*>(data.bytes.data()), data.bytes.size()};
}

std::string raw_numbers(const std::vector<double>& numbers, torch::ScalarType type) {
  const torch::Tensor plain = torch::tensor(numbers, torch::kDouble).to(type);
  return {static_cast<const char*>(plain.const_data_ptr()), plain.nbytes()};
}

const onnx::TensorData& initializer_of(GraphBuilder& builder, const std::string& name) {
  for (const onnx::TensorData& each : builder.graph().initializers) {
    if (each.name == name) return each;
  }
  throw DataError("no initializer " + name);
}

std::vector<std::string> operators_of(GraphBuilder& builder) {
  std::vector<std::string> operators;
  for (const onnx::OnnxNode& node : builder.graph().nodes) operators.push_back(node.op_type);
  return operators;
}

TEST(OnnxGraphBuilder, StoresTheValuesOfUnusualTensors) {
  struct Case {
    const char* name;
    torch::Tensor tensor;
    std::vector<double> values;
  };
  const torch::Tensor numbers = torch::arange(6, torch::kFloat);
  const torch::Tensor small = torch::tensor({1.0F, 2.0F, 3.0F});
  const Case cases[] = {{"transposed", numbers.view({2, 3}).t(), {0, 3, 1, 4, 2, 5}},
                        {"every second column", numbers.view({1, 6}).slice(1, 0, 6, 2), {0, 2, 4}},
                        {"the end of a larger one", numbers.slice(0, 4), {4, 5}},
                        {"expanded", torch::tensor({5.0F}).expand({2, 3}), {5, 5, 5, 5, 5, 5}},
                        {"a lazy negative", at::_neg_view(small), {-1, -2, -3}},
                        {"a transposed lazy negative",
                         at::_neg_view(numbers.view({2, 3})).t(),
                         {-0.0, -3, -1, -4, -2, -5}},
                        {"one number", torch::tensor(7.0F), {7}},
                        {"nothing", torch::empty({0, 3}), {}},
                        {"with a gradient", torch::tensor({5.0F}, torch::requires_grad()), {5}},
                        {"float16", small.to(torch::kHalf), {1, 2, 3}},
                        {"bfloat16", small.to(torch::kBFloat16), {1, 2, 3}},
                        {"float64", small.to(torch::kDouble), {1, 2, 3}},
                        {"int8", torch::tensor({-3, 4}).to(torch::kChar), {-3, 4}},
                        {"uint8", torch::tensor({3, 200}).to(torch::kByte), {3, 200}},
                        {"truths", torch::tensor({true, false}), {1, 0}}};
  for (const Case& each : cases) {
    GraphBuilder builder(20, /*half=*/false);
    EXPECT_EQ(builder.constant(each.tensor, "table"), "table");
    const onnx::TensorData& stored = initializer_of(builder, "table");
    EXPECT_EQ(stored.sizes, each.tensor.sizes().vec()) << each.name;
    EXPECT_EQ(stored.type, onnx::element_type(each.tensor.scalar_type())) << each.name;
    EXPECT_EQ(raw_text(stored), raw_numbers(each.values, each.tensor.scalar_type())) << each.name;
  }
}

TEST(OnnxGraphBuilder, HasONNXsTypes) {
  const std::pair<torch::ScalarType, ElementType> types[] = {
      {torch::kFloat, ElementType::kFloat},  {torch::kDouble, ElementType::kDouble},
      {torch::kHalf, ElementType::kFloat16}, {torch::kBFloat16, ElementType::kBfloat16},
      {torch::kBool, ElementType::kBool},    {torch::kByte, ElementType::kUint8},
      {torch::kChar, ElementType::kInt8},    {torch::kShort, ElementType::kInt16},
      {torch::kInt, ElementType::kInt32},    {torch::kLong, ElementType::kInt64}};
  for (const auto& [type, expected] : types) EXPECT_EQ(onnx::element_type(type), expected) << type;
  EXPECT_EQ(message_of<ConfigError>([] { onnx::element_type(torch::kComplexFloat); }),
            "export_onnx: tensors of type ComplexFloat have no counterpart in ONNX");
}

TEST(OnnxGraphBuilder, StoresEqualConstantsOnce) {
  GraphBuilder builder(20, /*half=*/false);
  const std::string one = builder.scalar(1, torch::kLong);
  EXPECT_EQ(builder.scalar(1, torch::kLong), one);
  EXPECT_NE(builder.scalar(2, torch::kLong), one);
  EXPECT_NE(builder.integers({1}), one) << "which has a dimension";
  EXPECT_NE(builder.scalar(0, torch::kDouble), builder.scalar(0, torch::kLong))
      << "whose bytes are the same";
  const torch::Tensor weight = torch::ones({2, 100});
  EXPECT_EQ(builder.constant(weight, "fc.weight"), "fc.weight");
  EXPECT_EQ(builder.constant(weight, "fc.weight"), "fc.weight");
  EXPECT_EQ(builder.constant(torch::zeros({2, 100}), "fc.weight"), "fc.weight.1");
}

// The builder compares large constants by identity, which a new tensor may share with an old one
// that is gone.
TEST(OnnxGraphBuilder, TellsLargeTemporaryConstantsApart) {
  GraphBuilder builder(20, /*half=*/false);
  std::set<std::string> names;
  for (int i = 0; i < 20; ++i) names.insert(builder.constant(torch::full({100}, i), ""));
  EXPECT_EQ(names.size(), 20U);
}

TEST(OnnxGraphBuilder, GrantsTheNameOfAnUnusedInitializer) {
  GraphBuilder builder(20, /*half=*/false);
  EXPECT_EQ(builder.constant(torch::tensor({1.0F}), "weight"), "weight");
  const std::string second = builder.constant(torch::tensor({2.0F}), "weight");
  const std::string result = builder.add("Relu", {second});
  builder.add("Relu", {"weight"});  // on which no output depends
  builder.graph().outputs.push_back({.name = result});
  builder.remove_unused();
  EXPECT_THAT(operators_of(builder), ElementsAre("Relu"));
  EXPECT_THAT(builder.graph().nodes[0].inputs, ElementsAre("weight"));
  ASSERT_EQ(builder.graph().initializers.size(), 1U);
  EXPECT_EQ(raw_text(initializer_of(builder, "weight")), raw_numbers({2}, torch::kFloat));
}

// The largest number of float16 is 65504, and its smallest with full precision 6.1e-5.
TEST(OnnxGraphBuilder, HalvesWhatFloat16Holds) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  struct Case {
    std::vector<float> numbers;
    bool as_number;  // whether float16 holds them as numbers in the code
    bool as_parameter;
  };
  const Case cases[] = {{{1, 0, -2}, true, true},     {{65504}, true, true},
                        {{-65504}, true, true},       {{65536}, false, false},
                        {{-65536}, false, false},     {{6.2e-5F}, true, true},
                        {{6e-5F}, false, false},      {{-6e-5F}, false, false},
                        {{1, 1e-12F}, false, true},   {{1e-12F, 1e-9F}, false, false},
                        {{kInfinity, 1}, true, true}, {{-kInfinity}, true, true},
                        {{0, 0}, true, true},         {{}, true, true}};
  for (const Case& each : cases) {
    const torch::Tensor tensor = torch::tensor(each.numbers, torch::kFloat);
    for (const bool is_parameter : {false, true}) {
      GraphBuilder builder(20, /*half=*/true);
      const auto add = [&] { return builder.constant(tensor, is_parameter ? "weight" : ""); };
      if (is_parameter ? each.as_parameter : each.as_number) {
        EXPECT_EQ(initializer_of(builder, add()).type, ElementType::kFloat16) << tensor;
      } else {
        EXPECT_THROW(add(), BeyondFloat16) << tensor;
      }
    }
  }
  GraphBuilder builder(20, /*half=*/true);
  const torch::Tensor large = torch::tensor({1e6F});
  EXPECT_EQ(initializer_of(builder, builder.constant(large, "", /*keep_float=*/true)).type,
            ElementType::kFloat);
  EXPECT_EQ(initializer_of(builder, builder.scalar(1e6, torch::kDouble)).type,
            ElementType::kDouble);
  builder.set_wide(true);
  EXPECT_EQ(initializer_of(builder, builder.constant(large, "weight")).type, ElementType::kFloat);
}

TEST(OnnxGraphBuilder, ComputesSizesFromTheBatch) {
  GraphBuilder builder(20, /*half=*/false);
  builder.declare("x", ElementType::kFloat);
  builder.set_batch_source("x", 1);
  builder.sizes({static_extent(3), static_extent(4)});
  EXPECT_THAT(operators_of(builder), IsEmpty());
  builder.sizes({{.size = 7, .per_batch = 2, .offset = 3}, static_extent(4)});
  EXPECT_THAT(operators_of(builder), ElementsAre("Shape", "Mul", "Add", "Concat"));
  const onnx::OnnxNode shape = builder.graph().nodes[0];
  EXPECT_EQ(std::get<std::int64_t>(shape.attributes.at(0).value), 1);
  EXPECT_EQ(std::get<std::int64_t>(shape.attributes.at(1).value), 2);
  EXPECT_EQ(builder.sizes({kBatchRows}), shape.outputs.at(0)) << "which is there";
}

// In a graph of float16, an operation may be lowered again without the nodes of the first attempt.
TEST(OnnxGraphBuilder, ReadsTheBatchAgainIfItsNodeWasRemoved) {
  GraphBuilder builder(20, /*half=*/true);
  builder.declare("x", ElementType::kFloat);
  builder.set_batch_source("x", 0);
  builder.sizes({kBatchRows});
  builder.keep_nodes(0);
  const std::string batch = builder.sizes({kBatchRows});
  EXPECT_THAT(operators_of(builder), ElementsAre("Shape"));
  builder.add("Relu", {"x"});
  builder.keep_nodes(1);
  EXPECT_EQ(builder.sizes({kBatchRows}), batch);
  EXPECT_THAT(operators_of(builder), ElementsAre("Shape"));
}

// ONNX's Reshape replaces a size of 0 by the input's size, unless allowzero is set.
TEST(OnnxGraphBuilder, ReshapesToNothing) {
  struct Case {
    const char* name;
    onnx::Extents sizes;
    std::vector<std::string> operators;
    std::vector<double> numbers{};  // if they are constant
    bool allows_zero = false;
  };
  const Case cases[] = {
      {"fixed", {static_extent(2), static_extent(6)}, {"Reshape"}, {2, 6}},
      {"the batch", {kBatchRows, static_extent(6)}, {"Reshape"}, {-1, 6}},
      {"nothing", {static_extent(0), static_extent(5)}, {"Reshape"}, {0, 5}, true},
      {"nothing of the batch",
       {kBatchRows, static_extent(0)},
       {"Shape", "Concat", "Reshape"},
       {},
       true},
      {"the batch twice", {kBatchRows, kBatchRows}, {"Shape", "Concat", "Reshape"}, {}, true}};
  for (const Case& each : cases) {
    GraphBuilder builder(20, /*half=*/false);
    builder.declare("x", ElementType::kFloat);
    builder.set_batch_source("x", 0);
    builder.reshape("x", each.sizes);
    EXPECT_EQ(operators_of(builder), each.operators) << each.name;
    const onnx::OnnxNode& node = builder.graph().nodes.back();
    EXPECT_EQ(node.attributes.size(), each.allows_zero ? 1U : 0U) << each.name;
    if (each.numbers.empty()) continue;
    EXPECT_EQ(raw_text(initializer_of(builder, node.inputs.at(1))),
              raw_numbers(each.numbers, torch::kLong))
        << each.name;
  }
}

TEST(OnnxGraphBuilder, RefusesTypesThatDoNotGoTogether) {
  GraphBuilder builder(20, /*half=*/false);
  builder.declare("x", ElementType::kFloat);
  builder.declare("n", ElementType::kInt64);
  EXPECT_EQ(message_of<Unsupported>([&] { builder.add("Add", {"x", "n"}); }),
            "its arguments are of the types float32 and int64, which ONNX's Add does not take "
            "together");
  EXPECT_EQ(message_of<Unsupported>([&] { builder.add("Sqrt", {"n"}); }),
            "onnxruntime has no Sqrt for values of type int64");
  EXPECT_THAT(operators_of(builder), IsEmpty());
  builder.add("Gather", {"x", "n"});
  builder.add("Sqrt", {"refused"});  // the result of an operation that was refused
  EXPECT_THAT(operators_of(builder), ElementsAre("Gather", "Sqrt"));
}

// The condition of Where and the indices of MaxPool keep their type.
TEST(OnnxGraphBuilder, ConvertsToAWiderTypeAndBack) {
  GraphBuilder choice(20, /*half=*/false);
  for (const char* const name : {"condition", "a", "b"}) choice.declare(name, ElementType::kBool);
  const std::string chosen = choice.add("Where", {"condition", "a", "b"});
  EXPECT_THAT(operators_of(choice), ElementsAre("Cast", "Cast", "Where", "Cast"));
  EXPECT_EQ(choice.graph().nodes[2].inputs.at(0), "condition");
  EXPECT_EQ(choice.type_of(chosen), ElementType::kBool);
  GraphBuilder pool(20, /*half=*/false);
  pool.declare("x", ElementType::kInt16);
  const onnx::Names pooled = pool.add("MaxPool", {"x"}, {}, 2);
  EXPECT_THAT(operators_of(pool), ElementsAre("Cast", "MaxPool", "Cast"));
  EXPECT_EQ(pool.type_of(pooled.at(0)), ElementType::kInt16);
  EXPECT_EQ(pool.type_of(pooled.at(1)), ElementType::kInt64);
}

// A conversion of an omitted input would be a node without input. Arguments that are no elements,
// such as the sizes of a border, keep their type.
TEST(OnnxGraphBuilder, ConvertsOnlyInputsThatAreThere) {
  struct Case {
    const char* op;
    onnx::Names inputs;
    std::vector<std::string> operators;
  };
  const Case cases[] = {
      {"Clip", {"x", "y", "z"}, {"Cast x", "Cast y", "Cast z", "Clip"}},
      {"Clip", {"x", "", "z"}, {"Cast x", "Cast z", "Clip"}},
      {"Clip", {"x", "y", ""}, {"Cast x", "Cast y", "Clip"}},
      {"Clip", {"x", "", ""}, {"Cast x", "Clip"}},
      {"Clip", {"x"}, {"Cast x", "Clip"}},
      {"Max", {"x", "y", "z"}, {"Cast x", "Cast y", "Cast z", "Max"}},
      {"MatMul", {"x", "y"}, {"Cast x", "Cast y", "MatMul"}},
      {"Where", {"truth", "x", "y"}, {"Cast x", "Cast y", "Where"}},
      {"CumSum", {"x", "n"}, {"Cast x", "CumSum"}},
      {"Pad", {"x", "n", "y"}, {"Cast x", "Cast y", "Pad"}},
      {"Pad", {"x", "n", ""}, {"Cast x", "Pad"}},
      {"Pad", {"x", "n"}, {"Cast x", "Pad"}},
  };
  for (const Case& each : cases) {
    GraphBuilder builder(20, /*half=*/false);
    for (const char* const name : {"x", "y", "z"}) builder.declare(name, ElementType::kInt16);
    builder.declare("n", ElementType::kInt64);
    builder.declare("truth", ElementType::kBool);
    builder.add(each.op, each.inputs);
    std::vector<std::string> operators;
    for (const onnx::OnnxNode& node : builder.graph().nodes) {
      const std::string input = node.inputs.empty() ? "nothing" : node.inputs[0];
      operators.push_back(node.op_type == "Cast" ? "Cast " + input : node.op_type);
    }
    ASSERT_FALSE(operators.empty()) << each.op;
    EXPECT_EQ(operators.back(), lockstep::str("Cast ", each.op)) << "back to int16";
    operators.pop_back();
    EXPECT_EQ(operators, each.operators) << each.op;
  }
}

// Inputs that are omitted at the end are left out, those before others have no name.
TEST(OnnxGraphBuilder, LeavesOmittedInputsOut) {
  struct Case {
    const char* op;
    onnx::Names inputs;
    onnx::Names kept;
  };
  const Case cases[] = {{"Clip", {"x", "", "y"}, {"x", "", "y"}},
                        {"Clip", {"x", "y", ""}, {"x", "y"}},
                        {"Clip", {"x", "", ""}, {"x"}},
                        {"Pad", {"x", "n", ""}, {"x", "n"}},
                        {"Resize", {"x", "", "", "n"}, {"x", "", "", "n"}},
                        {"GRU", {"x", "y", "y", "", "", ""}, {"x", "y", "y"}},
                        {"LSTM", {"x", "y", "y", "", "", "y", ""}, {"x", "y", "y", "", "", "y"}}};
  for (const Case& each : cases) {
    GraphBuilder builder(20, /*half=*/false);
    for (const char* const name : {"x", "y"}) builder.declare(name, ElementType::kFloat);
    builder.declare("n", ElementType::kInt64);
    builder.add(each.op, each.inputs);
    EXPECT_THAT(operators_of(builder), ElementsAre(each.op));
    EXPECT_EQ(builder.graph().nodes.back().inputs, each.kept) << each.op;
  }
}

TEST(OnnxGraphBuilder, NumbersNamesThatAreTaken) {
  GraphBuilder builder(20, /*half=*/false);
  builder.declare("x", ElementType::kFloat);
  EXPECT_EQ(builder.unique_name("x"), "x");
  EXPECT_EQ(builder.unique_name("x"), "x.1");
  EXPECT_EQ(builder.unique_name("x"), "x.2");
  builder.set_scope("fc");
  EXPECT_EQ(builder.add("Relu", {"x"}), "fc/Relu");
  EXPECT_EQ(builder.add("Relu", {"x"}), "fc/Relu_1");
  EXPECT_THAT(builder.add("Split", {"x"}, {}, 2), ElementsAre("fc/Split", "fc/Split:1"));
  builder.set_scope("");
  EXPECT_EQ(builder.add("Relu", {"x"}), "Relu");
  const onnx::OnnxNode* const maker = builder.maker("fc/Split:1");
  ASSERT_NE(maker, nullptr);
  EXPECT_EQ(maker->op_type, "Split");
  EXPECT_EQ(builder.maker("x"), nullptr);
}

// An operation with arguments that LibTorch's tracer does not record in C++, such as a list that is
// not taken apart.
class OnnxRecordedOperation : public ::testing::Test {
 protected:
  OnnxRecordedOperation() {
    torch::jit::parseIR(R"IR(
graph(%parts : Tensor[], %x : Float(2, 3)):
  %dim : int = prim::Constant[value=1]()
  %text : str = prim::Constant[value="sum"]()
  %none : NoneType = prim::Constant()
  %joined : Float(2, 6) = aten::cat(%parts, %dim, %text, %none, %x)
  return (%joined)
)IR",
                        graph.get());
    builder.declare("wide", ElementType::kFloat);
    builder.declare("whole", ElementType::kInt64);
    std::vector<onnx::Operand>& members = operands[graph->inputs()[0]].members;
    members.push_back({.constant = torch::tensor({1.0F}), .wish = "table"});
    members.push_back({.name = "wide", .is_float32 = true});
  }

  onnx::RecordedOperation operation() {
    return {*graph->outputs()[0]->node(), trace, operands, builder, /*fold_batch_norm=*/true};
  }
  std::string refusal(void (*use)(onnx::RecordedOperation& op)) {
    return message_of<Unsupported>([&] {
      onnx::RecordedOperation op = operation();
      use(op);
    });
  }

  const std::shared_ptr<torch::jit::Graph> graph = std::make_shared<torch::jit::Graph>();
  const onnx::Trace trace{};
  onnx::Operands operands;
  GraphBuilder builder{20, /*half=*/true};
};

// A constant becomes an initializer, and a value in float32 is converted to float16.
TEST_F(OnnxRecordedOperation, NamesTheMembersOfAList) {
  const onnx::Names names = operation().tensors(0);
  ASSERT_EQ(names.size(), 2U);
  EXPECT_EQ(names[0], "table");
  EXPECT_EQ(initializer_of(builder, "table").type, ElementType::kFloat16);
  EXPECT_THAT(operators_of(builder), ElementsAre("Cast"));
  EXPECT_EQ(builder.graph().nodes[0].inputs, onnx::Names{"wide"});
  EXPECT_EQ(builder.graph().nodes[0].outputs, onnx::Names{names[1]});
  EXPECT_EQ(builder.type_of(names[1]), ElementType::kFloat16);
}

TEST_F(OnnxRecordedOperation, HasDefaultsForNone) {
  const onnx::RecordedOperation op = operation();
  EXPECT_EQ(op.arguments(), 5U);
  EXPECT_TRUE(op.has(1) && op.has(2) && op.is_list(0) && op.is_tensor(4));
  EXPECT_FALSE(op.has(3) || op.has(5) || op.is_tensor(0) || op.is_tensor(1) || op.is_list(4));
  EXPECT_EQ(op.integer_or(1, 7), 1);
  EXPECT_EQ(op.integer_or(3, 7), 7);
  EXPECT_EQ(op.number_or(1, 0.5), 1);
  EXPECT_EQ(op.number_or(3, 0.5), 0.5);
  EXPECT_EQ(op.text(2), "sum");
  EXPECT_TRUE(op.is_used(0)) << "by the graph";
  EXPECT_EQ(op.operand(graph->inputs()[1]), nullptr);
}

TEST_F(OnnxRecordedOperation, SaysWhatAnArgumentIsNot) {
  using onnx::RecordedOperation;
  EXPECT_EQ(refusal([](RecordedOperation& op) { op.integer(0); }),
            "an argument is known only when the model runs");
  EXPECT_EQ(refusal([](RecordedOperation& op) { op.integer(2); }),
            "an argument is String where a number was expected");
  EXPECT_EQ(refusal([](RecordedOperation& op) { op.integers(0); }),
            "an argument is not a list of numbers");
  EXPECT_EQ(refusal([](RecordedOperation& op) { op.tensors(1); }),
            "an argument is not a list of tensors");
  EXPECT_EQ(refusal([](RecordedOperation& op) { op.tensor(1); }), "an argument is not a tensor");
  EXPECT_EQ(refusal([](RecordedOperation& op) { op.tensor(0); }), "an argument is not a tensor");
  EXPECT_EQ(refusal([](RecordedOperation& op) { op.type(1); }), "the type of a tensor is unknown");
  EXPECT_EQ(refusal([](RecordedOperation& op) { op.sizes(4); }),
            "the sizes of a tensor are unknown");
  EXPECT_EQ(refusal([](RecordedOperation& op) { op.bind("whole"); }),
            "its lowering is not for arguments of this type: the result would be int64, expected "
            "float16");
  EXPECT_EQ(refusal([](RecordedOperation& op) { op.fixed({.size = 2, .per_batch = 1}, "a side"); }),
            "a side follows the batch; expected a fixed size");
}

}  // namespace
}  // namespace lockstep
