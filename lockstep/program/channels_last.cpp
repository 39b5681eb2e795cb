#include <lockstep/program/channels_last.h>

#include <torch/csrc/autograd/grad_mode.h>

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>

#include <lockstep/core/error.h>
#include <lockstep/formats/printable.h>
#include <lockstep/program/aliases.h>
#include <lockstep/program/program_parts.h>
#include <lockstep/program/torch_names.h>

namespace lockstep {
namespace program {
namespace {

constexpr std::string_view kViews[] = {"torch.ops.aten.view.default",
                                       "torch.ops.aten._unsafe_view.default"};

// Operators whose results depend on the order of the elements in memory.
constexpr std::string_view kStrideOperators[] = {
    "as_strided", "as_strided_", "as_strided_copy", "as_strided_scatter", "sym_stride",
    "set_",       "resize_",     "resize_as_",      "sym_storage_offset",
};

bool reads_strides(const Node& node) {
  constexpr std::string_view prefix = "torch.ops.aten.";
  std::string_view name = node.target;
  if (!name.starts_with(prefix)) return false;
  name.remove_prefix(prefix.size());
  name = name.substr(0, name.find('.'));
  return std::find(std::begin(kStrideOperators), std::end(kStrideOperators), name) !=
         std::end(kStrideOperators);
}

template <class Visit>
void for_each_subgraph(Node& node, const Visit& visit) {
  for (NamedArgument& input : node.inputs) {
    if (auto* subgraph = std::get_if<Subgraph>(&input.argument.value)) visit(*subgraph);
  }
}

// A tensor of one integer, such as the counter of a batch normalization. No image is a view of it.
bool is_counter(const Graph& graph, const std::string& name) {
  const auto found = graph.tensors.find(name);
  return found != graph.tensors.end() && found->second.sizes.empty() &&
         !c10::isFloatingType(scalar_type(found->second.dtype));
}

// The memory that a graph changes in place.
class Changes {
 public:
  explicit Changes(const Graph& graph, std::set<std::string> state = {})
      : graph_(graph), state_(std::move(state)) {
    for (std::size_t i = 0; i < graph.nodes.size(); ++i) add(graph.nodes[i], i);
    for (const auto& [name, node] : changed_) {
      std::size_t& last = last_by_set_.try_emplace(aliases_.root(name), node).first->second;
      last = std::max(last, node);
    }
  }

  bool empty() const { return changed_.empty(); }

  // Whether the node `first`, or one that comes after it, changes the memory of `name`.
  bool contains(const std::string& name, std::size_t first = 0) {
    const auto found = last_by_set_.find(aliases_.root(name));
    return found != last_by_set_.end() && found->second >= first;
  }

  // Whether memory that the node reads or returns is changed by it or later.
  bool touch(const Node& node, std::size_t place) {
    bool result = false;
    const auto visit = [&](const std::string& name, bool) {
      result = result || contains(name, place);
    };
    for (const NamedArgument& input : node.inputs) for_each_name(input.argument, visit);
    for (const Argument& output : node.outputs) for_each_name(output, visit);
    return result;
  }

 private:
  void add(const Node& node, std::size_t place) {
    const auto operation = find_operator(node.target);
    if (!operation) {
      // A region changes what it gets if any of its operators changes anything, and may return it.
      // Weights are no images.
      bool is_changed = false;
      for (const NamedArgument& input : node.inputs) {
        const auto* inner = std::get_if<Subgraph>(&input.argument.value);
        if (inner != nullptr) is_changed = is_changed || !Changes(*inner->graph).empty();
      }
      for (const NamedArgument& input : node.inputs) {
        for_each_name(input.argument, [&](const std::string& name, bool is_number) {
          if (!is_number) note(node, place, name, is_changed, !state_.contains(name));
        });
      }
      return;
    }
    bool returns_alias = false;
    for (const c10::Argument& result : operation->schema().returns()) {
      returns_alias |= result.alias_info() != nullptr;
    }
    const bool may_return = !returns_alias && may_return_input(*operation);
    returns_alias |= may_return;
    for (const c10::Argument& argument : operation->schema().arguments()) {
      const auto* alias = argument.alias_info();
      const Argument* given = find_input(node, argument.name());
      if (given == nullptr || (alias == nullptr && !may_return)) continue;
      for_each_name(*given, [&](const std::string& name, bool is_number) {
        const bool is_changed = alias != nullptr && alias->isWrite();
        if (!is_number) note(node, place, name, is_changed, returns_alias);
      });
    }
  }

  void note(const Node& node, std::size_t place, const std::string& operand, bool is_changed,
            bool is_returned) {
    if (is_counter(graph_, operand)) return;
    if (is_changed) changed_.emplace_back(operand, place);
    if (!is_returned) return;
    for (const Argument& output : node.outputs) {
      for_each_name(output, [&](const std::string& name, bool is_number) {
        if (!is_number) aliases_.unite(operand, name);
      });
    }
  }

  const Graph& graph_;
  std::set<std::string> state_;  // parameters, buffers and constants
  AliasSets aliases_;
  std::vector<std::pair<std::string, std::size_t>> changed_;  // values, and the nodes that change
  std::map<std::string, std::size_t> last_by_set_;            // the last change of a set's memory
};

// Replaces the views of `graph` and its subgraphs. Those of memory that is changed later stay; all
// do with `keeps_views`.
void replace_views(Graph& graph, Changes& changes, bool keeps_views, std::string_view file) {
  for (std::size_t i = 0; i < graph.nodes.size(); ++i) {
    Node& node = graph.nodes[i];
    if (reads_strides(node)) {
      throw ConfigError(str(file, ": ", formats::printable(node.target),
                            node.source.empty() ? "" : " at ", node.source,
                            " depends on the order of elements in memory; load the program without "
                            "channels_last"));
    }
    const bool stays = keeps_views || changes.touch(node, i);
    for_each_subgraph(node, [&](Subgraph& subgraph) {
      auto copy = std::make_shared<Graph>(*subgraph.graph);
      Changes inner(*subgraph.graph);
      replace_views(*copy, inner, stays, file);
      subgraph.graph = std::move(copy);
    });
    if (stays || std::find(std::begin(kViews), std::end(kViews), node.target) == std::end(kViews)) {
      continue;
    }
    node.target = "torch.ops.aten.reshape.default";
    for (NamedArgument& input : node.inputs) {
      if (input.name == "size") input.name = "shape";
    }
  }
}

}  // namespace

std::vector<bool> to_channels_last(ExportedGraph& program, std::string_view file) {
  std::set<std::string> state;
  for (const InputSpec& input : program.inputs) {
    if (is_user(input)) continue;
    for_each_name(input.argument, [&](const std::string& name, bool) { state.insert(name); });
  }
  const auto& tensors = program.graph.tensors;
  Changes changes(program.graph, std::move(state));
  replace_views(program.graph, changes, /*keeps_views=*/false, file);
  std::vector<bool> result;
  for (const InputSpec& input : program.inputs) {
    const auto* value = std::get_if<TensorName>(&input.argument.value);
    const auto found = value == nullptr ? tensors.end() : tensors.find(value->name);
    const bool has_kind = input.kind == InputSpec::Kind::kParameter ||
                          (input.kind == InputSpec::Kind::kUser && !input.is_from_stage);
    result.push_back(has_kind && found != tensors.end() && found->second.sizes.size() == 4 &&
                     c10::isFloatingType(scalar_type(found->second.dtype)) &&
                     !changes.contains(value->name));
  }
  return result;
}

void give_channels_last(torch::Tensor& tensor) {
  const torch::NoGradGuard no_grad;
  // contiguous() would keep the strides of a tensor that is dense in both formats (one channel).
  tensor.set_data(tensor.to(tensor.options(), /*non_blocking=*/false, /*copy=*/true,
                            torch::MemoryFormat::ChannelsLast));
}

}  // namespace program

void ProgramImpl::to_channels_last() {
  if (!parts_->source->options.channels_last) {
    const Source& source = *parts_->source;
    ProgramOptions options = source.options;
    options.channels_last = true;
    parts_->source = Source::make(source.name, source.graph, options, &source);
    parts_->plan = parts_->source->plan(parts_->home);
  }
  const auto& inputs = parts_->source->graph.inputs;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    torch::Tensor& tensor = parts_->tensors[i];
    if (!parts_->source->channels_last[i] || !tensor.defined()) continue;
    // Tensors that share memory go on doing so.
    if (tensor.storage().use_count() == 1) program::give_channels_last(tensor);
  }
}

}  // namespace lockstep
