// Checks the arguments of a program against the shapes that it was exported for.
#pragma once

#include <ATen/core/ivalue.h>

#include <span>
#include <string>
#include <vector>

#include <lockstep/program/exported_graph.h>
#include <lockstep/program/expression.h>
#include <lockstep/program/plan.h>

namespace lockstep::program {

/// An argument of forward(): a tensor, a number, or a value that the export has fixed.
struct Leaf {
  std::string name{};
  bool is_fixed = false;
  bool is_tensor = false;
  Argument fixed{};            ///< the value of a fixed one
  TensorDescription tensor{};  ///< the shape and type of a tensor
  c10::ScalarType dtype{};     ///< the type of a tensor at export
};

/// The arguments of forward() in the order of the graph's inputs. Throws a CheckpointError that
/// begins with `name` if the graph does not describe them.
std::vector<Leaf> leaves_of(const ExportedGraph& program, const std::string& name);

/// "float32[s0, 3, 224, 224]"
std::string type_text(const Leaf& leaf);

/// Throws a ConfigError that begins with `name` if a value has another dtype or shape than its
/// leaf, or if sizes that must be equal are not. Floating types follow `home`, as parameters do.
/// Like Python, accepts a size below 2 for a symbol of which the export only knows that it is at
/// least 2: exporting always assumes that.
void check_inputs(const std::vector<Leaf>& leaves, std::span<const c10::IValue> values,
                  const std::map<std::string, SymbolRange>& ranges, const Home& from,
                  const Home& home, const std::string& name);

}  // namespace lockstep::program
