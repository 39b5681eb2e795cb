#include <torch/version.h>

#include <algorithm>
#include <iterator>
#include <optional>
#include <set>
#include <unordered_map>
#include <utility>

#include <lockstep/core/error.h>
#include <lockstep/formats/printable.h>
#include <lockstep/program/graph/modes.h>
#include <lockstep/program/graph/operator_name.h>
#include <lockstep/program/instruction.h>
#include <lockstep/program/operands.h>
#include <lockstep/program/torch_names.h>

namespace lockstep::program {
namespace {

using formats::printable;

// Operators with an effect outside of the process, which no model needs.
constexpr std::string_view kRefused[] = {"aten::from_file", "aten::save"};

}  // namespace

Plan::Plan() = default;
Plan::~Plan() = default;
std::size_t Plan::size() const { return instructions_.size(); }

// Compiles one graph. The graphs of higher-order operators have compilers of their own, which share
// the modules.
class Compiler {
 public:
  Compiler(const Graph& graph, const CompileOptions& options,
           std::shared_ptr<std::vector<Plan::Mode>> modules)
      : graph_(graph),
        options_(options),
        plan_(std::make_shared<Plan>()),
        bypasses_(stochastic_depth_calls(graph)),
        states_(options.state_names) {
    plan_->modules_ = std::move(modules);
    plan_->name_ = options.name;
    for (const Node& node : graph.nodes) incremented_.insert(incremented_counter(node, states_));
  }

  std::shared_ptr<const Plan> compile() {
    try {
      for (const Argument& input : graph_.inputs) plan_->inputs_.push_back(define_input(input));
      for (std::size_t i = 0; i < graph_.nodes.size(); ++i) {
        node_ = i;
        where_ = call_text(graph_.nodes[i]);
        begin_bypass(i);
        add(graph_.nodes[i]);
        end_bypass(i);
      }
      where_.clear();
      for (const Argument& output : graph_.outputs) {
        plan_->outputs_.push_back({operands_.untyped(output)});
      }
    } catch (const UnfitArgument& error) {
      fail(error.what());
    } catch (const c10::Error& error) {
      fail(first_line(error));
    }
    plan_->registers_ = registers_.size();
    mark_last_uses();
    if (options_.in_place) add_in_place_calls(plan_->instructions_, plan_->inputs_);
    return plan_;
  }

  // A batch normalization whose counter this graph does not get.
  struct Uncounted {
    std::string counter{};
    const Node* node = nullptr;
  };
  const std::vector<Uncounted>& uncounted() const { return uncounted_; }

  // Python's name of the parameter or buffer that is an argument or a result of the graph; empty if
  // it is none.
  std::string state_name(const Argument& argument) const {
    const auto* tensor = std::get_if<TensorName>(&argument.value);
    const auto found = tensor == nullptr ? states_.end() : states_.find(tensor->name);
    return found == states_.end() ? std::string() : found->second;
  }

 private:
  using Instruction = Plan::Instruction;
  using Kind = Instruction::Kind;

  template <class... Values>
  [[noreturn]] void fail(const Values&... values) const {
    throw CheckpointError(str(options_.name, ": ", where_, where_.empty() ? "" : ": ", values...));
  }

  int define(const std::string& name) {
    if (name.empty()) return -1;
    const int index = static_cast<int>(registers_.size());
    registers_[name] = index;
    return index;
  }

  int define_input(const Argument& input) {
    if (const auto* tensor = std::get_if<TensorName>(&input.value)) return define(tensor->name);
    if (const auto* number = std::get_if<NumberName>(&input.value)) return define(number->name);
    return -1;
  }

  void add(const Node& node) {
    if (const PythonOperator python = python_operator(node.target)) return add_python(node, python);
    const auto known = operator_name(node.target);
    if (!known) fail("this function is not supported");
    const std::string& name = known->name;
    if (name.starts_with("higher_order::")) return add_higher_order(node, name.substr(14));
    if (name == "aten::sym_size") return add_size(node);
    add_operator(node, name);
  }

  // If the node `first` begins a call that evaluation skips, adds an instruction that does so.
  void begin_bypass(std::size_t first) {
    if (next_bypass_ == bypasses_.size() || bypasses_[next_bypass_].begin != first) return;
    const StochasticDepth& call = bypasses_[next_bypass_];
    if (call.output.empty()) {
      ++next_bypass_;
      return;
    }
    Instruction made = instruction(Kind::kBypass);
    made.module = module(graph_.nodes[first].module_path, true);
    made.operands.push_back(operands_.in_register(call.input));
    made.results.push_back({});  // end_bypass() adds the register
    bypass_ = plan_->instructions_.size();
    plan_->instructions_.push_back(std::move(made));
  }

  void end_bypass(std::size_t last) {
    if (!bypass_ || last + 1 != bypasses_[next_bypass_].end) return;
    Instruction& bypass = plan_->instructions_[*bypass_];
    bypass.results.front().registers.push_back(
        operands_.in_register(bypasses_[next_bypass_].output).index);
    bypass.bypassed = plan_->instructions_.size() - *bypass_ - 1;
    bypass_.reset();
    ++next_bypass_;
  }

  Instruction instruction(Kind kind) const {
    Instruction result;
    result.kind = kind;
    result.node = node_;
    result.where = where_;
    result.source = graph_.nodes[node_].source;
    return result;
  }

  void finish(Instruction&& made, const Node& node) {
    for (const Argument& output : node.outputs) {
      Instruction::Result result;
      if (const auto* list = std::get_if<ArgumentList>(&output.value)) {
        result.is_list = true;
        for (const Argument& item : list->items) result.registers.push_back(define_input(item));
      } else {
        result.registers.push_back(define_input(output));
      }
      made.results.push_back(std::move(result));
    }
    plan_->instructions_.push_back(std::move(made));
  }

  void add_python(const Node& node, PythonOperator python) {
    Instruction made = instruction(Kind::kPython);
    made.python = python;
    for (const NamedArgument& input : node.inputs) {
      made.operands.push_back(operands_.untyped(input.argument));
    }
    finish(std::move(made), node);
  }

  void add_size(const Node& node) {
    const Argument* tensor = find_input(node, "self");
    const Argument* dimension = find_input(node, "dim");
    if (tensor == nullptr || dimension == nullptr) fail("expected the arguments self and dim");
    Instruction made = instruction(Kind::kSize);
    made.operands = {operands_.untyped(*tensor), operands_.untyped(*dimension)};
    finish(std::move(made), node);
  }

  // The operator of LibTorch that `node` calls.
  c10::OperatorHandle resolve(const Node& node, const std::string& name) const {
    const std::string_view space = std::string_view(name).substr(0, name.find(':'));
    if (std::find(std::begin(kRefused), std::end(kRefused), name) != std::end(kRefused)) {
      fail("this operator is refused, because it acts on files");
    }
    if (!options_.namespaces.contains(space)) {
      fail("operators of '", printable(space),
           "' are refused; name this namespace in ProgramOptions::namespaces if you trust the file "
           "and the library that defines them");
    }
    const auto found = find_operator(node.target);
    if (!found) fail("LibTorch ", TORCH_VERSION, " has no such operator");
    return *found;
  }

  void add_operator(const Node& node, const std::string& name) {
    const c10::OperatorHandle operation = resolve(node, name);
    const c10::FunctionSchema& schema = operation.schema();
    Instruction made = instruction(Kind::kOperator);
    made.operation.push_back(operation);
    for (const NamedArgument& input : node.inputs) {
      const auto known = std::find_if(
          schema.arguments().begin(), schema.arguments().end(),
          [&](const c10::Argument& argument) { return argument.name() == input.name; });
      if (known == schema.arguments().end()) {
        fail("the operator has no argument '", printable(input.name), "'");
      }
    }
    const auto mode = mode_argument(node);
    for (const c10::Argument& argument : schema.arguments()) {
      made.operands.push_back(argument_of(node, argument));
      if (!mode || argument.name() != mode->name) continue;
      Operand& follows = made.operands.back();
      follows.kind = mode->is_probability ? Operand::Kind::kProbability : Operand::Kind::kTraining;
      follows.module = module(node.module_path, mode->was_training);
    }
    if (schema.returns().size() != node.outputs.size() &&
        !(schema.returns().empty() && only_none(node.outputs))) {
      fail("the operator returns ", schema.returns().size(), " values, the node ",
           node.outputs.size());
    }
    if (const std::string counter = counter_of(node, states_); !counter.empty()) {
      count_batches({counter, &node});
    }
    if (const std::string counter = incremented_counter(node, states_); !counter.empty()) {
      made.only_in_training_of = module(node.module_path, true);
      // Another call of a shared module counts on with the result of this one.
      for (const Argument& output : node.outputs) {
        for_each_name(output, [&](const std::string& result, bool) { states_[result] = counter; });
      }
    }
    finish(std::move(made), node);
  }

  static bool only_none(const std::vector<Argument>& outputs) {
    return std::all_of(outputs.begin(), outputs.end(), [](const Argument& output) {
      return std::holds_alternative<None>(output.value);
    });
  }

  // The index of the module at `path`, which made a call. It was exported in training mode if one
  // of its calls was.
  int module(const std::string& path, bool is_training) {
    auto& modules = *plan_->modules_;
    auto found = std::find_if(modules.begin(), modules.end(),
                              [&](const Plan::Mode& known) { return known.path == path; });
    if (found == modules.end()) {
      modules.push_back({path, is_training});
      return static_cast<int>(modules.size()) - 1;
    }
    found->is_training |= is_training;
    return static_cast<int>(found - modules.begin());
  }

  // Adds the counting of batches to a batch normalization that was exported in evaluation mode, in
  // which Python does not count.
  void count_batches(const Uncounted& norm) {
    if (incremented_.contains(norm.counter)) return;
    const auto value =
        std::find_if(options_.state_names.begin(), options_.state_names.end(),
                     [&](const auto& state) { return state.second == norm.counter; });
    if (value == options_.state_names.end() || !registers_.contains(value->first)) {
      uncounted_.push_back(norm);
      return;
    }
    const Node count{
        .target = "torch.ops.aten.add_.Tensor",
        .inputs = {{"self", {TensorName{value->first}}}, {"other", {std::int64_t{1}}}}};
    const int of = module(norm.node->module_path, false);
    Instruction made = instruction(Kind::kOperator);
    made.operation.push_back(resolve(count, "aten::add_"));
    for (const c10::Argument& argument : made.operation.front().schema().arguments()) {
      made.operands.push_back(argument_of(count, argument));
    }
    made.only_in_training_of = of;
    finish(std::move(made), count);
  }

  Operand argument_of(const Node& node, const c10::Argument& argument) const {
    if (const Argument* given = find_input(node, argument.name())) {
      return operands_.typed(*given, argument.type(), argument.N());
    }
    if (!argument.default_value()) fail("the argument '", argument.name(), "' is missing");
    Operand result;
    result.constant = *argument.default_value();
    return result;
  }

  // `operands` are what the graph gets as its inputs, in order. A region is a graph that runs once
  // for each call of `node`; the graph around it counts the batches that a region cannot count.
  std::shared_ptr<const Plan> subgraph(const Node& node, const Argument& argument,
                                       const std::vector<Argument>& operands, bool is_region) {
    const auto* graph = std::get_if<Subgraph>(&argument.value);
    if (graph == nullptr) fail("expected a graph");
    CompileOptions options = options_;
    // The values of a subgraph have names of their own.
    options.state_names.clear();
    const auto& inputs = graph->graph->inputs;
    for (std::size_t i = 0; i < std::min(inputs.size(), operands.size()); ++i) {
      const auto* inner = std::get_if<TensorName>(&inputs[i].value);
      const std::string name = state_name(operands[i]);
      if (inner != nullptr && !name.empty()) options.state_names[inner->name] = name;
    }
    Compiler inner(*graph->graph, options, plan_->modules_);
    auto plan = inner.compile();
    if (!is_region) return plan;
    for (const Uncounted& norm : inner.uncounted()) count_batches(norm);
    // A counter that the region returns keeps its name.
    std::vector<const Argument*> results;
    for (const Argument& output : node.outputs) {
      if (const auto* list = std::get_if<ArgumentList>(&output.value)) {
        for (const Argument& item : list->items) results.push_back(&item);
      } else {
        results.push_back(&output);
      }
    }
    const auto& returned = graph->graph->outputs;
    for (std::size_t i = 0; i < std::min(results.size(), returned.size()); ++i) {
      const auto* result = std::get_if<TensorName>(&results[i]->value);
      const std::string name = inner.state_name(returned[i]);
      if (result != nullptr && !name.empty()) states_[result->name] = name;
    }
    return plan;
  }

  void add_operands(const Argument& argument, Instruction& made) const {
    if (const auto* list = std::get_if<ArgumentList>(&argument.value)) {
      for (const Argument& item : list->items) made.operands.push_back(operands_.untyped(item));
    } else {
      made.operands.push_back(operands_.untyped(argument));
    }
  }

  static std::size_t count(const Argument& argument) {
    const auto* list = std::get_if<ArgumentList>(&argument.value);
    return list != nullptr ? list->items.size() : 1;
  }

  void add_higher_order(const Node& node, const std::string& name) {
    struct Form {
      std::string_view name;
      Kind kind;
      std::size_t operands_before;  // that precede the graph
    };
    static constexpr Form kForms[] = {
        {"wrap_with_set_grad_enabled", Kind::kGradMode, 1},
        {"wrap_with_autocast", Kind::kAutocast, 4},
        {"wrap", Kind::kInline, 0},
        {"tag_activation_checkpoint", Kind::kInline, 0},
        {"wrap_activation_checkpoint", Kind::kInline, 0},
        {"strict_mode", Kind::kInline, 0},
        {"cond", Kind::kCond, 1},
        {"while_loop", Kind::kWhile, 0},
        {"scan", Kind::kScan, 0},
        {"map_impl", Kind::kScan, 0},
    };
    const auto form = std::find_if(std::begin(kForms), std::end(kForms),
                                   [&](const Form& known) { return known.name == name; });
    if (form == std::end(kForms)) fail("this higher-order operator is not supported");
    const std::size_t graphs = form->kind == Kind::kCond || form->kind == Kind::kWhile ? 2 : 1;
    const std::vector<NamedArgument>& inputs = node.inputs;
    if (inputs.size() < form->operands_before + graphs) fail("arguments are missing");
    Instruction made = instruction(form->kind);
    for (std::size_t i = 0; i < form->operands_before; ++i) {
      made.operands.push_back(operands_.untyped(inputs[i].argument));
    }
    std::size_t next = form->operands_before;
    std::vector<Argument> operands;
    for (std::size_t i = next + graphs; i < inputs.size(); ++i) {
      const auto* list = std::get_if<ArgumentList>(&inputs[i].argument.value);
      if (list != nullptr) {
        operands.insert(operands.end(), list->items.begin(), list->items.end());
      } else {
        operands.push_back(inputs[i].argument);
      }
    }
    const bool is_region = form->kind == Kind::kGradMode || form->kind == Kind::kAutocast ||
                           form->kind == Kind::kInline;
    for (std::size_t i = 0; i < graphs; ++i) {
      made.graphs.push_back(subgraph(node, inputs[next++].argument, operands, is_region));
    }
    if (form->kind == Kind::kScan) return add_scan(node, std::move(made), name == "scan");
    if (form->kind == Kind::kWhile && next < inputs.size()) {
      made.carried = count(inputs[next].argument);
    }
    for (; next < inputs.size(); ++next) {
      // Checkpoint wrappers have settings that only recomputation needs.
      if (!inputs[next].name.empty() && form->kind == Kind::kInline) continue;
      add_operands(inputs[next].argument, made);
    }
    finish(std::move(made), node);
  }

  // scan(graph, carried, lists, others), in older versions scan(graph, carried, lists, reverse,
  // others). map_impl(graph, lists, others) carries nothing.
  void add_scan(const Node& node, Instruction&& made, bool has_carried) {
    const std::vector<NamedArgument>& inputs = node.inputs;
    const std::size_t lists = has_carried ? 2 : 1;
    if (inputs.size() <= lists) fail("arguments are missing");
    if (has_carried) made.carried = count(inputs[1].argument);
    made.rows = count(inputs[lists].argument);
    if (made.graphs.front()->outputs_.size() < made.carried) {
      fail("the graph returns fewer values than it carries");
    }
    for (std::size_t i = 1; i < inputs.size(); ++i) {
      const auto* reverse = std::get_if<bool>(&inputs[i].argument.value);
      if (i >= 3 && reverse != nullptr) {
        made.is_reversed = *reverse;
      } else {
        add_operands(inputs[i].argument, made);
      }
    }
    finish(std::move(made), node);
  }

  // From the end, the first use of a register that is met is its last one.
  void mark_last_uses() {
    std::vector<bool> used(plan_->registers_);
    const auto mark = [&](auto& self, Operand& operand) -> void {
      for (auto item = operand.items.rbegin(); item != operand.items.rend(); ++item) {
        self(self, *item);
      }
      if (operand.kind != Operand::Kind::kRegister) return;
      operand.is_last = !used[static_cast<std::size_t>(operand.index)];
      used[static_cast<std::size_t>(operand.index)] = true;
    };
    auto& outputs = plan_->outputs_;
    for (auto output = outputs.rbegin(); output != outputs.rend(); ++output) {
      mark(mark, output->operand);
    }
    auto& instructions = plan_->instructions_;
    for (auto made = instructions.rbegin(); made != instructions.rend(); ++made) {
      // A result that nobody uses is not kept.
      for (Instruction::Result& result : made->results) {
        for (int& index : result.registers) {
          if (index >= 0 && !used[static_cast<std::size_t>(index)]) index = -1;
        }
      }
      for (auto operand = made->operands.rbegin(); operand != made->operands.rend(); ++operand) {
        mark(mark, *operand);
      }
    }
    note_releases();
    for (int& index : plan_->inputs_) {
      if (index >= 0 && !used[static_cast<std::size_t>(index)]) index = -1;
    }
  }

  // What the skipped instructions would have released.
  void note_releases() {
    auto& instructions = plan_->instructions_;
    for (std::size_t i = 0; i < instructions.size(); ++i) {
      for (std::size_t j = 1; j <= instructions[i].bypassed; ++j) {
        for (const Operand& operand : instructions[i + j].operands) {
          for_each_last_use(operand, [&](int index) { instructions[i].released.push_back(index); });
        }
      }
    }
  }

  template <class Visit>
  static void for_each_last_use(const Operand& operand, const Visit& visit) {
    for (const Operand& item : operand.items) for_each_last_use(item, visit);
    if (operand.kind == Operand::Kind::kRegister && operand.is_last) visit(operand.index);
  }

  const Graph& graph_;
  const CompileOptions& options_;
  std::shared_ptr<Plan> plan_;
  std::vector<StochasticDepth> bypasses_;
  std::size_t next_bypass_ = 0;
  std::optional<std::size_t> bypass_;  // the instruction whose call is being compiled
  StateNames states_;                  // the counters of batches among the results, too
  std::set<std::string> incremented_;  // counters of batches that the graph increments
  std::vector<Uncounted> uncounted_;
  std::size_t node_ = 0;  // the one that is being compiled
  std::unordered_map<std::string, int> registers_;
  OperandMaker operands_{registers_, options_.from, options_.to};
  std::string where_;
};

std::shared_ptr<const Plan> Plan::compile(const Graph& graph, const CompileOptions& options) {
  return Compiler(graph, options, std::make_shared<std::vector<Mode>>()).compile();
}

}  // namespace lockstep::program
