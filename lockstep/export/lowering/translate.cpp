#include <lockstep/export/lowering/translate.h>

#include <algorithm>
#include <map>
#include <set>
#include <stdexcept>
#include <string_view>

#include <torch/csrc/jit/ir/constants.h>

#include <lockstep/export/lowering/fold.h>
#include <lockstep/export/lowering/operators.h>

namespace lockstep::onnx {
namespace {

using torch::jit::Node;
using torch::jit::Value;

constexpr const char* kBatchSymbol = "batch";

std::vector<std::string> names_or_default(const std::vector<std::string>& given, std::size_t count,
                                          const std::string& stem) {
  if (!given.empty()) {
    if (given.size() != count) {
      throw ConfigError(str("export_onnx: ", stem, "_names must name all ", count, " ", stem,
                            "s, got ", given.size()));
    }
    return given;
  }
  std::vector<std::string> names;
  for (std::size_t i = 0; i < count; ++i) names.push_back(count == 1 ? stem : str(stem, '_', i));
  return names;
}

at::ScalarType scalar_type_in(const Value& value) {
  return value.type()->expectRef<c10::TensorType>().scalarType().value_or(at::kFloat);
}

bool is_float32(const Value& value) {
  return value.type()->kind() == c10::TypeKind::TensorType && scalar_type_in(value) == at::kFloat;
}

// Operations that keep a whole number whole: views and selections, and what is usual before a
// conversion.
bool keeps_whole_numbers(const Node& node) {
  static const std::set<std::string_view> kKeeps = {"aten::_to_copy",
                                                    "aten::abs",
                                                    "aten::add",
                                                    "aten::alias",
                                                    "aten::cat",
                                                    "aten::ceil",
                                                    "aten::chunk",
                                                    "aten::clamp",
                                                    "aten::clamp_max",
                                                    "aten::clamp_min",
                                                    "aten::clone",
                                                    "aten::contiguous",
                                                    "aten::detach",
                                                    "aten::diagonal",
                                                    "aten::dropout",
                                                    "aten::expand",
                                                    "aten::expand_as",
                                                    "aten::flatten",
                                                    "aten::flip",
                                                    "aten::floor",
                                                    "aten::gather",
                                                    "aten::index",
                                                    "aten::index_select",
                                                    "aten::movedim",
                                                    "aten::mul",
                                                    "aten::narrow",
                                                    "aten::neg",
                                                    "aten::permute",
                                                    "aten::repeat",
                                                    "aten::reshape",
                                                    "aten::roll",
                                                    "aten::round",
                                                    "aten::rsub",
                                                    "aten::select",
                                                    "aten::slice",
                                                    "aten::split",
                                                    "aten::split_with_sizes",
                                                    "aten::squeeze",
                                                    "aten::stack",
                                                    "aten::sub",
                                                    "aten::t",
                                                    "aten::tensor_split",
                                                    "aten::to",
                                                    "aten::transpose",
                                                    "aten::trunc",
                                                    "aten::type_as",
                                                    "aten::unbind",
                                                    "aten::unflatten",
                                                    "aten::unsqueeze",
                                                    "aten::view",
                                                    "aten::view_as",
                                                    "prim::ListConstruct",
                                                    "prim::ListUnpack"};
  return kKeeps.contains(node.kind().toQualString());
}

// Operations that need each digit of a whole number in a float.
bool reads_whole_numbers(const Node& node) {
  static const std::set<std::string_view> kRemainders = {"aten::floor_divide", "aten::fmod",
                                                         "aten::frac", "aten::remainder"};
  const std::string_view name = node.kind().toQualString();
  if (kRemainders.contains(name)) return true;
  if (name == "aten::div") {
    return node.inputs().size() > 2 && torch::jit::toIValue(node.input(2)) &&
           torch::jit::toIValue(node.input(2))->isString();
  }
  if (name != "aten::to" && name != "aten::_to_copy" && name != "aten::type_as") return false;
  const Value& result = *node.output();
  return result.type()->kind() == c10::TypeKind::TensorType &&
         at::isIntegralType(scalar_type_in(result), /*includeBool=*/false);
}

// The inputs of float32 from which forward() takes whole numbers, such as indices. float16 holds
// whole numbers up to 2048 only.
std::set<const Value*> inputs_with_whole_numbers(const torch::jit::Graph& graph) {
  std::map<const Value*, std::set<const Value*>> sources;  // the inputs that a value comes from
  for (const Value* input : graph.inputs()) {
    if (is_float32(*input)) sources[input] = {input};
  }
  std::set<const Value*> found;
  for (const Node* node : graph.nodes()) {
    std::set<const Value*> inputs;
    for (const Value* argument : node->inputs()) {
      const auto known = sources.find(argument);
      if (known != sources.end()) inputs.insert(known->second.begin(), known->second.end());
    }
    if (inputs.empty()) continue;
    if (reads_whole_numbers(*node)) found.insert(inputs.begin(), inputs.end());
    if (!keeps_whole_numbers(*node)) continue;
    for (const Value* output : node->outputs()) sources[output] = inputs;
  }
  return found;
}

// Where and why operators cannot be exported; several places may share a reason.
class Refusals {
 public:
  void add(const std::string& operation, const std::string& reason, const std::string& place) {
    const std::string what = reason.empty() ? operation : str(operation, ": ", reason);
    std::vector<std::string>& places = places_[what];
    if (std::find(places.begin(), places.end(), place) == places.end()) places.push_back(place);
  }

  void raise() const {
    if (places_.empty()) return;
    std::vector<std::string> texts;
    for (const auto& [what, places] : places_) {
      texts.push_back(str(what, " [", join(places, "; "), "]"));
    }
    throw ConfigError(str("export_onnx: cannot export ",
                          amount_of(static_cast<std::int64_t>(texts.size()), "operator"), ": ",
                          join(texts)));
  }

 private:
  std::map<std::string, std::vector<std::string>> places_;
};

class Translator {
 public:
  Translator(const Trace& trace, const NamedParameters& parameters,
             const TranslationOptions& options)
      : trace_(trace),
        parameters_(parameters),
        options_(options),
        builder_(options.opset, options.half),
        input_count_(trace.recording.graph->inputs().size() - parameters.size()) {}

  Model run() {
    add_inputs();
    for (const Node* node : trace_.recording.graph->nodes()) lower(*node);
    refusals_.raise();
    add_outputs();
    builder_.remove_unused();
    return {.opset = options_.opset, .graph = std::move(builder_.graph())};
  }

 private:
  ValueInfo value_info(const std::string& name, const Value& value, const std::string& symbol) {
    ValueInfo info{.name = name, .type = element_type(scalar_type_in(value))};
    const Extents& sizes = trace_.sizes.at(&value);
    for (std::size_t d = 0; d < sizes.size(); ++d) {
      Dimension dimension{.size = sizes[d].size};
      if (sizes[d].is_batch()) {
        dimension.symbol = kBatchSymbol;
      } else if (!sizes[d].is_static()) {
        dimension.symbol = str(symbol, "_dimension_", d);
      }
      info.dimensions.push_back(std::move(dimension));
    }
    return info;
  }

  void add_inputs() {
    const auto values = trace_.recording.graph->inputs();
    output_names_ = names_or_default(options_.output_names, output_values().size(), "output");
    const auto names = names_or_default(options_.input_names, input_count_, "input");
    std::vector<std::string> all = names;
    all.insert(all.end(), output_names_.begin(), output_names_.end());
    for (const std::string& name : all) {
      if (name.empty()) throw ConfigError("export_onnx: the name of an input or output is empty");
      if (builder_.unique_name(name) != name) {
        throw ConfigError(str("export_onnx: two inputs or outputs have the name '", name, "'"));
      }
    }
    const std::set<const Value*> precise = inputs_with_whole_numbers(*trace_.recording.graph);
    for (std::size_t i = 0; i < input_count_; ++i) {
      builder_.graph().inputs.push_back(value_info(names[i], *values[i], names[i]));
      builder_.declare(names[i], builder_.graph().inputs.back().type);
      const bool is_rounded = is_float32(*values[i]) && !precise.contains(values[i]);
      operands_[values[i]] = {
          .name = is_rounded ? builder_.cast(names[i], builder_.type_of(at::kFloat)) : names[i],
          .is_float32 = is_float32(*values[i])};
      if (trace_.batch_dimensions[i] >= 0 && !has_batch_source_) {
        builder_.set_batch_source(names[i], trace_.batch_dimensions[i]);
        has_batch_source_ = true;
      }
    }
    for (std::size_t i = 0; i < parameters_.size(); ++i) {
      operands_[values[input_count_ + i]] = {.constant = parameters_[i].second,
                                             .wish = parameters_[i].first};
    }
  }

  void lower(const Node& node) {
    if (node.kind() == c10::prim::Constant) return add_constant(node);
    if (node.kind() == c10::prim::ListConstruct || node.kind() == c10::prim::TupleConstruct) return;
    if (node.kind() == c10::prim::ListUnpack) return unpack(node);
    const ModuleLocation& location = trace_.locations.at(&node);
    builder_.set_scope(location.module());
    const std::string name = node.kind().toQualString();
    try {
      if (fold(node, trace_, operands_)) return;
      const Operator* const entry = find_operator(name);
      if (entry == nullptr) throw Unsupported("");
      require_same_arguments(node, name);
      lower_in_its_type(node, *entry);
      return;
    } catch (const Unsupported& error) {
      refusals_.add(name, error.what(), location.text());
    } catch (const c10::Error& error) {
      refusals_.add(name, first_line(error), location.text());
    } catch (const std::out_of_range&) {  // a lowering reads a dimension that the argument lacks
      refusals_.add(name, "arguments of fewer dimensions than its lowering expects",
                    location.text());
    } catch (const Error&) {
      throw;
    } catch (const std::runtime_error& error) {  // a number that the arguments' type cannot hold
      refusals_.add(name, error.what(), location.text());
    }
    builder_.set_wide(false);
    bind_placeholders(node);
  }

  void lower_with(const Node& node, const Operator& entry, bool wide) {
    builder_.set_wide(wide);
    RecordedOperation operation(node, trace_, operands_, builder_, options_.fold_batch_norm);
    entry.lower(operation, entry);
  }

  // In a graph of float16, an operation with a constant beyond its range computes in float32, and
  // so do those that take its result, up to one whose results float16 holds for any argument.
  void lower_in_its_type(const Node& node, const Operator& entry) {
    const std::size_t nodes = builder_.graph().nodes.size();
    bool wide = options_.half && takes_wide_values(node);
    try {
      lower_with(node, entry, wide);
    } catch (const BeyondFloat16&) {
      wide = true;
      builder_.keep_nodes(nodes);
      lower_with(node, entry, wide);
    }
    builder_.set_wide(false);
    if (!wide || !has_small_results(entry)) return;
    for (const Value* output : node.outputs()) {
      const auto found = operands_.find(output);
      if (found == operands_.end() || !found->second.is_float32) continue;
      found->second.name = builder_.cast(found->second.name, ElementType::kFloat16);
    }
  }

  bool takes_wide_values(const Node& node) const {
    return std::any_of(node.inputs().begin(), node.inputs().end(),
                       [this](const Value* value) { return is_wide(value); });
  }

  bool is_wide(const Value* value) const {
    if (value->node()->kind() == c10::prim::ListConstruct) return takes_wide_values(*value->node());
    const auto found = operands_.find(value);
    if (found == operands_.end()) return false;
    const auto is_wide_operand = [this](const Operand& operand) {
      return operand.is_float32 && builder_.type_of(operand.name) == ElementType::kFloat;
    };
    return is_wide_operand(found->second) ||
           std::any_of(found->second.members.begin(), found->second.members.end(), is_wide_operand);
  }

  static bool has_small_results(const Operator& entry) {
    static const std::set<std::string_view> kSmall = {
        "cos",        "erf",     "group_norm", "hardsigmoid", "instance_norm",
        "layer_norm", "sigmoid", "sin",        "softmax",     "tanh"};
    return kSmall.contains(entry.name);
  }

  static void require_same_arguments(const Node& node, const std::string& name) {
    const c10::FunctionSchema* const schema = node.maybeSchema();
    if (schema != nullptr && has_other_arguments(name, schema->overload_name())) {
      throw Unsupported(str("its form ", schema->overload_name(), " has no lowering"));
    }
  }

  // Lets the operations after a failed one be judged independently.
  void bind_placeholders(const Node& node) {
    for (const Value* output : node.outputs()) {
      Operand& operand = operands_[output];
      operand = {.name = "refused"};
      for (const torch::jit::Use& use : output->uses()) {
        if (use.user->kind() != c10::prim::ListUnpack) continue;
        operand.members.resize(use.user->outputs().size(), {.name = "refused"});
      }
    }
  }

  void add_constant(const Node& node) {
    const auto value = torch::jit::toIValue(node.output());
    if (value && value->isTensor() && value->toTensor().defined()) {
      operands_[node.output()] = {.constant = value->toTensor()};
    }
  }

  void unpack(const Node& node) {
    const Operand list = operands_[node.input(0)];
    for (std::size_t k = 0; k < node.outputs().size() && k < list.members.size(); ++k) {
      operands_[node.output(k)] = list.members[k];
    }
  }

  // The tracer joins several outputs into a tuple.
  std::vector<const Value*> output_values() const {
    std::vector<const Value*> values;
    for (const Value* output : trace_.recording.graph->outputs()) {
      if (output->node()->kind() == c10::prim::TupleConstruct) {
        const auto members = output->node()->inputs();
        values.insert(values.end(), members.begin(), members.end());
      } else {
        values.push_back(output);
      }
    }
    return values;
  }

  void add_outputs() {
    const auto values = output_values();
    builder_.set_scope("");
    for (std::size_t i = 0; i < values.size(); ++i) {
      const Operand& operand = operands_.at(values[i]);
      builder_.set_wide(true);  // outputs are of LibTorch's types
      const std::string name =
          operand.constant.defined()
              ? builder_.constant(operand.constant, operand.wish)
              : builder_.cast(operand.name, element_type(scalar_type_in(*values[i])));
      name_output(name, output_names_[i]);
      builder_.graph().outputs.push_back(
          value_info(output_names_[i], *values[i], output_names_[i]));
    }
  }

  // Gives the value its name as an output of the model, through an extra node if the value has
  // another name that must stay.
  void name_output(const std::string& name, const std::string& output) {
    Graph& graph = builder_.graph();
    builder_.declare(output, builder_.type_of(name));
    const bool is_output =
        std::find(output_names_.begin(), output_names_.end(), name) != output_names_.end();
    if (builder_.maker(name) == nullptr || is_output) {
      graph.nodes.push_back(
          {.op_type = "Identity", .name = output, .inputs = {name}, .outputs = {output}});
      return;
    }
    for (OnnxNode& node : graph.nodes) {
      std::replace(node.inputs.begin(), node.inputs.end(), name, output);
      std::replace(node.outputs.begin(), node.outputs.end(), name, output);
    }
    for (auto& [value, operand] : operands_) {
      if (operand.name == name) operand.name = output;
    }
  }

  const Trace& trace_;
  const NamedParameters& parameters_;
  const TranslationOptions& options_;
  GraphBuilder builder_;
  Operands operands_;
  Refusals refusals_;
  const std::size_t input_count_;
  std::vector<std::string> output_names_;
  bool has_batch_source_ = false;
};

}  // namespace

Model translate(const Trace& trace, const NamedParameters& parameters,
                const TranslationOptions& options) {
  return Translator(trace, parameters, options).run();
}

}  // namespace lockstep::onnx
