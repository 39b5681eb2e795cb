#include <lockstep/program/graph_cuts.h>

#include <algorithm>
#include <functional>
#include <iterator>
#include <limits>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include <lockstep/core/error.h>
#include <lockstep/formats/printable.h>
#include <lockstep/program/aliases.h>
#include <lockstep/program/graph/modes.h>
#include <lockstep/program/graph/pt2_file.h>
#include <lockstep/program/graph/saturated.h>
#include <lockstep/program/python_operators.h>
#include <lockstep/program/torch_names.h>

namespace lockstep::program {
namespace {

using formats::printable;

struct Value {
  std::int64_t made = -1;   // the node; -1 for an input of the graph
  std::int64_t first = -1;  // the first node that uses it
  std::int64_t last = -1;   // the last node that uses it; the number of nodes for an output
  bool is_number = false;
  bool is_state = false;  // a parameter, buffer or constant
};

constexpr std::string_view kSize = "torch.ops.aten.sym_size.int";

// Whether `node` computes numbers from numbers.
bool is_arithmetic(const Node& node) {
  return python_operator(node.target) != nullptr &&
         std::none_of(node.inputs.begin(), node.inputs.end(), [](const NamedArgument& input) {
           return std::holds_alternative<TensorName>(input.argument.value) ||
                  std::holds_alternative<ArgumentList>(input.argument.value);
         });
}

class Analysis {
 public:
  explicit Analysis(const ExportedGraph& program) : program_(program), nodes_(program.graph.nodes) {
    const Graph& graph = program.graph;
    for (std::size_t i = 0; i < graph.inputs.size(); ++i) {
      for_each_name(graph.inputs[i], [&](const std::string& name, bool is_number) {
        values_[name] = {.is_number = is_number, .is_state = !is_user(program.inputs[i])};
        if (program.inputs[i].kind == InputSpec::Kind::kParameter) parameters_.insert(name);
      });
    }
    for (std::size_t i = 0; i < nodes_.size(); ++i) add_node(i);
    for (const Argument& output : graph.outputs) {
      for_each_name(output, [&](const std::string& name, bool) {
        values_[name].last = static_cast<std::int64_t>(nodes_.size());
      });
    }
    add_mutations();
  }

  const std::map<std::string, Value>& values() const { return values_; }

  // Goes through the places in order, with what crosses each of them.
  std::vector<Cut> cuts() {
    const std::size_t count = nodes_.size();
    std::vector<Cut> cuts(count + 1);
    cuts.front().obstacle = cuts.back().obstacle = "a stage must have nodes";
    if (const std::string* const argument = changed_argument(program_)) {
      for (Cut& cut : cuts) {
        cut.obstacle = str("the program changes its argument '", printable(*argument), "'");
      }
      return cuts;
    }
    for (const StochasticDepth& call : stochastic_depth_calls(program_.graph)) {
      for (std::size_t place = call.begin + 1; place < call.end; ++place) {
        cuts[place].obstacle =
            str("the call of '", printable(nodes_[place].module_path), "' is one unit");
      }
    }
    const std::vector<Change> changes = changes_by_set();
    // By the place after the node that makes them, and after the one that uses them last.
    std::vector<std::vector<const Named*>> made(count + 1), used(count + 1);
    for (const Named& named : values_) {
      const Value& value = named.second;
      if (value.is_state || value.last <= value.made) continue;
      made[static_cast<std::size_t>(value.made + 1)].push_back(&named);
      if (value.last < static_cast<std::int64_t>(count)) {
        used[static_cast<std::size_t>(value.last + 1)].push_back(&named);
      }
    }
    std::vector<std::vector<std::size_t>> begun(count + 1), ended(count + 1);
    for (std::size_t i = 0; i < changes.size(); ++i) {
      if (changes[i].last <= changes[i].made) continue;
      begun[static_cast<std::size_t>(changes[i].made + 1)].push_back(i);
      if (changes[i].last < static_cast<std::int64_t>(count)) {
        ended[static_cast<std::size_t>(changes[i].last + 1)].push_back(i);
      }
    }
    Crossing crossing;
    std::set<std::size_t> changing;
    for (std::size_t place = 0; place < count; ++place) {
      for (const Named* named : made[place]) add(*named, crossing);
      for (const Named* named : used[place]) remove(*named, crossing);
      changing.insert(begun[place].begin(), begun[place].end());
      for (const std::size_t i : ended[place]) changing.erase(i);
      if (!cuts[place].obstacle.empty()) continue;
      fill(cuts[place], crossing);
      if (cuts[place].obstacle.empty() && !changing.empty()) {
        const std::string& name = changes[*changing.begin()].name;
        cuts[place].obstacle = str("'", printable(name), "' is changed in place after it");
      }
    }
    return cuts;
  }

  // The argument that stands for a number in a stage which begins with the tensors `crossing`: a
  // constant, or the name of a number that `emit` has been called for.
  using Emit = std::function<void(const Node&)>;
  std::optional<Argument> compute(const std::string& number,
                                  const std::vector<std::string>& crossing,
                                  const std::set<std::string>& defined, const Emit& emit) const {
    if (defined.contains(number)) return Argument{NumberName{number}};
    const auto value = values_.find(number);
    if (value == values_.end() || value->second.made < 0) return std::nullopt;
    const Node& node = nodes_[static_cast<std::size_t>(value->second.made)];
    if (node.target == kSize) return size(node, number, crossing, emit);
    if (!is_arithmetic(node)) return std::nullopt;
    Node copy = node;
    for (NamedArgument& input : copy.inputs) {
      const auto* name = std::get_if<NumberName>(&input.argument.value);
      if (name == nullptr) continue;
      const auto known = compute(name->name, crossing, defined, emit);
      if (!known) return std::nullopt;
      input.argument = *known;
    }
    emit(copy);
    return Argument{NumberName{number}};
  }

 private:
  void add_node(std::size_t index) {
    const Node& node = nodes_[index];
    const auto at = static_cast<std::int64_t>(index);
    std::vector<std::string> inputs, outputs;
    for (const NamedArgument& input : node.inputs) {
      for_each_name(input.argument, [&](const std::string& name, bool is_number) {
        Value& value = values_[name];
        if (value.first < 0) value.first = at;
        value.last = at;
        if (!is_number) inputs.push_back(name);
      });
    }
    for (const Argument& output : node.outputs) {
      for_each_name(output, [&](const std::string& name, bool is_number) {
        values_[name] = {.made = at, .is_number = is_number};
        if (!is_number) outputs.push_back(name);
      });
    }
    const auto operation = find_operator(node.target);
    // A higher-order operator may change and return anything that it gets.
    if (!operation && node.target.starts_with("torch.ops.")) {
      for (const std::string& name : inputs) {
        if (!parameters_.contains(name)) changes_.emplace_back(name, at);
      }
    }
    bool returns_alias = false;
    if (operation) {
      for (const c10::Argument& result : operation->schema().returns()) {
        returns_alias |= result.alias_info() != nullptr;
      }
    }
    if (!operation || (!returns_alias && may_return_input(*operation))) {
      for (const std::string& output : outputs) {
        for (const std::string& input : inputs) {
          if (!parameters_.contains(input)) aliases_.unite(output, input);
        }
      }
    }
    if (!operation) return;
    // Statistics are changed, although the schema does not say so.
    for (const char* statistics : {"running_mean", "running_var"}) {
      if (node.target.find("_norm") == std::string::npos) break;
      const Argument* given = find_input(node, statistics);
      if (given == nullptr) continue;
      for_each_name(*given,
                    [&](const std::string& name, bool) { changes_.emplace_back(name, at); });
    }
    for (const c10::Argument& argument : operation->schema().arguments()) {
      if (argument.alias_info() == nullptr) continue;
      const Argument* given = find_input(node, argument.name());
      if (given == nullptr) continue;
      for_each_name(*given, [&](const std::string& name, bool) {
        if (argument.alias_info()->isWrite()) changes_.emplace_back(name, at);
        if (!returns_alias) return;
        for (const std::string& output : outputs) aliases_.unite(output, name);
      });
    }
  }

  // A buffer that an output is written to counts as changed by the node that makes the output.
  void add_mutations() {
    std::map<std::string, std::string> names;  // values by the names of the buffers
    for (const InputSpec& input : program_.inputs) {
      const auto* tensor = std::get_if<TensorName>(&input.argument.value);
      if (!is_user(input) && tensor != nullptr) names[input.target] = tensor->name;
    }
    for (std::size_t i = 0; i < program_.outputs.size(); ++i) {
      const OutputSpec& output = program_.outputs[i];
      if (output.kind != OutputSpec::Kind::kMutation) continue;
      for_each_name(program_.graph.outputs[i], [&](const std::string& value, bool) {
        const std::int64_t made = std::max<std::int64_t>(values_.at(value).made, 0);
        changes_.emplace_back(names.at(output.target), made);
      });
    }
  }

  // A set of values that share memory, which a node changes.
  struct Change {
    std::string name{};
    // The node that makes the first value of the set, or changes it first.
    std::int64_t made = std::numeric_limits<std::int64_t>::max();
    std::int64_t last = -1;  // the last change
  };
  std::vector<Change> changes_by_set() {
    std::set<std::string> has_state;
    for (const auto& [name, value] : values_) {
      if (value.is_state) has_state.insert(aliases_.root(name));
    }
    std::map<std::string, Change> sets;
    for (const auto& [name, by] : changes_) {
      Change& change = sets[aliases_.root(name)];
      change.last = std::max(change.last, by);
      if (by >= change.made) continue;
      change.made = by;
      change.name = name;
    }
    // A buffer that the graph changes must be used by one stage only: others would see it before
    // or after the change of another micro-batch.
    for (const auto& [name, value] : values_) {
      if (value.is_number) continue;
      const auto found = sets.find(aliases_.root(name));
      if (found == sets.end()) continue;
      Change& change = found->second;
      const std::int64_t made = value.is_state ? value.first : value.made;
      if (has_state.contains(found->first)) change.last = std::max(change.last, value.last);
      if (made < 0 && value.is_state) continue;  // not used
      if (made >= change.made) continue;
      change.made = made;
      change.name = name;
    }
    std::vector<Change> result;
    for (auto& [root, change] : sets) result.push_back(std::move(change));
    return result;
  }

  using Named = std::pair<const std::string, Value>;

  // The values that cross a place, in the order in which they are made, so that the order does not
  // depend on names and a number needs only those before.
  struct Crossing {
    using Values = std::set<std::pair<std::int64_t, std::string>>;
    Values tensors{};
    Values numbers{};
    std::map<std::string, int> sizes{};  // how many sizes of the tensors are this expression
  };

  void add(const Named& named, Crossing& crossing) const {
    const auto& [name, value] = named;
    (value.is_number ? crossing.numbers : crossing.tensors).emplace(value.made, name);
    if (!value.is_number) for_each_expression(name, [&](const auto& e) { ++crossing.sizes[e]; });
  }
  void remove(const Named& named, Crossing& crossing) const {
    const auto& [name, value] = named;
    (value.is_number ? crossing.numbers : crossing.tensors).erase({value.made, name});
    if (!value.is_number) for_each_expression(name, [&](const auto& e) { --crossing.sizes[e]; });
  }
  template <class Visit>
  void for_each_expression(const std::string& name, const Visit& visit) const {
    const auto described = program_.graph.tensors.find(name);
    if (described == program_.graph.tensors.end()) return;
    for (const Size& size : described->second.sizes) {
      if (!size.expression.empty()) visit(size.expression);
    }
  }

  // What crosses `cut`, and whether a number does that cannot be computed after it.
  void fill(Cut& cut, const Crossing& crossing) const {
    for (const auto& [made, name] : crossing.tensors) {
      cut.bytes = saturated_sum(cut.bytes, bytes_of(program_.graph, name));
      cut.crossing.push_back(name);
    }
    std::map<std::string, bool> known;
    for (const auto& [made, number] : crossing.numbers) {
      if (can_compute(number, crossing.sizes, known)) continue;
      cut.obstacle = str("the number '", printable(number), "' is used after it");
      return;
    }
  }

  // Numbers are checked once, although a number may be used many times.
  bool can_compute(const std::string& number, const std::map<std::string, int>& sizes,
                   std::map<std::string, bool>& known) const {
    if (const auto found = known.find(number); found != known.end()) return found->second;
    known[number] = false;
    const auto value = values_.find(number);
    if (value == values_.end() || value->second.made < 0) return false;
    const Node& node = nodes_[static_cast<std::size_t>(value->second.made)];
    bool result = false;
    if (node.target == kSize) {
      const Size* wanted = size_of(node);
      const auto found = wanted == nullptr ? sizes.end() : sizes.find(wanted->expression);
      result = wanted != nullptr &&
               (wanted->expression.empty() || (found != sizes.end() && found->second > 0));
    } else if (is_arithmetic(node)) {
      result = std::all_of(node.inputs.begin(), node.inputs.end(), [&](const auto& input) {
        const auto* name = std::get_if<NumberName>(&input.argument.value);
        return name == nullptr || can_compute(name->name, sizes, known);
      });
    }
    known[number] = result;
    return result;
  }

  // The size that `node` reads; null if it is not described.
  const Size* size_of(const Node& node) const {
    const Argument* tensor = find_input(node, "self");
    const Argument* dimension = find_input(node, "dim");
    const auto* name = tensor == nullptr ? nullptr : std::get_if<TensorName>(&tensor->value);
    const auto* dim = dimension == nullptr ? nullptr : std::get_if<std::int64_t>(&dimension->value);
    if (name == nullptr || dim == nullptr) return nullptr;
    const auto described = program_.graph.tensors.find(name->name);
    if (described == program_.graph.tensors.end()) return nullptr;
    const auto& sizes = described->second.sizes;
    const std::int64_t index = *dim < 0 ? *dim + static_cast<std::int64_t>(sizes.size()) : *dim;
    if (index < 0 || index >= static_cast<std::int64_t>(sizes.size())) return nullptr;
    return &sizes[static_cast<std::size_t>(index)];
  }

  // The size of a tensor, read from a tensor that crosses the cut.
  std::optional<Argument> size(const Node& node, const std::string& number,
                               const std::vector<std::string>& crossing, const Emit& emit) const {
    const Size* wanted = size_of(node);
    if (wanted == nullptr) return std::nullopt;
    if (wanted->expression.empty()) return Argument{wanted->value};
    for (const std::string& other : crossing) {
      const auto found = program_.graph.tensors.find(other);
      if (found == program_.graph.tensors.end()) continue;
      for (std::size_t i = 0; i < found->second.sizes.size(); ++i) {
        if (found->second.sizes[i].expression != wanted->expression) continue;
        emit({.name = node.name,
              .target = node.target,
              .inputs = {{"self", {TensorName{other}}}, {"dim", {static_cast<std::int64_t>(i)}}},
              .outputs = {{NumberName{number}}},
              .module_path = node.module_path,
              .source = node.source});
        return Argument{NumberName{number}};
      }
    }
    return std::nullopt;
  }

  const ExportedGraph& program_;
  const std::vector<Node>& nodes_;
  std::map<std::string, Value> values_;
  std::set<std::string> parameters_;
  AliasSets aliases_;
  std::vector<std::pair<std::string, std::int64_t>> changes_;  // which node changes which tensor
};

Structure tuple_of(std::size_t count) {
  Structure tuple{.kind = Structure::Kind::kTuple, .type = "builtins.tuple"};
  tuple.children.resize(count);
  return tuple;
}

// Makes the stage of the nodes from `begin` to `end`.
class StageMaker {
 public:
  StageMaker(const ExportedGraph& program, const Analysis& analysis)
      : program_(program), analysis_(analysis) {
    for (const InputSpec& input : program.inputs) {
      const std::string counter = is_user(input) ? std::string() : counter_beside(input.target);
      if (counter.empty()) continue;
      const auto& mean = std::get<TensorName>(input.argument.value).name;
      if (analysis.values().at(mean).last >= 0) means_.emplace(counter, mean);
    }
  }

  ExportedGraph make(std::size_t begin, std::size_t end, const Cut* before, const Cut* after) {
    stage_ = {};
    defined_.clear();
    stage_.graph.tensors = program_.graph.tensors;
    stage_.graph.module_classes = program_.graph.module_classes;
    stage_.ranges = program_.ranges;
    stage_.torch_version = program_.torch_version;
    std::vector<Node> nodes;
    if (before != nullptr) {
      for (const std::string& name : before->crossing) defined_.insert(name);
    }
    for (std::size_t i = begin; i < end; ++i) {
      Node node = program_.graph.nodes[i];
      for (NamedArgument& input : node.inputs) localize(input.argument, before, nodes);
      for (const Argument& output : node.outputs) {
        for_each_name(output, [&](const std::string& name, bool) { defined_.insert(name); });
      }
      nodes.push_back(std::move(node));
    }
    add_outputs(begin, end, before, after, nodes);
    add_inputs(begin, end, before);
    stage_.graph.nodes = std::move(nodes);
    return std::move(stage_);
  }

 private:
  // Lets the numbers in `argument` be computed in this stage.
  void localize(Argument& argument, const Cut* before, std::vector<Node>& nodes) {
    if (auto* list = std::get_if<ArgumentList>(&argument.value)) {
      for (Argument& item : list->items) localize(item, before, nodes);
    }
    const auto* number = std::get_if<NumberName>(&argument.value);
    if (number == nullptr || before == nullptr || defined_.contains(number->name)) return;
    if (!analysis_.values().at(number->name).is_number) return;  // a parameter or buffer
    const auto emit = [&](const Node& node) {
      bool is_new = false;
      for (const Argument& output : node.outputs) {
        for_each_name(
            output, [&](const std::string& name, bool) { is_new |= defined_.insert(name).second; });
      }
      if (is_new) nodes.push_back(node);
    };
    const auto known = analysis_.compute(number->name, before->crossing, defined_, emit);
    LOCKSTEP_CHECK(known.has_value(), "a stage cannot compute ", number->name);
    argument = *known;
  }

  void add_outputs(std::size_t begin, std::size_t end, const Cut* before, const Cut* after,
                   std::vector<Node>& nodes) {
    for (std::size_t i = 0; i < program_.outputs.size(); ++i) {
      OutputSpec output = program_.outputs[i];
      Argument argument = program_.graph.outputs[i];
      const bool is_user = output.kind == OutputSpec::Kind::kUser;
      if (is_user ? after != nullptr : !is_made_between(argument, begin, end)) continue;
      localize(argument, before, nodes);
      output.argument = argument;
      stage_.outputs.push_back(output);
      stage_.graph.outputs.push_back(argument);
    }
    if (after == nullptr) {
      stage_.results = program_.results;
      return;
    }
    for (const std::string& name : after->crossing) {
      const Argument argument{TensorName{name}};
      stage_.outputs.push_back({.argument = argument});
      stage_.graph.outputs.push_back(argument);
    }
    stage_.results = tuple_of(after->crossing.size());
  }

  bool is_made_between(const Argument& argument, std::size_t begin, std::size_t end) const {
    bool result = false;
    for_each_name(argument, [&](const std::string& name, bool) {
      const std::int64_t made = analysis_.values().at(name).made;
      result |= std::max<std::int64_t>(made, 0) >= static_cast<std::int64_t>(begin) &&
                made < static_cast<std::int64_t>(end);
    });
    return result;
  }

  // Parameters, buffers and constants that the stage uses, and those that no stage uses in the
  // first one; then the arguments. A counter of batches that the graph does not use lies with its
  // normalization, which counts in it in training mode.
  void add_inputs(std::size_t begin, std::size_t end, const Cut* before) {
    std::set<std::string> used, changed;
    for (std::size_t i = begin; i < end; ++i) {
      for (const NamedArgument& input : program_.graph.nodes[i].inputs) {
        for_each_name(input.argument, [&](const std::string& name, bool) { used.insert(name); });
      }
    }
    for (const Argument& output : stage_.graph.outputs) {
      for_each_name(output, [&](const std::string& name, bool) { used.insert(name); });
    }
    for (const OutputSpec& output : stage_.outputs) changed.insert(output.target);
    std::size_t leaf = 0;
    std::vector<std::string> names;
    for (std::size_t i = 0; i < program_.inputs.size(); ++i) {
      const InputSpec& input = program_.inputs[i];
      if (is_user(input)) {
        if (before == nullptr) add_input(input, program_.graph.inputs[i]);
        ++leaf;
        continue;
      }
      const auto& name = std::get<TensorName>(input.argument.value).name;
      const bool is_unused = analysis_.values().at(name).last < 0;
      const auto mean = means_.find(input.target);
      const bool is_counter = is_unused && mean != means_.end();
      if (used.contains(is_counter ? mean->second : name) || changed.contains(input.target) ||
          (is_unused && !is_counter && before == nullptr)) {
        add_input(input, program_.graph.inputs[i]);
      }
    }
    if (before == nullptr) {
      stage_.arguments = program_.arguments;
      stage_.argument_names = program_.argument_names;
      return;
    }
    stage_.arguments = tuple_of(2);
    stage_.arguments.children[0] = tuple_of(before->crossing.size());
    stage_.arguments.children[1] = {.kind = Structure::Kind::kDict, .type = "builtins.dict"};
    for (const std::string& name : before->crossing) {
      const Argument argument{TensorName{name}};
      add_input({.argument = argument, .is_from_stage = true}, argument);
      stage_.argument_names.push_back(name);
    }
  }

  void add_input(const InputSpec& input, const Argument& argument) {
    stage_.inputs.push_back(input);
    stage_.graph.inputs.push_back(argument);
  }

  const ExportedGraph& program_;
  const Analysis& analysis_;
  // Running means that the graph uses, by the names of the counters beside them.
  std::map<std::string, std::string> means_;
  ExportedGraph stage_;
  std::set<std::string> defined_;
};

}  // namespace

std::int64_t bytes_of(const Graph& graph, const std::string& name) {
  const auto found = graph.tensors.find(name);
  if (found == graph.tensors.end()) return 0;
  const ScalarTypeInfo* type = scalar_type_info(found->second.dtype);
  std::int64_t bytes = type == nullptr ? 0 : static_cast<std::int64_t>(type->bytes);
  for (const Size& size : found->second.sizes) {
    if (size.value <= 0) return 0;
    bytes = saturated_product(bytes, size.value);
  }
  return bytes;
}

const std::string* changed_argument(const ExportedGraph& program) {
  const auto found =
      std::ranges::find(program.outputs, OutputSpec::Kind::kUserMutation, &OutputSpec::kind);
  return found == program.outputs.end() ? nullptr : &found->target;
}

std::vector<Cut> cuts_of(const ExportedGraph& program) { return Analysis(program).cuts(); }

std::vector<ExportedGraph> stages_of(const ExportedGraph& program, const std::vector<Cut>& cuts,
                                     const std::vector<std::size_t>& begins) {
  const Analysis analysis(program);
  StageMaker maker(program, analysis);
  std::vector<ExportedGraph> stages;
  for (std::size_t i = 0; i <= begins.size(); ++i) {
    const bool is_first = i == 0, is_last = i == begins.size();
    const std::size_t begin = is_first ? 0 : begins[i - 1];
    const std::size_t end = is_last ? program.graph.nodes.size() : begins[i];
    stages.push_back(
        maker.make(begin, end, is_first ? nullptr : &cuts[begin], is_last ? nullptr : &cuts[end]));
  }
  return stages;
}

}  // namespace lockstep::program
