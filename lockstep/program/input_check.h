// Checks the arguments of a program against the shapes that it was exported for.
#pragma once

#include <ATen/core/ivalue.h>

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include <lockstep/program/graph/exported_graph.h>
#include <lockstep/program/plan.h>

namespace lockstep::program {

/// An argument of forward(): a tensor, a number, or a value that the export has fixed.
struct Leaf {
  std::string name{};
  bool is_fixed = false;
  bool is_tensor = false;
  c10::IValue fixed{};         ///< the value of a fixed one
  TensorDescription tensor{};  ///< the shape and type of a tensor
  c10::ScalarType dtype{};     ///< the type of a tensor at export
};

/// The arguments of forward() in the order of the graph's inputs. Throws a CheckpointError that
/// begins with `name` if the graph does not describe them.
std::vector<Leaf> leaves_of(const ExportedGraph& program, const std::string& name);

/// "float32[s0, 3, 224, 224]"
std::string type_text(const Leaf& leaf);

/// Compares arguments with the leaves. Immutable.
class InputCheck {
 public:
  /// Refers to `leaves`, whose floating types follow the home of the program if they are those of
  /// `from`, as parameters do. `name` is the file's, for messages.
  InputCheck(std::span<const Leaf> leaves, const std::map<std::string, SymbolRange>& ranges,
             const Home& from, std::string name);

  /// Throws a ConfigError if one of `values`, one for each leaf, has another dtype or shape than
  /// its leaf, or if sizes that must be equal are not. Like Python, accepts a size below 2 for a
  /// symbol of which the export only knows that it is at least 2: exporting always assumes that.
  void check(std::span<const c10::IValue> values, const Home& home) const;

 private:
  // A symbol, with the first dimension that has it.
  struct Symbol {
    std::string name{};
    std::size_t leaf = 0;
    std::size_t dimension = 0;
    SymbolRange range{};
  };
  static constexpr int kFixedSize = -1;
  static constexpr int kExpression = -2;

  template <class... Values>
  [[noreturn]] void fail(const Leaf& leaf, const Values&... values) const;
  void check_type(const Leaf& leaf, const at::Tensor& tensor, const Home& home) const;
  void check_sizes(std::size_t leaf, c10::IntArrayRef sizes, std::span<std::int64_t> symbols) const;
  void check_range(const Symbol& symbol, std::int64_t got) const;
  void check_expressions(std::span<const c10::IValue> values,
                         std::span<const std::int64_t> symbols) const;

  std::span<const Leaf> leaves_;
  Home from_;
  std::string name_;
  std::vector<Symbol> symbols_;
  std::vector<std::vector<int>> sizes_;  // for each size of each leaf: its symbol, or what it is
  bool has_expressions_ = false;
};

}  // namespace lockstep::program
