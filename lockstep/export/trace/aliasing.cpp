#include <lockstep/export/trace/aliasing.h>

#include <algorithm>
#include <map>
#include <set>

#include <ATen/core/function_schema.h>

#include <lockstep/core/error.h>

namespace lockstep::onnx {
namespace {

using torch::jit::Node;
using torch::jit::Value;

// Maps values that may share memory to a common root, the first of them.
using Roots = std::unordered_map<const Value*, const Value*>;

const Value* root_of(const Roots& roots, const Value* value) {
  const auto found = roots.find(value);
  return found == roots.end() ? value : found->second;
}

// Returns the argument that the result may be a view of; null if the result has its own memory.
const Value* viewed(const Node& node) {
  static const std::set<std::string> kSameInEvalMode = {"aten::dropout", "aten::feature_dropout",
                                                        "aten::alpha_dropout",
                                                        "aten::feature_alpha_dropout"};
  if (node.kind() == c10::prim::ListUnpack) return node.input(0);
  if (node.inputs().empty()) return nullptr;
  if (kSameInEvalMode.contains(node.kind().toQualString())) return node.input(0);
  const c10::FunctionSchema* const schema = node.maybeSchema();
  if (schema == nullptr || schema->returns().empty()) return nullptr;
  const c10::AliasInfo* const alias = schema->returns()[0].alias_info();
  const bool is_view =
      alias != nullptr || schema->returns()[0].type()->kind() == c10::TypeKind::ListType;
  return is_view ? node.input(0) : nullptr;
}

// The argument that an operation writes to; null for most.
const Value* written(const Node& node) {
  const c10::FunctionSchema* const schema = node.maybeSchema();
  if (schema == nullptr) return nullptr;
  for (std::size_t i = 0; i < schema->arguments().size() && i < node.inputs().size(); ++i) {
    const c10::AliasInfo* const alias = schema->arguments()[i].alias_info();
    if (alias != nullptr && alias->isWrite()) return node.input(i);
  }
  return nullptr;
}

// Whether `value` is used after `node`, including as a result of the graph.
bool is_used_behind(const Value& value, const Node& node) {
  return std::any_of(value.uses().begin(), value.uses().end(), [&](const torch::jit::Use& use) {
    return use.user != &node && use.user->isAfter(&node);
  });
}

}  // namespace

void require_plain_writes(const torch::jit::Graph& graph, std::size_t inputs,
                          const NamedParameters& parameters, const ModuleLocations& locations) {
  Roots roots;
  std::map<const Value*, std::vector<const Value*>> members;
  std::unordered_map<const Value*, std::string> parameter_of;
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    parameter_of[graph.inputs()[inputs + i]] = parameters[i].first;
  }
  std::vector<std::string> wrong;
  for (const Node* node : graph.nodes()) {
    if (const Value* const target = written(*node)) {
      const Value* const root = root_of(roots, target);
      const std::string where = str(node->kind().toQualString(), ' ', locations.at(node).text());
      const auto& alike = members[root];
      const auto seen = [&](const Value* value) { return is_used_behind(*value, *node); };
      if (const auto parameter = parameter_of.find(root); parameter != parameter_of.end()) {
        wrong.push_back(str(where, " writes to ", parameter->second));
      } else if (seen(root) || std::any_of(alike.begin(), alike.end(), seen)) {
        wrong.push_back(where + " writes to memory that is used afterwards by another name");
      }
    }
    const Value* const source = viewed(*node);
    if (source == nullptr) continue;
    const Value* const root = root_of(roots, source);
    for (const Value* output : node->outputs()) {
      roots[output] = root;
      members[root].push_back(output);
    }
  }
  if (wrong.empty()) return;
  throw ConfigError(str("export_onnx: a graph has values and no memory: ", join(wrong, "; "),
                        "; compute a new tensor with torch::cat(), stack() or where()"));
}

}  // namespace lockstep::onnx
