// What an exported model returns.
#pragma once

#include <torch/types.h>

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include <lockstep/core/export.h>

namespace lockstep {

/// A value of the structure that the Python model returns: a tensor, a number, a text, None, or a
/// list, tuple, dict or dataclass of such values.
///
///   torch::Tensor logits = net->forward(images);        // a model that returns a tensor
///   auto outputs = net->forward({{"input_ids", ids}});
///   outputs["loss"].tensor().backward();                // a dict or dataclass
///   outputs[0]                                          // the first value of any structure
class LOCKSTEP_API ProgramOutput {
 public:
  /// What a value consists of. A kObject is a dataclass or a named tuple.
  enum class Kind { kLeaf, kList, kTuple, kDict, kObject };
  using Value =
      std::variant<std::monostate, torch::Tensor, bool, std::int64_t, double, std::string>;
  /// The names in a structure, which outputs may share; null if it has none.
  using Names = std::shared_ptr<const std::vector<std::string>>;

  ProgramOutput() = default;  ///< None
  explicit ProgramOutput(Value value) : value_(std::move(value)) {}
  ProgramOutput(Kind kind, Names names, std::vector<ProgramOutput> children)
      : kind_(kind), names_(std::move(names)), children_(std::move(children)) {}

  bool is_tensor() const { return std::holds_alternative<torch::Tensor>(value_); }
  bool is_none() const { return is_leaf() && std::holds_alternative<std::monostate>(value_); }
  bool is_leaf() const { return kind_ == Kind::kLeaf; }

  /// Throws ConfigError that describes the structure if this is not a tensor.
  const torch::Tensor& tensor() const;
  operator const torch::Tensor&() const { return tensor(); }
  /// The number, truth value or text of a leaf.
  const Value& value() const { return value_; }

  /// The number of values in a list, tuple, dict or dataclass; 0 for a leaf.
  std::size_t size() const { return children_.size(); }
  /// The keys of a dict, the fields of a dataclass or named tuple; empty for others.
  const std::vector<std::string>& names() const;
  bool contains(std::string_view name) const;
  /// Throws ConfigError that names what there is if there is no such value.
  const ProgramOutput& operator[](std::size_t index) const;
  const ProgramOutput& operator[](std::string_view name) const;
  const ProgramOutput& operator[](int index) const {
    return (*this)[static_cast<std::size_t>(index)];
  }
  const ProgramOutput& operator[](const char* name) const {
    return (*this)[std::string_view(name)];
  }

  /// The first tensor, in the order of the structure. Throws ConfigError if there is none.
  const torch::Tensor& first_tensor() const;

  /// The structure as text: "{loss: tensor, logits: tensor}".
  std::string description() const;

 private:
  // Lets for_each_tensor() visit outputs: DataParallel gathers them, and so on.
  template <class Output, class Visitor>
    requires std::same_as<std::remove_const_t<Output>, ProgramOutput>
  friend void each_tensor(Output& output, Visitor&& visit) {
    if (output.is_tensor()) visit(std::get<torch::Tensor>(output.value_));
    for (auto& child : output.children_) each_tensor(child, visit);
  }

  Kind kind_ = Kind::kLeaf;
  Value value_{};
  Names names_{};
  std::vector<ProgramOutput> children_{};
};

}  // namespace lockstep
