#include <lockstep/program/graph/modes.h>

#include <algorithm>
#include <iterator>
#include <set>
#include <utility>

#include <lockstep/program/graph/operator_name.h>

namespace lockstep::program {
namespace {

struct ModeRule {
  std::string_view operation;
  std::string_view argument;
  bool is_probability = false;
  // If this argument is None, training statistics are used in both modes.
  std::string_view statistics{};
};

constexpr ModeRule kModeRules[] = {
    {"aten::batch_norm", "training", false, "running_mean"},
    {"aten::native_batch_norm", "training", false, "running_mean"},
    {"aten::_native_batch_norm_legit", "training", false, "running_mean"},
    {"aten::_native_batch_norm_legit_functional", "training", false, "running_mean"},
    {"aten::instance_norm", "use_input_stats", false, "running_mean"},
    {"aten::dropout", "train"},
    {"aten::dropout_", "train"},
    {"aten::native_dropout", "train"},
    {"aten::feature_dropout", "train"},
    {"aten::feature_dropout_", "train"},
    {"aten::alpha_dropout", "train"},
    {"aten::alpha_dropout_", "train"},
    {"aten::feature_alpha_dropout", "train"},
    {"aten::feature_alpha_dropout_", "train"},
    {"aten::rrelu", "training"},
    {"aten::rrelu_", "training"},
    {"aten::lstm", "train"},
    {"aten::gru", "train"},
    {"aten::rnn_tanh", "train"},
    {"aten::rnn_relu", "train"},
    {"aten::scaled_dot_product_attention", "dropout_p", true},
};

// Forms of batch normalization, after run_decompositions(), that have one mode.
constexpr std::string_view kOneMode[] = {
    "aten::_native_batch_norm_legit_no_training", "aten::_batch_norm_with_update",
    "aten::_batch_norm_with_update_functional", "aten::_batch_norm_no_update"};

constexpr std::string_view kBatchesTracked = "num_batches_tracked";
constexpr std::string_view kRunningMean = "running_mean";

std::string name_in_dispatcher(const Node& node) {
  const auto known = operator_name(node.target);
  return known ? known->name : std::string();
}

const ModeRule* mode_rule(const Node& node) {
  const std::string name = name_in_dispatcher(node);
  const auto found = std::find_if(std::begin(kModeRules), std::end(kModeRules),
                                  [&](const ModeRule& rule) { return rule.operation == name; });
  return found == std::end(kModeRules) ? nullptr : found;
}

bool is_none(const Argument* argument) {
  return argument == nullptr || std::holds_alternative<None>(argument->value);
}

// Whether `argument` is the number 0, in floating point or not.
bool is_zero(const Argument& argument) {
  const auto* real = std::get_if<double>(&argument.value);
  const auto* integer = std::get_if<std::int64_t>(&argument.value);
  return (real != nullptr && *real == 0) || (integer != nullptr && *integer == 0);
}

// A batch normalization without a momentum averages over all batches. In evaluation mode Python
// exports it like one whose momentum is 0, which keeps its statistics.
bool has_lost_momentum(const Node& node) {
  const Argument* momentum = find_input(node, "momentum");
  const Argument* training = find_input(node, "training");
  const auto* is_training = training == nullptr ? nullptr : std::get_if<bool>(&training->value);
  return momentum != nullptr && is_zero(*momentum) && is_training != nullptr && !*is_training;
}

// Whether the graph has no probability for `node`, which Python replaces by 0 in evaluation mode.
bool has_no_probability(const Node& node) {
  const ModeRule* rule = mode_rule(node);
  if (rule == nullptr || !rule->is_probability) return false;
  const Argument* probability = find_input(node, rule->argument);
  return probability == nullptr || is_zero(*probability);  // the operator's default is 0
}

// Whether all calls in `module` and below it that show a mode show training; nothing if none does.
std::optional<bool> mode_within(std::string_view module, const ExportModes& modes) {
  std::optional<bool> result;
  if (const auto own = modes.find(module); own != modes.end()) result = own->second;
  const std::string below = module.empty() ? std::string() : std::string(module) + '.';
  for (auto mode = modes.lower_bound(below); mode != modes.end(); ++mode) {
    if (!mode->first.starts_with(below)) break;
    result = result.value_or(true) && mode->second;
  }
  return result;
}

// The innermost module around the call in which a mode shows decides, because a part of a model can
// have another mode than the rest.
bool was_exported_in_training(const Node& node, const ExportModes& modes) {
  std::optional<bool> result;
  for_each_module(node.module_path, [&](std::string_view module) {
    if (!result) result = mode_within(module, modes);
  });
  return result.value_or(false);
}

bool has_fixed_mode(const Node& node, const ExportModes& modes) {
  const std::string name = name_in_dispatcher(node);
  if (std::find(std::begin(kOneMode), std::end(kOneMode), name) != std::end(kOneMode)) return true;
  if (name == "aten::batch_norm" && has_lost_momentum(node)) return true;
  return has_no_probability(node) && !was_exported_in_training(node, modes);
}

bool is_stochastic_depth(const Node& node) {
  return node.module_class.ends_with("DropPath") || node.module_class.ends_with("StochasticDepth");
}

bool draws(const Node& node) {
  constexpr std::string_view kDraws[] = {"bernoulli", "rand", "dropout", "uniform"};
  return std::any_of(std::begin(kDraws), std::end(kDraws), [&](std::string_view name) {
    return node.target.find(name) != std::string::npos;
  });
}

// The last node that uses each value; the number of nodes for an output.
std::map<std::string, std::size_t> last_uses(const Graph& graph) {
  std::map<std::string, std::size_t> last;
  for (std::size_t i = 0; i < graph.nodes.size(); ++i) {
    for (const NamedArgument& input : graph.nodes[i].inputs) {
      for_each_name(input.argument, [&](const std::string& name, bool) { last[name] = i; });
    }
  }
  for (const Argument& output : graph.outputs) {
    for_each_name(output, [&](const std::string& name, bool) { last[name] = graph.nodes.size(); });
  }
  return last;
}

// Finds what the call takes and returns.
void find_ends(StochasticDepth& call, const Graph& graph,
               const std::map<std::string, std::size_t>& last) {
  std::set<std::string> inside, inputs, outputs;
  bool returns_number = false;
  for (std::size_t i = call.begin; i < call.end; ++i) {
    for (const NamedArgument& input : graph.nodes[i].inputs) {
      for_each_name(input.argument, [&](const std::string& name, bool is_number) {
        if (!is_number && !inside.contains(name)) inputs.insert(name);
      });
    }
    for (const Argument& output : graph.nodes[i].outputs) {
      for_each_name(output, [&](const std::string& name, bool is_number) {
        inside.insert(name);
        const auto used = last.find(name);
        if (used == last.end() || used->second < call.end) return;
        outputs.insert(name);
        returns_number |= is_number;
      });
    }
  }
  if (inputs.size() != 1 || outputs.size() != 1 || returns_number) return;
  call.input = *inputs.begin();
  call.output = *outputs.begin();
}

void add_export_modes(const Graph& graph, ExportModes& modes) {
  const auto add = [&](const Node& node, bool was_training) {
    bool& all_trained = modes.try_emplace(node.module_path, true).first->second;
    all_trained = all_trained && was_training;
  };
  for (const Node& node : graph.nodes) {
    if (const auto mode = mode_argument(node)) add(node, mode->was_training);
    for (const NamedArgument& input : node.inputs) {
      const auto* inner = std::get_if<Subgraph>(&input.argument.value);
      if (inner != nullptr) add_export_modes(*inner->graph, modes);
    }
  }
  // Evaluation leaves these calls out.
  for (const StochasticDepth& call : stochastic_depth_calls(graph)) {
    add(graph.nodes[call.begin], true);
  }
}

void add_fixed_modes(const Graph& graph, const ExportModes& modes,
                     std::vector<std::string>& texts) {
  const std::vector<StochasticDepth> calls = stochastic_depth_calls(graph);
  auto call = calls.begin();
  for (std::size_t i = 0; i < graph.nodes.size(); ++i) {
    const Node& node = graph.nodes[i];
    const bool begins_call = call != calls.end() && call->begin == i;
    if ((begins_call && call->output.empty()) || has_fixed_mode(node, modes)) {
      texts.push_back(call_text(node));
    }
    if (begins_call) ++call;
    for (const NamedArgument& input : node.inputs) {
      const auto* inner = std::get_if<Subgraph>(&input.argument.value);
      if (inner != nullptr) add_fixed_modes(*inner->graph, modes, texts);
    }
  }
}

// Python's name of the parameter or buffer that is the argument `argument` of `node`.
std::string state_of(const Node& node, std::string_view argument, const StateNames& states) {
  const Argument* given = find_input(node, argument);
  const auto* tensor = given == nullptr ? nullptr : std::get_if<TensorName>(&given->value);
  const auto found = tensor == nullptr ? states.end() : states.find(tensor->name);
  return found == states.end() ? std::string() : found->second;
}

}  // namespace

std::optional<ModeArgument> mode_argument(const Node& node) {
  const ModeRule* rule = mode_rule(node);
  if (rule == nullptr) return std::nullopt;
  if (!rule->statistics.empty() && is_none(find_input(node, rule->statistics))) return std::nullopt;
  const Argument* given = find_input(node, rule->argument);
  if (rule->is_probability) {
    if (has_no_probability(node)) return std::nullopt;
    const bool is_number = std::holds_alternative<double>(given->value) ||
                           std::holds_alternative<std::int64_t>(given->value);
    if (!is_number) return std::nullopt;  // the graph computes it
    return ModeArgument{rule->argument, true, true};
  }
  if (given == nullptr) return ModeArgument{rule->argument, false, false};  // the default
  const auto* is_training = std::get_if<bool>(&given->value);
  if (is_training == nullptr) return std::nullopt;
  return ModeArgument{rule->argument, false, *is_training};
}

ExportModes export_modes(const Graph& graph) {
  ExportModes modes;
  add_export_modes(graph, modes);
  return modes;
}

std::vector<std::string> fixed_modes(const Graph& graph, const ExportModes& modes) {
  std::vector<std::string> texts;
  add_fixed_modes(graph, modes, texts);
  return texts;
}

std::vector<StochasticDepth> stochastic_depth_calls(const Graph& graph) {
  const auto& nodes = graph.nodes;
  std::vector<StochasticDepth> calls;
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    if (!is_stochastic_depth(nodes[i])) continue;
    StochasticDepth call{.begin = i, .end = i + 1};
    while (call.end < nodes.size() && nodes[call.end].module_path == nodes[i].module_path &&
           is_stochastic_depth(nodes[call.end])) {
      ++call.end;
    }
    const auto at = [&](std::size_t node) {
      return nodes.begin() + static_cast<std::ptrdiff_t>(node);
    };
    if (std::any_of(at(call.begin), at(call.end), draws)) calls.push_back(call);
    i = call.end - 1;
  }
  if (calls.empty()) return calls;
  const auto last = last_uses(graph);
  for (StochasticDepth& call : calls) find_ends(call, graph, last);
  return calls;
}

std::string incremented_counter(const Node& node, const StateNames& states) {
  const std::string name = name_in_dispatcher(node);
  // run_decompositions() replaces changes in place.
  if (name != "aten::add_" && name != "aten::add") return {};
  const std::string counter = state_of(node, "self", states);
  if (!counter.ends_with(kBatchesTracked)) return {};
  const Argument* other = find_input(node, "other");
  const auto* step = other == nullptr ? nullptr : std::get_if<std::int64_t>(&other->value);
  return step != nullptr && *step == 1 ? counter : std::string();
}

std::string counter_beside(std::string mean) {
  if (!mean.ends_with(kRunningMean)) return {};
  return mean.replace(mean.size() - kRunningMean.size(), kRunningMean.size(), kBatchesTracked);
}

std::string counter_of(const Node& node, const StateNames& states) {
  if (name_in_dispatcher(node) != "aten::batch_norm") return {};
  return counter_beside(state_of(node, kRunningMean, states));
}

}  // namespace lockstep::program
