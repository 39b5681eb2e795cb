// An ONNX model as plain data, independent of LibTorch and protobuf: built by the lowering, written
// by onnx_file.h.
//
// Source: https://github.com/onnx/onnx/blob/main/onnx/onnx.proto. Values are named by strings; a
// node may use only names of graph inputs, of initializers, and of outputs of earlier nodes.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace lockstep::onnx {

/// TensorProto.DataType.
enum class ElementType : std::int32_t {
  kUndefined = 0,
  kFloat = 1,
  kUint8 = 2,
  kInt8 = 3,
  kInt16 = 5,
  kInt32 = 6,
  kInt64 = 7,
  kBool = 9,
  kFloat16 = 10,
  kDouble = 11,
  kBfloat16 = 16,
};

/// A tensor's values, little-endian and row-major, in memory that `owner` keeps alive.
struct TensorData {
  std::string name{};
  ElementType type = ElementType::kUndefined;
  std::vector<std::int64_t> sizes{};
  std::span<const std::byte> bytes{};
  std::shared_ptr<const void> owner{};
};

using AttributeValue = std::variant<std::int64_t, float, std::string, std::vector<std::int64_t>,
                                    std::vector<float>, TensorData, std::vector<std::string>>;

/// A named constant argument of a node: Attribute("axis", 1), Attribute("mode", "linear").
struct Attribute {
  template <std::integral Integer>
  Attribute(std::string n, Integer v) : name(std::move(n)), value(static_cast<std::int64_t>(v)) {}
  template <std::floating_point Float>
  Attribute(std::string n, Float v) : name(std::move(n)), value(static_cast<float>(v)) {}
  Attribute(std::string n, const char* v) : name(std::move(n)), value(std::string(v)) {}
  Attribute(std::string n, std::string v) : name(std::move(n)), value(std::move(v)) {}
  Attribute(std::string n, std::vector<std::int64_t> v) : name(std::move(n)), value(std::move(v)) {}
  Attribute(std::string n, std::vector<float> v) : name(std::move(n)), value(std::move(v)) {}
  Attribute(std::string n, std::vector<std::string> v) : name(std::move(n)), value(std::move(v)) {}
  Attribute(std::string n, TensorData v) : name(std::move(n)), value(std::move(v)) {}

  std::string name;
  AttributeValue value;
};

using Attributes = std::vector<Attribute>;

struct OnnxNode {
  std::string op_type{};
  std::string name{};
  std::vector<std::string> inputs{};  ///< an empty name stands for an omitted optional input
  std::vector<std::string> outputs{};
  Attributes attributes{};
};

/// A size of an input or output. With an empty `symbol` it is the number `size`; otherwise any size
/// is allowed, equal for all dimensions with that symbol.
struct Dimension {
  std::int64_t size = 0;
  std::string symbol{};
};

struct ValueInfo {
  std::string name{};
  ElementType type = ElementType::kUndefined;
  std::vector<Dimension> dimensions{};
};

struct Graph {
  std::string name{};
  std::vector<OnnxNode> nodes{};
  std::vector<TensorData> initializers{};
  std::vector<ValueInfo> inputs{};
  std::vector<ValueInfo> outputs{};
};

struct Model {
  int opset = 20;  ///< version of ONNX's own operators, 17 to 20
  std::string producer_name{};
  std::string producer_version{};
  std::map<std::string, std::string> metadata{};
  Graph graph{};
};

}  // namespace lockstep::onnx
