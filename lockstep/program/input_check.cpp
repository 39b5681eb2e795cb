#include <lockstep/program/input_check.h>

#include <ATen/autocast_mode.h>

#include <algorithm>
#include <optional>
#include <utility>

#include <lockstep/core/error.h>
#include <lockstep/formats/printable.h>
#include <lockstep/program/pt2_file.h>
#include <lockstep/program/signature.h>

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

class InputCheck {
 public:
  InputCheck(const std::map<std::string, SymbolRange>& ranges, const std::string& name)
      : ranges_(ranges), name_(name) {}

  void check(const Leaf& leaf, const torch::Tensor& tensor, c10::ScalarType expected) {
    if (tensor.scalar_type() != expected && !is_cast(tensor, expected)) {
      fail(leaf, "must be ", dtype_text(expected), ", got ", dtype_text(tensor.scalar_type()));
    }
    const auto dimensions = static_cast<std::int64_t>(leaf.tensor.sizes.size());
    if (tensor.dim() != dimensions) {
      fail(leaf, "must have ", dimensions, dimensions == 1 ? " dimension " : " dimensions ",
           shape_text(leaf), ", got ", sizes_text(tensor.sizes()));
    }
    for (std::int64_t i = 0; i < dimensions; ++i) {
      check_size(leaf, i, leaf.tensor.sizes[static_cast<std::size_t>(i)], tensor.size(i));
    }
  }

  // Under autocast, operators cast their arguments themselves.
  static bool is_cast(const torch::Tensor& tensor, c10::ScalarType expected) {
    const auto device = tensor.device().type();
    return c10::isFloatingType(expected) && tensor.is_floating_point() &&
           at::autocast::is_autocast_enabled(device) &&
           tensor.scalar_type() == at::autocast::get_autocast_dtype(device);
  }

  // Sizes that are expressions, when all symbols are known.
  void check_expressions() const {
    for (const auto& pending : expressions_) {
      const auto expected = evaluate(pending.expression, symbols_);
      if (expected && *expected != pending.got) {
        fail(*pending.leaf, "must have size ", *expected, " in dimension ", pending.dimension,
             ", which follows from the other sizes, got ", pending.got);
      }
    }
  }

 private:
  struct Pending {
    const Leaf* leaf = nullptr;
    std::int64_t dimension = 0;
    std::string expression{};
    std::int64_t got = 0;
  };
  struct Origin {
    std::string leaf{};
    std::int64_t dimension = 0;
  };

  template <class... Values>
  [[noreturn]] void fail(const Leaf& leaf, const Values&... values) const {
    throw ConfigError(str(name_, ": the input '", printable(leaf.name), "' ", values...));
  }

  void check_size(const Leaf& leaf, std::int64_t dimension, const Size& size, std::int64_t got) {
    if (size.expression.empty()) {
      if (size.value == got) return;
      fail(leaf, "must have size ", size.value, " in dimension ", dimension, ", got ", got,
           "; export the model with this dimension in dynamic_shapes to allow others");
    }
    const auto symbol = only_symbol(size.expression);
    if (!symbol) {
      expressions_.push_back({&leaf, dimension, size.expression, got});
      return;
    }
    const auto [known, is_new] = symbols_.emplace(*symbol, got);
    if (is_new) {
      origins_[*symbol] = {leaf.name, dimension};
      check_range(leaf, dimension, *symbol, got);
    } else if (known->second != got) {
      const Origin& origin = origins_.at(*symbol);
      fail(leaf, "must have the size of dimension ", origin.dimension, " of '",
           printable(origin.leaf), "', ", known->second, ", in dimension ", dimension, ", got ",
           got);
    }
  }

  void check_range(const Leaf& leaf, std::int64_t dimension, const std::string& symbol,
                   std::int64_t got) const {
    const auto range = ranges_.find(symbol);
    if (range == ranges_.end()) return;
    const auto& [least, most] = range->second;
    if (least && *least > 2 && got < *least) {
      fail(leaf, "must have a size of at least ", *least, " in dimension ", dimension, ", got ",
           got);
    }
    if (most && got > *most) {
      fail(leaf, "must have a size of at most ", *most, " in dimension ", dimension, ", got ", got);
    }
  }

  const std::map<std::string, SymbolRange>& ranges_;
  const std::string& name_;
  Symbols symbols_;
  std::map<std::string, Origin> origins_;
  std::vector<Pending> expressions_;
};

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
      leaf.fixed = input.argument;
    }
    leaves.push_back(std::move(leaf));
  }
  return leaves;
}

std::string type_text(const Leaf& leaf) {
  if (!leaf.is_tensor) return leaf.is_fixed ? "fixed at export" : "a number";
  return str(dtype_text(leaf.dtype), shape_text(leaf));
}

void check_inputs(const std::vector<Leaf>& leaves, std::span<const c10::IValue> values,
                  const std::map<std::string, SymbolRange>& ranges, const Home& from,
                  const Home& home, const std::string& name) {
  InputCheck check(ranges, name);
  for (std::size_t i = 0; i < leaves.size(); ++i) {
    const Leaf& leaf = leaves[i];
    if (leaf.is_tensor != values[i].isTensor() && !leaf.is_fixed) {
      throw ConfigError(str(name, ": the input '", printable(leaf.name), "' must be ",
                            leaf.is_tensor ? "a tensor" : "a number", ", got ",
                            values[i].tagKind()));
    }
    if (!leaf.is_tensor) continue;
    const bool follows = leaf.dtype == from.type && c10::isFloatingType(leaf.dtype);
    check.check(leaf, values[i].toTensor(), follows ? home.type : leaf.dtype);
  }
  check.check_expressions();
}

}  // namespace lockstep::program
