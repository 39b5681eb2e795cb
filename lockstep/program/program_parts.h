// What a Program consists of, for the files of this room.
#pragma once

#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <lockstep/program/graph/exported_graph.h>
#include <lockstep/program/graph/modes.h>
#include <lockstep/program/guards.h>
#include <lockstep/program/input_check.h>
#include <lockstep/program/module_tree.h>
#include <lockstep/program/plan.h>
#include <lockstep/program/program.h>

namespace lockstep {

/// What all clones of a program share.
struct ProgramImpl::Source {
  std::string name{};
  program::ExportedGraph graph{};
  ProgramOptions options{};
  program::Home home{};                      ///< at export
  std::optional<std::size_t> home_tensor{};  ///< the input of the graph that decides on it
  bool changes_inputs = false;               ///< whether a call writes to its arguments
  /// For each input of the graph, whether it gets the format channels_last; empty: none does.
  std::vector<bool> channels_last{};
  std::vector<program::Leaf> leaves{};
  std::size_t free_leaves = 0;  ///< how many are not fixed
  std::optional<program::InputCheck> input_check{};
  std::optional<program::Guards> guards{};
  program::StateNames state_names{};
  program::ExportModes export_modes{};  ///< a stage has those of its whole program
  std::vector<std::string> fixed_modes{};
  /// For each output that is no result: the input of the graph, or the leaf, that it is written to.
  std::vector<std::size_t> written{};

  /// Throws a CheckpointError that begins with `name` if the graph lacks a description. `origin` is
  /// the program that `graph` is a stage or another form of: it knows the home and the modes of the
  /// export, which a part of the graph may not show.
  static std::shared_ptr<const Source> make(std::string name, program::ExportedGraph graph,
                                            const ProgramOptions& options,
                                            const Source* origin = nullptr);
  /// Programs that share this share the plan of each home. Safe to call from any thread.
  std::shared_ptr<const program::Plan> plan(const program::Home& home_now) const;

 private:
  void find_home();

  mutable std::mutex plans_mutex_;
  mutable std::vector<std::pair<program::Home, std::weak_ptr<const program::Plan>>> plans_;
};

/// What a call notes of each node.
struct ProgramImpl::Record : program::NodeRecord {};

struct ProgramImpl::Parts {
  std::shared_ptr<const Source> source{};
  program::Home home{};  ///< now
  std::shared_ptr<const program::Plan> plan{};
  program::Modules modules{};
  /// The parameters, buffers and constants, at the places of the graph's inputs.
  std::vector<torch::Tensor> tensors{};

  /// Looks up the modules whose mode the plan reads.
  void find_modules(program::ModuleTree& tree);
  /// Makes another plan if the program has moved.
  void set_home(const program::Home& now);
  /// set_home() of the tensor that decides.
  void follow_tensors();
};

namespace program {

/// Whether a module of a Program holds the tensor, so that its state dict has it.
inline bool is_registered(const InputSpec& input) {
  return input.kind == InputSpec::Kind::kParameter ||
         (input.kind == InputSpec::Kind::kBuffer && input.persistent);
}

}  // namespace program
}  // namespace lockstep
