#include <lockstep/program/input_check.h>

#include <ATen/autocast_mode.h>
#include <c10/util/SmallVector.h>
#include <torch/types.h>

#include <algorithm>
#include <optional>
#include <type_traits>
#include <utility>
#include <variant>

#include <lockstep/core/error.h>
#include <lockstep/formats/printable.h>
#include <lockstep/program/graph/expression.h>
#include <lockstep/program/graph/pt2_file.h>
#include <lockstep/program/graph/signature.h>
#include <lockstep/program/torch_names.h>

namespace lockstep::program {
namespace {

using formats::printable;

// "s0" of "Symbol('s0', positive=True, integer=True)".
std::string size_text(const Size& size) {
  if (size.expression.empty()) return str(size.value);
  return only_symbol(size.expression).value_or(std::string("?"));
}

std::string sizes_text(c10::IntArrayRef sizes) {
  std::string text = "[";
  for (std::size_t i = 0; i < sizes.size(); ++i) text += str(i == 0 ? "" : ", ", sizes[i]);
  return text + "]";
}

std::string shape_text(const Leaf& leaf) {
  std::string text = "[";
  for (std::size_t i = 0; i < leaf.tensor.sizes.size(); ++i) {
    text += str(i == 0 ? "" : ", ", size_text(leaf.tensor.sizes[i]));
  }
  return text + "]";
}

// "float32" as Python calls it; LibTorch's own name for other types.
std::string dtype_text(c10::ScalarType type) {
  for (std::int64_t code = 1; code < 64; ++code) {
    const ScalarTypeInfo* info = scalar_type_info({code});
    if (info != nullptr && scalar_type({code}) == type) return info->name;
  }
  return c10::toString(type);
}

// Under autocast, operators cast their arguments themselves.
bool is_cast(const torch::Tensor& tensor, c10::ScalarType expected) {
  const auto device = tensor.device().type();
  return c10::isFloatingType(expected) && tensor.is_floating_point() &&
         at::autocast::is_autocast_enabled(device) &&
         tensor.scalar_type() == at::autocast::get_autocast_dtype(device);
}

// The value that an export has fixed, None if it is no number or text.
c10::IValue fixed_value(const Argument& argument) {
  return std::visit(
      [](const auto& value) -> c10::IValue {
        using Type = std::decay_t<decltype(value)>;
        if constexpr (std::is_same_v<Type, bool> || std::is_same_v<Type, std::int64_t> ||
                      std::is_same_v<Type, double> || std::is_same_v<Type, std::string>) {
          return value;
        } else {
          return {};
        }
      },
      argument.value);
}

}  // namespace

std::vector<Leaf> leaves_of(const ExportedGraph& program, const std::string& name) {
  const std::vector<std::string> names = leaf_names(program);
  std::vector<Leaf> leaves;
  for (const InputSpec& input : program.inputs) {
    if (!is_user(input)) continue;
    Leaf leaf{.name = leaves.size() < names.size() ? names[leaves.size()] : str(leaves.size())};
    if (const auto* tensor = std::get_if<TensorName>(&input.argument.value)) {
      const auto found = program.graph.tensors.find(tensor->name);
      if (found == program.graph.tensors.end()) {
        throw CheckpointError(
            str(name, ": the graph does not describe the input '", printable(leaf.name), "'"));
      }
      leaf.is_tensor = true;
      leaf.tensor = found->second;
      if (scalar_type_info(leaf.tensor.dtype) == nullptr) {
        throw CheckpointError(str(name, ": the input '", printable(leaf.name), "' has the dtype ",
                                  leaf.tensor.dtype.code, ", which is not supported"));
      }
      leaf.dtype = scalar_type(leaf.tensor.dtype);
    } else {
      leaf.is_fixed = !std::holds_alternative<NumberName>(input.argument.value);
      leaf.fixed = fixed_value(input.argument);
    }
    leaves.push_back(std::move(leaf));
  }
  return leaves;
}

std::string type_text(const Leaf& leaf) {
  if (!leaf.is_tensor) return leaf.is_fixed ? "fixed at export" : "a number";
  return str(dtype_text(leaf.dtype), shape_text(leaf));
}

InputCheck::InputCheck(std::span<const Leaf> leaves,
                       const std::map<std::string, SymbolRange>& ranges, const Home& from,
                       std::string name)
    : leaves_(leaves), from_(from), name_(std::move(name)) {
  for (std::size_t leaf = 0; leaf < leaves.size(); ++leaf) {
    std::vector<int>& kinds = sizes_.emplace_back();
    for (const Size& size : leaves[leaf].tensor.sizes) {
      const auto symbol = only_symbol(size.expression);
      if (!symbol) {
        kinds.push_back(size.expression.empty() ? kFixedSize : kExpression);
        has_expressions_ |= !size.expression.empty();
        continue;
      }
      const auto known = std::find_if(symbols_.begin(), symbols_.end(),
                                      [&](const Symbol& other) { return other.name == *symbol; });
      kinds.push_back(static_cast<int>(known - symbols_.begin()));
      if (known != symbols_.end()) continue;
      Symbol made{.name = *symbol, .leaf = leaf, .dimension = kinds.size() - 1};
      if (const auto range = ranges.find(*symbol); range != ranges.end()) {
        made.range = range->second;
      }
      symbols_.push_back(std::move(made));
    }
  }
}

template <class... Values>
void InputCheck::fail(const Leaf& leaf, const Values&... values) const {
  throw ConfigError(str(name_, ": the input '", printable(leaf.name), "' ", values...));
}

void InputCheck::check(std::span<const c10::IValue> values, const Home& home) const {
  c10::SmallVector<std::int64_t, 8> symbols(symbols_.size());
  for (std::size_t i = 0; i < leaves_.size(); ++i) {
    const Leaf& leaf = leaves_[i];
    if (leaf.is_tensor != values[i].isTensor() && !leaf.is_fixed) {
      fail(leaf, "must be ", leaf.is_tensor ? "a tensor" : "a number", ", got ",
           values[i].tagKind());
    }
    if (!leaf.is_tensor) continue;
    const torch::Tensor& tensor = values[i].toTensor();
    check_type(leaf, tensor, home);
    check_sizes(i, tensor.sizes(), {symbols.data(), symbols.size()});
  }
  if (has_expressions_) check_expressions(values, {symbols.data(), symbols.size()});
}

void InputCheck::check_type(const Leaf& leaf, const at::Tensor& tensor, const Home& home) const {
  const bool follows = leaf.dtype == from_.type && c10::isFloatingType(leaf.dtype);
  const c10::ScalarType expected = follows ? home.type : leaf.dtype;
  if (tensor.scalar_type() == expected || is_cast(tensor, expected)) return;
  fail(leaf, "must be ", dtype_text(expected), ", got ", dtype_text(tensor.scalar_type()));
}

void InputCheck::check_sizes(std::size_t leaf_index, c10::IntArrayRef sizes,
                             std::span<std::int64_t> symbols) const {
  const Leaf& leaf = leaves_[leaf_index];
  const std::vector<int>& kinds = sizes_[leaf_index];
  if (sizes.size() != kinds.size()) {
    fail(leaf, "must have ", kinds.size(), kinds.size() == 1 ? " dimension " : " dimensions ",
         shape_text(leaf), ", got ", sizes_text(sizes));
  }
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    const std::int64_t got = sizes[i];
    if (kinds[i] == kExpression) continue;
    if (kinds[i] == kFixedSize) {
      const std::int64_t expected = leaf.tensor.sizes[i].value;
      if (got == expected) continue;
      fail(leaf, "must have size ", expected, " in dimension ", i, ", got ", got,
           "; export the model with this dimension in dynamic_shapes to allow others");
    }
    const Symbol& symbol = symbols_[static_cast<std::size_t>(kinds[i])];
    std::int64_t& known = symbols[static_cast<std::size_t>(kinds[i])];
    if (symbol.leaf == leaf_index && symbol.dimension == i) {
      known = got;
      check_range(symbol, got);
    } else if (known != got) {
      fail(leaf, "must have the size of dimension ", symbol.dimension, " of '",
           printable(leaves_[symbol.leaf].name), "', ", known, ", in dimension ", i, ", got ", got);
    }
  }
}

void InputCheck::check_range(const Symbol& symbol, std::int64_t got) const {
  const auto& [least, most] = symbol.range;
  const Leaf& leaf = leaves_[symbol.leaf];
  if (least && *least > 2 && got < *least) {
    fail(leaf, "must have a size of at least ", *least, " in dimension ", symbol.dimension,
         ", got ", got);
  }
  if (most && got > *most) {
    fail(leaf, "must have a size of at most ", *most, " in dimension ", symbol.dimension, ", got ",
         got);
  }
}

// Sizes that are expressions, when all symbols are known.
void InputCheck::check_expressions(std::span<const c10::IValue> values,
                                   std::span<const std::int64_t> symbols) const {
  Symbols known;
  for (std::size_t i = 0; i < symbols.size(); ++i) known.emplace(symbols_[i].name, symbols[i]);
  for (std::size_t leaf = 0; leaf < leaves_.size(); ++leaf) {
    for (std::size_t i = 0; i < sizes_[leaf].size(); ++i) {
      if (sizes_[leaf][i] != kExpression) continue;
      const auto expected = evaluate(leaves_[leaf].tensor.sizes[i].expression, known);
      const std::int64_t got = values[leaf].toTensor().size(static_cast<std::int64_t>(i));
      if (!expected || *expected == got) continue;
      fail(leaves_[leaf], "must have size ", *expected, " in dimension ", i,
           ", which follows from the other sizes, got ", got);
    }
  }
}

}  // namespace lockstep::program
