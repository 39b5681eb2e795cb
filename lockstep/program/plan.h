// A graph compiled for execution: operators are resolved, constant arguments stand in place, and
// each value is dropped at its last use, so that memory is that of eager Python.
#pragma once

#include <ATen/core/ivalue.h>
#include <torch/types.h>

#include <functional>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <lockstep/program/graph/exported_graph.h>
#include <lockstep/program/graph/modes.h>

namespace torch::nn {
class Module;
}

namespace lockstep::program {

/// Where a program was exported and where it runs now. Devices and floating types among the
/// constant arguments that equal `from` are replaced by those of `to`.
struct Home {
  c10::Device device = c10::kCPU;
  c10::ScalarType type = c10::kFloat;
  bool operator==(const Home&) const = default;
};

struct CompileOptions {
  std::string name{};  ///< the file, for messages
  Home from{};
  Home to{};
  /// Namespaces of operators that a file may call; see ProgramOptions.
  std::set<std::string, std::less<>> namespaces{};
  StateNames state_names{};  ///< names of the graph's inputs
  bool in_place = true;      ///< see ProgramOptions
};

/// The modules that decide between training and evaluation, by their index in Plan::modules().
using Modules = std::vector<const torch::nn::Module*>;

/// What a run notes of each node of its graph, without those of subgraphs.
struct NodeRecord {
  std::vector<double> seconds{};
  /// The sizes of the values that the node returns, in order; empty for a value that is no tensor
  /// or that no node uses. A node that the mode skips has none.
  std::vector<std::vector<std::vector<std::int64_t>>> sizes{};
};

/// Immutable. Several threads may run it at a time.
class Plan {
 public:
  /// Throws a CheckpointError that names the node and its line of Python if an operator is unknown
  /// or refused, or its arguments do not fit.
  static std::shared_ptr<const Plan> compile(const Graph& graph, const CompileOptions& options);

  /// Returns the values of the graph's outputs, for `inputs` in the order of its inputs.
  /// Fills `record`, if it is not null.
  std::vector<c10::IValue> run(std::vector<c10::IValue> inputs, const Modules& modules,
                               NodeRecord* record = nullptr) const;

  /// Paths of the Python modules whose mode the plan reads, and whether their calls were exported
  /// in training mode.
  struct Mode {
    std::string path{};
    bool is_training = false;
  };
  const std::vector<Mode>& modules() const { return *modules_; }

  /// The number of calls, without those of subgraphs.
  std::size_t size() const;

  struct Instruction;
  Plan();
  ~Plan();

 private:
  friend class Compiler;
  using Frame = std::vector<c10::IValue>;

  // `stack` is empty before and after; its memory serves one instruction after the other.
  void execute(const Instruction& instruction, Frame& frame, const Modules& modules,
               std::vector<c10::IValue>& stack) const;

  std::vector<Instruction> instructions_;
  std::size_t registers_ = 0;
  std::vector<int> inputs_;  ///< registers; -1 for an input that no node uses
  struct Output;
  std::vector<Output> outputs_;
  std::string name_;
  // Shared with the plans of subgraphs.
  std::shared_ptr<std::vector<Mode>> modules_;
};

}  // namespace lockstep::program
