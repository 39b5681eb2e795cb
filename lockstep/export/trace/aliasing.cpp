#include <lockstep/export/trace/aliasing.h>

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <unordered_map>
#include <utility>
#include <vector>

#include <ATen/core/function_schema.h>

#include <lockstep/core/error.h>

namespace lockstep::onnx {
namespace {

using torch::jit::Node;
using torch::jit::Value;

// Where a value lies in memory: in the memory of its root, the first of the values that may share
// it. If it was taken from the members of a list whose members share nothing, as those of chunk()
// do, `parts` says from which, the outermost list first.
struct Place {
  const Value* root = nullptr;
  std::vector<std::pair<const Value*, std::size_t>> parts{};  // lists, and indices of members
};
using Places = std::unordered_map<const Value*, Place>;

Place place_of(const Places& places, const Value* value) {
  const auto found = places.find(value);
  return found == places.end() ? Place{.root = value} : found->second;
}

// Values of one root share memory, unless they come from different members of one list.
bool may_share(const Place& a, const Place& b) {
  if (a.root != b.root) return false;
  const auto [in_a, in_b] =
      std::mismatch(a.parts.begin(), a.parts.end(), b.parts.begin(), b.parts.end());
  return in_a == a.parts.end() || in_b == b.parts.end() || in_a->first != in_b->first;
}

// Whether each element has memory of its own, unlike those of an expanded tensor.
bool has_separate_elements(const Value& value) {
  const auto type = value.type()->cast<c10::TensorType>();
  const auto sizes = type == nullptr ? std::nullopt : type->sizes().concrete_sizes();
  const auto strides = type == nullptr ? std::nullopt : type->strides().concrete_sizes();
  if (!sizes || !strides) return false;
  std::vector<std::pair<std::int64_t, std::int64_t>> dimensions;  // strides and sizes
  for (std::size_t d = 0; d < sizes->size(); ++d) {
    if ((*sizes)[d] > 1) dimensions.emplace_back((*strides)[d], (*sizes)[d]);
  }
  std::sort(dimensions.begin(), dimensions.end());
  std::int64_t last = 0;  // the offset of the last element of the smaller dimensions
  for (const auto& [stride, size] : dimensions) {
    if (stride <= last) return false;
    last += stride * (size - 1);
  }
  return true;
}

// Whether the members of a list are parts of a tensor that share nothing.
bool are_separate_parts(const Value& list) {
  static const std::set<std::string> kSplits = {"aten::chunk",
                                                "aten::split",
                                                "aten::split_with_sizes",
                                                "aten::tensor_split",
                                                "aten::unbind",
                                                "aten::unsafe_chunk",
                                                "aten::unsafe_split",
                                                "aten::unsafe_split_with_sizes"};
  const Node& split = *list.node();
  return kSplits.contains(split.kind().toQualString()) && has_separate_elements(*split.input(0));
}

// Returns the argument that the result may be a view of; null if the result has its own memory.
const Value* viewed(const Node& node) {
  if (node.kind() == c10::prim::ListUnpack) return node.input(0);
  if (node.inputs().empty()) return nullptr;
  if (is_dropout(node.kind().toQualString())) return node.input(0);
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

bool is_dropout(const std::string& name) {
  static const std::set<std::string> kNames = {"aten::dropout", "aten::feature_dropout",
                                               "aten::alpha_dropout",
                                               "aten::feature_alpha_dropout"};
  return kNames.contains(name);
}

void require_plain_writes(const torch::jit::Graph& graph, std::size_t inputs,
                          const NamedParameters& parameters, const ModuleLocations& locations) {
  Places places;
  std::map<const Value*, std::vector<const Value*>> members;  // by root
  std::unordered_map<const Value*, std::string> parameter_of;
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    parameter_of[graph.inputs()[inputs + i]] = parameters[i].first;
  }
  std::vector<std::string> wrong;
  for (const Node* node : graph.nodes()) {
    if (const Value* const target = written(*node)) {
      const Place place = place_of(places, target);
      const std::string where = str(node->kind().toQualString(), ' ', locations.at(node).text());
      const auto& alike = members[place.root];
      const auto shows_later = [&](const Value* value) {
        return may_share(place_of(places, value), place) && is_used_behind(*value, *node);
      };
      if (const auto parameter = parameter_of.find(place.root); parameter != parameter_of.end()) {
        wrong.push_back(str(where, " writes to ", parameter->second));
      } else if (shows_later(place.root) || std::any_of(alike.begin(), alike.end(), shows_later)) {
        wrong.push_back(where + " writes to memory that is used afterwards by another name");
      }
    }
    const Value* const source = viewed(*node);
    if (source == nullptr) continue;
    const Place place = place_of(places, source);
    const bool is_apart = node->kind() == c10::prim::ListUnpack && are_separate_parts(*source);
    for (std::size_t k = 0; k < node->outputs().size(); ++k) {
      const Value* const output = node->output(k);
      Place& own = places[output] = place;
      if (is_apart) own.parts.emplace_back(source, k);
      members[place.root].push_back(output);
    }
  }
  if (wrong.empty()) return;
  throw ConfigError(str("export_onnx: a graph has values and no memory: ", join(wrong, "; "),
                        "; compute a new tensor with torch::cat(), stack() or where()"));
}

}  // namespace lockstep::onnx
