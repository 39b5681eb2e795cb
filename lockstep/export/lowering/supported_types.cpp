#include <lockstep/export/lowering/supported_types.h>

#include <algorithm>
#include <limits>

#include <lockstep/core/strings.h>

namespace lockstep::onnx {
namespace {

constexpr std::size_t kAllInputs = std::numeric_limits<std::size_t>::max();

// What a conversion to another type and back leaves right.
enum class Carried : std::uint8_t {
  kNot,      // nothing: a wider type gives another result
  kInteger,  // arithmetic that wraps around: only wider integers
  kAny,      // the operator only moves, compares or orders elements
};

// One letter for each type: f, d and h for float32, float64 and float16; b for booleans; c, s, i
// and l for int8 to int64; u for uint8.
struct OperatorTypes {
  std::string_view op_type;
  std::string_view types;
  Carried carried = Carried::kNot;
  std::size_t of_one_type = 1;  // inputs that must have the type of the deciding one, and itself
  int first_opset = 0;          // a later row of the same operator replaces the earlier one
};

// The types that both ONNX and the processor's kernels of onnxruntime 1.32 have in opsets 17 to 20;
// get_all_opkernel_def() of its Python module lists the latter, but its LSTM and GRU for float64
// only fail. onnxruntime itself inserts conversions for float16 where it has a kernel for float32.
constexpr OperatorTypes kOperatorTypes[] = {
    {"Abs", "fdhcsilu", Carried::kAny},
    {"Acos", "fh"},
    {"Acosh", "fh"},
    {"Add", "fdhcsilu", Carried::kInteger, 2},
    {"And", "b", Carried::kNot, 2},
    {"ArgMax", "fdhcilu", Carried::kAny},
    {"ArgMin", "fdhcilu", Carried::kAny},
    {"Asin", "fh"},
    {"Asinh", "fh"},
    {"Atan", "fh"},
    {"Atanh", "fh"},
    {"AveragePool", "fh"},
    {"BatchNormalization", "fdh", Carried::kNot, kAllInputs},
    {"BitwiseAnd", "csilu", Carried::kNot, 2},
    {"BitwiseNot", "csilu"},
    {"BitwiseOr", "csilu", Carried::kNot, 2},
    {"BitwiseXor", "csilu", Carried::kNot, 2},
    {"Cast", "fdhbcsilu"},
    {"Ceil", "fdh"},
    {"Celu", "f"},
    {"Clip", "fdhcilu", Carried::kAny, 3},
    {"Col2Im", "fh"},
    {"Concat", "fdhbcsilu", Carried::kNot, kAllInputs},
    {"Conv", "fh", Carried::kNot, kAllInputs},
    {"ConvTranspose", "fh", Carried::kNot, kAllInputs},
    {"Cos", "fdh"},
    {"Cosh", "fh"},
    {"CumSum", "fdhil", Carried::kInteger},
    {"DepthToSpace", "fdhcu", Carried::kAny},
    {"Div", "fdhcsilu", Carried::kInteger, 2},
    {"Einsum", "fdhil", Carried::kInteger, kAllInputs},
    {"Elu", "fh"},
    {"Equal", "fdhbcsilu", Carried::kAny, 2},
    {"Erf", "fh"},
    {"Exp", "fdh"},
    {"Expand", "fdhbcsilu"},
    {"Flatten", "fdhbcsilu"},
    {"Floor", "fdh"},
    {"GRU", "fh", Carried::kNot, 4},
    {"Gather", "fdhbcsilu"},
    {"GatherElements", "fdhbcsilu"},
    {"GatherND", "fdhbcsilu"},
    {"Gelu", "fh"},
    {"Gemm", "fdh", Carried::kNot, 3},
    {"GlobalAveragePool", "fh"},
    {"GlobalMaxPool", "fh", Carried::kAny},
    {"Greater", "fdhcsilu", Carried::kAny, 2},
    {"GreaterOrEqual", "fdhcsilu", Carried::kAny, 2},
    {"HardSigmoid", "fh"},
    {"HardSwish", "fh"},
    {"Identity", "fdhbcsilu"},
    {"InstanceNormalization", "fh", Carried::kNot, kAllInputs},
    {"IsInf", "fd", Carried::kAny},
    {"IsInf", "fdh", Carried::kNot, 1, 20},
    {"IsNaN", "fdh"},
    {"LSTM", "fh", Carried::kNot, 4},
    {"LayerNormalization", "fdh", Carried::kNot, kAllInputs},
    {"LeakyRelu", "fh"},
    {"Less", "fdhcsilu", Carried::kAny, 2},
    {"LessOrEqual", "fdhcsilu", Carried::kAny, 2},
    {"Log", "fdh"},
    {"LogSoftmax", "fdh"},
    {"MatMul", "fdhil", Carried::kInteger, 2},
    {"Max", "fdhcilu", Carried::kAny, kAllInputs},
    {"MaxPool", "fdhcu", Carried::kAny},
    {"Min", "fdhcilu", Carried::kAny, kAllInputs},
    {"Mod", "fdhcsilu", Carried::kInteger, 2},
    {"Mul", "fdhcsilu", Carried::kInteger, 2},
    {"Neg", "fdhcsil", Carried::kInteger},
    {"Not", "b"},
    {"Or", "b", Carried::kNot, 2},
    {"PRelu", "fh", Carried::kNot, 2},
    {"Pad", "fdhbcilu", Carried::kAny, 2},
    {"Pow", "fdhil", Carried::kNot, 2},
    {"RNN", "fh", Carried::kNot, 4},
    {"Range", "fdsil", Carried::kNot, kAllInputs},
    {"Reciprocal", "fdh"},
    {"ReduceL1", "fdhil"},
    {"ReduceL2", "fdh"},
    {"ReduceLogSumExp", "fdh"},
    {"ReduceMax", "fdhcilu", Carried::kAny},
    {"ReduceMean", "fdh"},
    {"ReduceMin", "fdhcilu", Carried::kAny},
    {"ReduceProd", "fdhil", Carried::kInteger},
    {"ReduceSum", "fdhil", Carried::kInteger},
    {"Relu", "fdhci", Carried::kAny},
    {"Reshape", "fdhbcsilu"},
    {"Resize", "fhciu"},
    {"Round", "fdh"},
    {"ScatterElements", "fdhbcsilu", Carried::kNot, 2},
    {"Selu", "fh"},
    {"Shape", "fdhbcsilu"},
    {"Shrink", "fdhcsilu"},
    {"Sigmoid", "fdh"},
    {"Sign", "fdhcsilu"},
    {"Sin", "fdh"},
    {"Sinh", "fh"},
    {"Slice", "fdhbcsilu"},
    {"Softmax", "fdh"},
    {"Softplus", "fh"},
    {"Split", "fdhbcsilu"},
    {"Sqrt", "fdh"},
    {"Squeeze", "fdhbcsilu"},
    {"Sub", "fdhcsilu", Carried::kInteger, 2},
    {"Tan", "fh"},
    {"Tanh", "fdh"},
    {"Tile", "fdhbcsilu"},
    {"TopK", "fdhcsilu", Carried::kAny},
    {"Transpose", "fdhbcsilu"},
    {"Trilu", "fdhbil", Carried::kAny},
    {"Unsqueeze", "fdhbcsilu"},
    {"Where", "fdhcilu", Carried::kAny, 2},
    {"Xor", "b", Carried::kNot, 2},
};

// Every operator has a kernel for these.
constexpr OperatorTypes kUnlisted = {"", "fh"};

const OperatorTypes& types_of(std::string_view op_type, int opset) {
  const OperatorTypes* found = &kUnlisted;
  for (const OperatorTypes& row : kOperatorTypes) {
    if (row.op_type == op_type && row.first_opset <= opset) found = &row;
  }
  return *found;
}

struct TypeLetter {
  ElementType type;
  char letter;
  const char* name;
};

constexpr TypeLetter kTypeLetters[] = {
    {ElementType::kFloat, 'f', "float32"},    {ElementType::kDouble, 'd', "float64"},
    {ElementType::kFloat16, 'h', "float16"},  {ElementType::kBool, 'b', "bool"},
    {ElementType::kInt8, 'c', "int8"},        {ElementType::kInt16, 's', "int16"},
    {ElementType::kInt32, 'i', "int32"},      {ElementType::kInt64, 'l', "int64"},
    {ElementType::kUint8, 'u', "uint8"},      {ElementType::kBfloat16, 'B', "bfloat16"},
    {ElementType::kUndefined, '?', "no type"}};

const TypeLetter& letter_of(ElementType type) {
  return *std::find_if(std::begin(kTypeLetters), std::end(kTypeLetters),
                       [type](const TypeLetter& each) { return each.type == type; });
}

bool has_letter(std::string_view types, ElementType type) {
  return types.find(letter_of(type).letter) != std::string_view::npos;
}

// Wider types, in the order of preference.
std::vector<ElementType> carriers_of(ElementType type, Carried carried) {
  std::vector<ElementType> carriers;
  const bool is_small = type == ElementType::kBool || type == ElementType::kUint8 ||
                        type == ElementType::kInt8 || type == ElementType::kInt16;
  if (carried == Carried::kAny && type == ElementType::kFloat16) return {ElementType::kFloat};
  if (carried == Carried::kNot || (!is_small && type != ElementType::kInt32)) return carriers;
  if (is_small) carriers.push_back(ElementType::kInt32);
  carriers.push_back(ElementType::kInt64);
  if (carried == Carried::kInteger) return carriers;
  if (is_small) carriers.push_back(ElementType::kFloat);
  carriers.push_back(ElementType::kDouble);
  return carriers;
}

}  // namespace

std::string type_name(ElementType type) { return letter_of(type).name; }

std::optional<ElementType> computable_type(std::string_view op_type, ElementType type, int opset) {
  const OperatorTypes& row = types_of(op_type, opset);
  if (has_letter(row.types, type)) return type;
  for (const ElementType carrier : carriers_of(type, row.carried)) {
    if (has_letter(row.types, carrier)) return carrier;
  }
  return std::nullopt;
}

std::size_t deciding_input(std::string_view op_type) { return op_type == "Where" ? 1 : 0; }

std::vector<std::size_t> inputs_of_one_type(std::string_view op_type, std::size_t count) {
  // The second input of these is sizes or indices.
  const bool are_first_and_third = op_type == "Pad" || op_type == "ScatterElements";
  const std::size_t most = types_of(op_type, std::numeric_limits<int>::max()).of_one_type;
  std::vector<std::size_t> inputs;
  for (std::size_t i = deciding_input(op_type); i < count && inputs.size() < most; ++i) {
    if (i != 1 || !are_first_and_third) inputs.push_back(i);
  }
  return inputs;
}

std::vector<ElementType> output_types(const OnnxNode& node, const std::vector<ElementType>& inputs,
                                      std::size_t outputs) {
  static constexpr std::string_view kTruths[] = {"And",   "Equal", "Greater", "GreaterOrEqual",
                                                 "IsInf", "IsNaN", "Less",    "LessOrEqual",
                                                 "Not",   "Or",    "Xor"};
  static constexpr std::string_view kIndices[] = {"ArgMax", "ArgMin", "Shape"};
  const std::string_view op = node.op_type;
  const auto is_one_of = [op](const auto& names) {
    return std::find(std::begin(names), std::end(names), op) != std::end(names);
  };
  ElementType first = inputs.at(deciding_input(op));
  if (op == "Cast") {
    first = static_cast<ElementType>(std::get<std::int64_t>(node.attributes.at(0).value));
  } else if (is_one_of(kTruths)) {
    first = ElementType::kBool;
  } else if (is_one_of(kIndices)) {
    first = ElementType::kInt64;
  }
  std::vector<ElementType> types(outputs, first);
  const bool has_indices = op == "TopK" || op == "MaxPool";
  if (has_indices && outputs > 1) types[1] = ElementType::kInt64;
  return types;
}

}  // namespace lockstep::onnx
