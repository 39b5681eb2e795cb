#include <ATen/core/Reduction.h>
#include <ATen/core/jit_type.h>
#include <torch/version.h>

#include <algorithm>
#include <iterator>
#include <optional>
#include <unordered_map>

#include <lockstep/core/error.h>
#include <lockstep/formats/printable.h>
#include <lockstep/program/instruction.h>
#include <lockstep/program/pt2_file.h>

namespace lockstep::program {
namespace {

using c10::IValue;
using c10::TypeKind;
using formats::printable;

// Operators with an effect outside of the process, which no model needs.
constexpr std::string_view kRefused[] = {"aten::from_file", "aten::save"};

// The argument of an operator that depends on the mode of its module. A probability is a number
// that evaluation replaces by 0, the others are truth values.
struct ModeArgument {
  std::string_view operation;
  std::string_view argument;
  bool is_probability = false;
  // If this argument is None, training statistics are used in both modes.
  std::string_view statistics{};
};

constexpr ModeArgument kModeArguments[] = {
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

bool is_none(const Argument* argument) {
  return argument == nullptr || std::holds_alternative<None>(argument->value);
}

}  // namespace

c10::ScalarType scalar_type(ScalarTypeCode code) {
  static constexpr std::pair<std::int64_t, c10::ScalarType> kTypes[] = {
      {1, c10::kByte},
      {2, c10::kChar},
      {3, c10::kShort},
      {4, c10::kInt},
      {5, c10::kLong},
      {6, c10::kHalf},
      {7, c10::kFloat},
      {8, c10::kDouble},
      {9, c10::ScalarType::ComplexHalf},
      {10, c10::kComplexFloat},
      {11, c10::kComplexDouble},
      {12, c10::kBool},
      {13, c10::kBFloat16},
      {28, c10::kUInt16},
      {29, c10::kFloat8_e4m3fn},
      {30, c10::kFloat8_e5m2},
      {31, c10::kFloat8_e4m3fnuz},
      {32, c10::kFloat8_e5m2fnuz},
      {33, c10::kFloat8_e8m0fnu},
      {34, c10::kUInt32},
      {35, c10::kUInt64},
  };
  const auto found = std::find_if(std::begin(kTypes), std::end(kTypes),
                                  [&](const auto& type) { return type.first == code.code; });
  if (found == std::end(kTypes)) {
    throw CheckpointError(str("the dtype ", code.code, " is not supported"));
  }
  return found->second;
}

Plan::Plan() = default;
Plan::~Plan() = default;
std::size_t Plan::size() const { return instructions_.size(); }

// Compiles one graph. The graphs of higher-order operators have compilers of their own, which share
// the modules.
class Compiler {
 public:
  Compiler(const Graph& graph, const CompileOptions& options,
           std::shared_ptr<std::vector<Plan::Mode>> modules,
           std::shared_ptr<std::vector<std::string>> fixed_modes)
      : graph_(graph), options_(options), plan_(std::make_shared<Plan>()) {
    plan_->modules_ = std::move(modules);
    plan_->fixed_modes_ = std::move(fixed_modes);
    plan_->name_ = options.name;
  }

  std::shared_ptr<const Plan> compile() {
    for (const Argument& input : graph_.inputs) plan_->inputs_.push_back(define_input(input));
    for (std::size_t i = 0; i < graph_.nodes.size(); ++i) {
      const Node& node = graph_.nodes[i];
      node_ = i;
      where_ = str(printable(operator_name(node.target)), node.source.empty() ? "" : " at ",
                   node.source);
      try {
        begin_bypass(i);
        add(node);
        end_bypass(i);
      } catch (const c10::Error& error) {
        fail(first_line(error));
      }
    }
    for (const Argument& output : graph_.outputs) {
      plan_->outputs_.push_back({operand(output)});
    }
    plan_->registers_ = registers_.size();
    mark_last_uses();
    if (options_.in_place) add_in_place_calls(plan_->instructions_, plan_->inputs_);
    return plan_;
  }

 private:
  using Instruction = Plan::Instruction;
  using Kind = Instruction::Kind;

  template <class... Values>
  [[noreturn]] void fail(const Values&... values) const {
    throw CheckpointError(str(options_.name, ": ", where_, where_.empty() ? "" : ": ", values...));
  }

  // "torch.ops.aten.conv2d.default" as "aten::conv2d".
  static std::string operator_name(std::string_view target) {
    constexpr std::string_view prefix = "torch.ops.";
    if (!target.starts_with(prefix)) return std::string(target);
    target.remove_prefix(prefix.size());
    const std::size_t dot = target.find('.');
    const std::size_t overload = target.rfind('.');
    if (dot == std::string_view::npos) return std::string(target);
    if (overload == dot) return str(target.substr(0, dot), "::", target.substr(dot + 1));
    return str(target.substr(0, dot), "::", target.substr(dot + 1, overload - dot - 1));
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

  int find(const std::string& name) const {
    const auto found = registers_.find(name);
    if (found == registers_.end()) fail("uses '", printable(name), "', which is not defined");
    return found->second;
  }

  void add(const Node& node) {
    if (const PythonOperator python = python_operator(node.target)) return add_python(node, python);
    constexpr std::string_view prefix = "torch.ops.";
    if (!node.target.starts_with(prefix)) fail("this function is not supported");
    const std::string name = operator_name(node.target);
    if (name.starts_with("higher_order::")) return add_higher_order(node, name.substr(14));
    if (name == "aten::sym_size") return add_size(node);
    add_operator(node, name);
  }

  // Calls visit(name) for each value of the graph that `argument` refers to.
  template <class Visit>
  static void for_each_value_name(const Argument& argument, const Visit& visit) {
    if (const auto* list = std::get_if<ArgumentList>(&argument.value)) {
      for (const Argument& item : list->items) for_each_value_name(item, visit);
    } else if (const auto* tensor = std::get_if<TensorName>(&argument.value)) {
      visit(tensor->name);
    } else if (const auto* number = std::get_if<NumberName>(&argument.value)) {
      visit(number->name);
    }
  }

  static bool draws(const Node& node) {
    constexpr std::string_view kDraws[] = {"bernoulli", "rand", "dropout", "uniform"};
    return std::any_of(std::begin(kDraws), std::end(kDraws), [&](std::string_view name) {
      return node.target.find(name) != std::string::npos;
    });
  }

  // If the node `first` begins a call of a module that returns its input in evaluation mode, adds
  // an instruction that skips the call in this mode.
  void begin_bypass(std::size_t first) {
    const auto& nodes = graph_.nodes;
    if (first < bypass_end_ || !is_stochastic_depth(nodes[first])) return;
    std::size_t end = first;
    while (end < nodes.size() && nodes[end].module_path == nodes[first].module_path &&
           is_stochastic_depth(nodes[end])) {
      ++end;
    }
    bypass_end_ = end;
    if (std::none_of(nodes.begin() + static_cast<std::ptrdiff_t>(first),
                     nodes.begin() + static_cast<std::ptrdiff_t>(end), draws)) {
      return;
    }
    std::set<std::string> inside, inputs, outputs;
    for (std::size_t i = first; i < end; ++i) {
      for (const NamedArgument& input : nodes[i].inputs) {
        for_each_value_name(input.argument, [&](const std::string& name) {
          if (!inside.contains(name) && graph_.tensors.contains(name)) inputs.insert(name);
        });
      }
      for (const Argument& output : nodes[i].outputs) {
        for_each_value_name(output, [&](const std::string& name) { inside.insert(name); });
      }
    }
    const auto note_output = [&](const std::string& name) {
      if (inside.contains(name)) outputs.insert(name);
    };
    for (std::size_t i = end; i < nodes.size(); ++i) {
      for (const NamedArgument& input : nodes[i].inputs) {
        for_each_value_name(input.argument, note_output);
      }
    }
    for (const Argument& output : graph_.outputs) for_each_value_name(output, note_output);
    if (inputs.size() != 1 || outputs.size() != 1 || !graph_.tensors.contains(*outputs.begin())) {
      plan_->fixed_modes_->push_back(where_);
      return;
    }
    Instruction made = instruction(Kind::kBypass);
    made.module = module(nodes[first], true);
    made.operands.push_back(in_register(*inputs.begin()));
    made.results.push_back({});  // end_bypass() adds the register
    bypass_ = plan_->instructions_.size();
    bypass_output_ = *outputs.begin();
    plan_->instructions_.push_back(std::move(made));
  }

  void end_bypass(std::size_t last) {
    if (!bypass_ || last + 1 != bypass_end_) return;
    Instruction& bypass = plan_->instructions_[*bypass_];
    bypass.results.front().registers.push_back(find(bypass_output_));
    bypass.bypassed = plan_->instructions_.size() - *bypass_ - 1;
    bypass_.reset();
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
    for (const NamedArgument& input : node.inputs) made.operands.push_back(operand(input.argument));
    finish(std::move(made), node);
  }

  void add_size(const Node& node) {
    const Argument* tensor = find_input(node, "self");
    const Argument* dimension = find_input(node, "dim");
    if (tensor == nullptr || dimension == nullptr) fail("expected the arguments self and dim");
    Instruction made = instruction(Kind::kSize);
    made.operands = {operand(*tensor), operand(*dimension)};
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
    std::string overload = node.target.substr(node.target.rfind('.') + 1);
    if (overload == "default") overload.clear();
    const auto found = c10::Dispatcher::singleton().findSchema({name, overload});
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
    if (std::find(std::begin(kOneMode), std::end(kOneMode), name) != std::end(kOneMode)) {
      plan_->fixed_modes_->push_back(where_);
    }
    const ModeArgument* mode = mode_argument(name);
    for (const c10::Argument& argument : schema.arguments()) {
      made.operands.push_back(argument_of(node, argument));
      if (mode != nullptr && argument.name() == mode->argument) {
        follow_mode(node, *mode, made.operands.back());
      }
    }
    if (schema.returns().size() != node.outputs.size() &&
        !(schema.returns().empty() && only_none(node.outputs))) {
      fail("the operator returns ", schema.returns().size(), " values, the node ",
           node.outputs.size());
    }
    if (name == "aten::batch_norm") {
      count_batches(node);
      note_average(node);
    }
    if (name == "aten::add_" && counts_batches(node)) {
      made.only_in_training_of = module(node, true);
      // Another call of a shared module counts on with the result of this one.
      for (const Argument& output : node.outputs) {
        const auto* tensor = std::get_if<TensorName>(&output.value);
        if (tensor != nullptr) counters_[tensor->name] = *state_name(find_input(node, "self"));
      }
    }
    finish(std::move(made), node);
  }

  static bool only_none(const std::vector<Argument>& outputs) {
    return std::all_of(outputs.begin(), outputs.end(),
                       [](const Argument& output) { return is_none(&output); });
  }

  static const ModeArgument* mode_argument(const std::string& name) {
    const auto found =
        std::find_if(std::begin(kModeArguments), std::end(kModeArguments),
                     [&](const ModeArgument& known) { return known.operation == name; });
    return found == std::end(kModeArguments) ? nullptr : found;
  }

  // The index of the module that made the call `node`. It was exported in training mode if one of
  // its calls was.
  int module(const Node& node, bool is_training) {
    auto& modules = *plan_->modules_;
    auto found = std::find_if(modules.begin(), modules.end(), [&](const Plan::Mode& known) {
      return known.path == node.module_path;
    });
    if (found == modules.end()) {
      modules.push_back({node.module_path, is_training});
      return static_cast<int>(modules.size()) - 1;
    }
    found->is_training |= is_training;
    return static_cast<int>(found - modules.begin());
  }

  // Makes `operand`, a constant, depend on the mode of the node's module.
  void follow_mode(const Node& node, const ModeArgument& mode, Operand& operand) {
    if (operand.kind != Operand::Kind::kConstant) return;
    if (!mode.statistics.empty() && is_none(find_input(node, mode.statistics))) return;
    if (mode.is_probability) {
      if (!operand.constant.isDouble()) return;
      if (operand.constant.toDouble() == 0) {
        plan_->fixed_modes_->push_back(where_);
        return;
      }
      operand.kind = Operand::Kind::kProbability;
      operand.module = module(node, true);
    } else if (operand.constant.isBool()) {
      operand.module = module(node, operand.constant.toBool());
      operand.kind = Operand::Kind::kTraining;
    }
  }

  std::optional<std::string> state_name(const Argument* argument) const {
    const auto* tensor = argument == nullptr ? nullptr : std::get_if<TensorName>(&argument->value);
    const auto found =
        tensor == nullptr ? options_.state_names.end() : options_.state_names.find(tensor->name);
    if (found != options_.state_names.end()) return found->second;
    const auto counter = tensor == nullptr ? counters_.end() : counters_.find(tensor->name);
    if (counter == counters_.end()) return std::nullopt;
    return counter->second;
  }

  // Whether `node` adds 1 to the counter of a batch normalization.
  bool counts_batches(const Node& node) const {
    const auto name = state_name(find_input(node, "self"));
    return name && name->ends_with(kBatchesTracked);
  }

  // Adds the counting of batches to a batch normalization that was exported in evaluation mode, in
  // which Python does not count.
  void count_batches(const Node& node) {
    const auto mean = state_name(find_input(node, "running_mean"));
    if (!mean || !mean->ends_with("running_mean")) return;
    const std::string counter = str(
        mean->substr(0, mean->size() - std::string_view("running_mean").size()), kBatchesTracked);
    for (const Node& other : graph_.nodes) {
      const auto target = other.target == "torch.ops.aten.add_.Tensor"
                              ? state_name(find_input(other, "self"))
                              : std::nullopt;
      if (target == counter) return;
    }
    const auto value = std::find_if(options_.state_names.begin(), options_.state_names.end(),
                                    [&](const auto& state) { return state.second == counter; });
    if (value == options_.state_names.end() || !registers_.contains(value->first)) return;
    Node count{.target = "torch.ops.aten.add_.Tensor",
               .inputs = {{"self", {TensorName{value->first}}}, {"other", {std::int64_t{1}}}},
               .outputs = {{TensorName{}}},
               .module_path = node.module_path};
    const int of = module(node, false);
    Instruction made = instruction(Kind::kOperator);
    made.operation.push_back(resolve(count, "aten::add_"));
    for (const c10::Argument& argument : made.operation.front().schema().arguments()) {
      made.operands.push_back(argument_of(count, argument));
    }
    made.only_in_training_of = of;
    finish(std::move(made), count);
  }

  // A batch normalization without a momentum averages over all batches. In evaluation mode Python
  // exports it like one whose momentum is 0, which keeps its statistics.
  void note_average(const Node& node) {
    const Argument* momentum = find_input(node, "momentum");
    const auto* value = momentum == nullptr ? nullptr : std::get_if<double>(&momentum->value);
    const Argument* training = find_input(node, "training");
    const auto* is_training = training == nullptr ? nullptr : std::get_if<bool>(&training->value);
    if (value == nullptr || *value != 0 || is_training == nullptr || *is_training) return;
    plan_->fixed_modes_->push_back(where_);
  }

  Operand argument_of(const Node& node, const c10::Argument& argument) const {
    if (const Argument* given = find_input(node, argument.name())) {
      return typed(*given, argument.type(), argument.N());
    }
    if (!argument.default_value()) fail("the argument '", argument.name(), "' is missing");
    Operand result;
    result.constant = *argument.default_value();
    return result;
  }

  static Operand constant(IValue value) {
    Operand result;
    result.constant = std::move(value);
    return result;
  }

  Operand in_register(const std::string& name) const {
    Operand result;
    result.kind = Operand::Kind::kRegister;
    result.index = find(name);
    return result;
  }

  // An argument without a schema: of a Python function, a higher-order operator or an output.
  Operand operand(const Argument& argument) const {
    return std::visit(
        [&](const auto& value) -> Operand {
          using Type = std::decay_t<decltype(value)>;
          if constexpr (std::is_same_v<Type, None>) {
            return constant({});
          } else if constexpr (std::is_same_v<Type, TensorName> ||
                               std::is_same_v<Type, NumberName>) {
            return in_register(value.name);
          } else if constexpr (std::is_same_v<Type, bool> || std::is_same_v<Type, std::int64_t> ||
                               std::is_same_v<Type, double> || std::is_same_v<Type, std::string>) {
            return constant(value);
          } else if constexpr (std::is_same_v<Type, ComplexNumber>) {
            return constant(c10::complex<double>(value.real, value.imaginary));
          } else if constexpr (std::is_same_v<Type, ScalarTypeCode>) {
            return constant(static_cast<std::int64_t>(type(value)));
          } else if constexpr (std::is_same_v<Type, DeviceName>) {
            return constant(device(value));
          } else {
            fail("an argument has an unexpected kind");
          }
        },
        argument.value);
  }

  c10::ScalarType type(ScalarTypeCode code) const {
    if (scalar_type_info(code) == nullptr) fail("the dtype ", code.code, " is not supported");
    const c10::ScalarType result = scalar_type(code);
    const bool follows = c10::isFloatingType(result) && result == options_.from.type;
    return follows ? options_.to.type : result;
  }

  c10::Device device(const DeviceName& name) const {
    c10::Device result(name.type);
    const bool follows = result.type() == options_.from.device.type();
    if (follows) return options_.to.device;
    if (name.index) result.set_index(static_cast<c10::DeviceIndex>(*name.index));
    return result;
  }

  static c10::TypePtr without_optional(c10::TypePtr type) {
    while (type->kind() == TypeKind::OptionalType) {
      type = type->castRaw<c10::OptionalType>()->getElementType();
    }
    return type;
  }

  // `argument` as the type of the operator's schema. A single number may stand for a list of
  // `repeated`.
  Operand typed(const Argument& argument, const c10::TypePtr& wanted,
                std::optional<std::int32_t> repeated = std::nullopt) const {
    if (std::holds_alternative<None>(argument.value)) return constant({});
    const c10::TypePtr type = without_optional(wanted);
    if (type->kind() == TypeKind::ListType) return typed_list(argument, type, repeated);
    if (const auto* code = std::get_if<MemoryFormatCode>(&argument.value)) {
      static constexpr c10::MemoryFormat formats[] = {
          c10::MemoryFormat::Contiguous, c10::MemoryFormat::ChannelsLast,
          c10::MemoryFormat::ChannelsLast3d, c10::MemoryFormat::Preserve};
      if (code->code < 1 || code->code > 4) fail("the memory format ", code->code, " is unknown");
      return constant(static_cast<std::int64_t>(formats[code->code - 1]));
    }
    if (const auto* code = std::get_if<LayoutCode>(&argument.value)) {
      if (code->code != 7) fail("only dense tensors are supported");
      return constant(static_cast<std::int64_t>(c10::kStrided));
    }
    if (std::holds_alternative<ArgumentList>(argument.value)) {
      fail("a list stands where ", type->str(), " was expected");
    }
    Operand result = operand(argument);
    if (result.kind == Operand::Kind::kRegister) {
      result.as_float = type->kind() == TypeKind::FloatType;
      result.as_tensor = type->kind() == TypeKind::TensorType &&
                         std::holds_alternative<NumberName>(argument.value);
      return result;
    }
    const IValue& value = result.constant;
    if (type->kind() == TypeKind::TensorType) {
      if (!value.isScalar()) fail("expected a tensor or a number");
      result.constant = wrapped_number(value);
    } else if (type->kind() == TypeKind::FloatType && (value.isInt() || value.isBool())) {
      result.constant =
          value.isInt() ? static_cast<double>(value.toInt()) : static_cast<double>(value.toBool());
    } else if (type->kind() == TypeKind::IntType && value.isBool()) {
      result.constant = static_cast<std::int64_t>(value.toBool());
    }
    return result;
  }

  Operand typed_list(const Argument& argument, const c10::TypePtr& type,
                     std::optional<std::int32_t> repeated) const {
    const c10::TypePtr item_type = type->castRaw<c10::ListType>()->getElementType();
    Operand result;
    result.kind = Operand::Kind::kList;
    result.list_type = item_type;
    if (const auto* list = std::get_if<ArgumentList>(&argument.value)) {
      for (const Argument& item : list->items) result.items.push_back(typed(item, item_type));
    } else {
      if (!repeated) fail("one value stands where a list was expected");
      result.items.assign(static_cast<std::size_t>(*repeated), typed(argument, item_type));
    }
    const bool is_constant =
        std::all_of(result.items.begin(), result.items.end(),
                    [](const Operand& item) { return item.kind == Operand::Kind::kConstant; });
    if (is_constant) {
      c10::impl::GenericList values(list_item_type(item_type));
      for (const Operand& item : result.items) values.push_back(item.constant);
      return constant(values);
    }
    result.list_type = list_item_type(item_type);
    return result;
  }

  // Symbolic numbers are plain ones at run time.
  static c10::TypePtr list_item_type(const c10::TypePtr& type) {
    switch (type->kind()) {
      case TypeKind::SymIntType:
        return c10::IntType::get();
      case TypeKind::SymFloatType:
        return c10::FloatType::get();
      case TypeKind::SymBoolType:
        return c10::BoolType::get();
      default:
        return type;
    }
  }

  // `operands` are what the graph gets as its inputs, in order.
  std::shared_ptr<const Plan> subgraph(const Argument& argument,
                                       const std::vector<Argument>& operands) const {
    const auto* graph = std::get_if<Subgraph>(&argument.value);
    if (graph == nullptr) fail("expected a graph");
    CompileOptions options = options_;
    // The values of a subgraph have names of their own.
    options.state_names.clear();
    const auto& inputs = graph->graph->inputs;
    for (std::size_t i = 0; i < std::min(inputs.size(), operands.size()); ++i) {
      const auto* inner = std::get_if<TensorName>(&inputs[i].value);
      const auto name = state_name(&operands[i]);
      if (inner != nullptr && name) options.state_names[inner->name] = *name;
    }
    return Compiler(*graph->graph, options, plan_->modules_, plan_->fixed_modes_).compile();
  }

  void add_operands(const Argument& argument, Instruction& made) const {
    if (const auto* list = std::get_if<ArgumentList>(&argument.value)) {
      for (const Argument& item : list->items) made.operands.push_back(operand(item));
    } else {
      made.operands.push_back(operand(argument));
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
      made.operands.push_back(operand(inputs[i].argument));
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
    for (std::size_t i = 0; i < graphs; ++i) {
      made.graphs.push_back(subgraph(inputs[next++].argument, operands));
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
  std::map<std::string, std::string> counters_;  // values that are counters of batches
  std::size_t node_ = 0;                         // the one that is being compiled
  std::size_t bypass_end_ = 0;         // the node after the last call that may be bypassed
  std::optional<std::size_t> bypass_;  // the instruction whose call is being compiled
  std::string bypass_output_;
  std::unordered_map<std::string, int> registers_;
  std::string where_;
};

std::shared_ptr<const Plan> Plan::compile(const Graph& graph, const CompileOptions& options) {
  return Compiler(graph, options, std::make_shared<std::vector<Mode>>(),
                  std::make_shared<std::vector<std::string>>())
      .compile();
}

}  // namespace lockstep::program
