// What a Program consists of, for the files of this room.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <lockstep/program/exported_graph.h>
#include <lockstep/program/guards.h>
#include <lockstep/program/input_check.h>
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
  std::optional<program::Guards> guards{};
  std::map<std::string, std::string> state_names{};  ///< Python's names by those of the values

  /// Throws a CheckpointError that begins with `name` if the graph lacks a description. A stage has
  /// the `home` of its whole program.
  static std::shared_ptr<const Source> make(
      std::string name, program::ExportedGraph graph, const ProgramOptions& options,
      const std::optional<program::Home>& home = std::nullopt);
  std::shared_ptr<const program::Plan> plan(const program::Home& home_now) const;

 private:
  void find_home();
};

struct ProgramImpl::Parts {
  std::shared_ptr<const Source> source{};
  program::Home home{};  ///< now
  std::shared_ptr<const program::Plan> plan{};
  program::Modules modules{};
  /// The parameters, buffers and constants, at the places of the graph's inputs.
  std::vector<torch::Tensor> tensors{};

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
