// The calls of a graph that depend on the mode of their module, training or evaluation.
//
// An export has one mode, and these rules say how its graph follows train() and eval().
#pragma once

#include <cstddef>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <lockstep/program/graph/exported_graph.h>

namespace lockstep::program {

/// An argument that depends on the mode of the module that made the call.
struct ModeArgument {
  std::string_view name{};      ///< "training"
  bool is_probability = false;  ///< a number that evaluation replaces by 0, or else a truth value
  bool was_training = true;     ///< the mode of the export
};

/// Nothing if no argument of `node` depends on the mode.
std::optional<ModeArgument> mode_argument(const Node& node);

/// For each module that has made calls which show the mode of the export, by its path: whether all
/// of these calls were exported in training mode.
using ExportModes = std::map<std::string, bool, std::less<>>;

/// The calls of the graphs in `graph` count, too.
ExportModes export_modes(const Graph& graph);

/// Calls that behave alike in both modes although Python's module may not, as text; those of the
/// graphs in `graph`, too. Attention without a dropout probability counts as having lost it, unless
/// `modes` shows that it was exported in training mode.
std::vector<std::string> fixed_modes(const Graph& graph, const ExportModes& modes);

/// A call of a module that drops samples in training mode and returns its input in evaluation mode:
/// timm.layers.drop.DropPath, torchvision.ops.stochastic_depth.StochasticDepth, and those that
/// Hugging Face calls ConvNextDropPath, SegformerDropPath, ...
struct StochasticDepth {
  std::size_t begin = 0;  ///< the first node
  std::size_t end = 0;    ///< the node after the last one
  /// The call's argument, which evaluation returns, and the call's result.
  /// Both are empty if the nodes have more inputs
  /// or results than one, so that the call cannot be skipped.
  std::string input{};
  std::string output{};
};

/// The calls of `graph` that draw random numbers, in order.
std::vector<StochasticDepth> stochastic_depth_calls(const Graph& graph);

/// Python's names of values that are parameters or buffers, by the names of the values.
using StateNames = std::map<std::string, std::string>;

/// The counter of batches that `node` increments: "norm.num_batches_tracked". Empty if it
/// increments none.
std::string incremented_counter(const Node& node, const StateNames& states);

/// The counter of batches of the normalization whose running mean has the name `mean`:
/// "norm.num_batches_tracked" for "norm.running_mean". Empty if `mean` is something else.
std::string counter_beside(std::string mean);

/// The counter of batches of `node`, a batch normalization with running statistics. Empty if `node`
/// is something else.
std::string counter_of(const Node& node, const StateNames& states);

}  // namespace lockstep::program
