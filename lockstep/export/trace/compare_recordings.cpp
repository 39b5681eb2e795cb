#include <lockstep/export/trace/compare_recordings.h>

#include <algorithm>
#include <cmath>

#include <torch/csrc/jit/ir/constants.h>

#include <lockstep/core/error.h>

namespace lockstep::onnx {
namespace {

using torch::jit::Node;
using torch::jit::Value;

std::vector<const Node*> nodes_in_order(const Recording& recording) {
  std::vector<const Node*> nodes;
  for (const Node* node : recording.graph->nodes()) nodes.push_back(node);
  return nodes;
}

// Numbers values in the order in which they are made.
class Numbering {
 public:
  explicit Numbering(const Recording& recording) {
    for (const Value* input : recording.graph->inputs()) add(input);
    for (const Node* node : recording.graph->nodes()) {
      for (const Value* output : node->outputs()) add(output);
    }
  }
  std::size_t of(const Value* value) const { return numbers_.at(value); }

 private:
  void add(const Value* value) { numbers_.emplace(value, numbers_.size()); }

  std::unordered_map<const Value*, std::size_t> numbers_;
};

bool same_operation(const Node& a, const Numbering& of_a, const Node& b, const Numbering& of_b) {
  if (a.kind() != b.kind() || a.inputs().size() != b.inputs().size() ||
      a.outputs().size() != b.outputs().size()) {
    return false;
  }
  for (std::size_t i = 0; i < a.inputs().size(); ++i) {
    if (of_a.of(a.input(i)) != of_b.of(b.input(i))) return false;
  }
  return true;
}

std::string constant_text(const c10::IValue& value) {
  if (!value.isTensor()) return lockstep::str(value);
  return str("a tensor [", join(value.toTensor().sizes()), "]");
}

c10::IValue constant_of(const Node& node) {
  return torch::jit::toIValue(node.output()).value_or(c10::IValue());
}

// The line through (batch, size) of the first two runs, if the third run is also on it.
std::optional<Extent> line_through(std::int64_t batch, std::int64_t size,
                                   const std::vector<BatchProbe>& probes,
                                   const std::vector<std::int64_t>& sizes) {
  const std::int64_t run = probes[0].batch - batch;
  const std::int64_t rise = sizes[0] - size;
  if (rise % run != 0) return std::nullopt;
  const Extent line = {.size = size, .per_batch = rise / run, .offset = size - rise / run * batch};
  for (std::size_t i = 0; i < probes.size(); ++i) {
    if (line.per_batch * probes[i].batch + line.offset != sizes[i]) return std::nullopt;
  }
  return line;
}

std::optional<Extent> line_of(const c10::IValue& first, std::int64_t batch,
                              const std::vector<BatchProbe>& probes,
                              const std::vector<c10::IValue>& values) {
  if (!first.isInt()) return std::nullopt;
  std::vector<std::int64_t> sizes;
  for (const c10::IValue& value : values) {
    if (!value.isInt()) return std::nullopt;
    sizes.push_back(value.toInt());
  }
  return line_through(batch, first.toInt(), probes, sizes);
}

std::optional<std::vector<std::int64_t>> sizes_in(const c10::TensorTypePtr& type) {
  if (type == nullptr) return std::nullopt;
  const auto sizes = type->sizes().concrete_sizes();
  if (!sizes) return std::nullopt;
  return std::vector<std::int64_t>(sizes->begin(), sizes->end());
}

std::optional<std::vector<std::int64_t>> sizes_in(const Value& value) {
  return sizes_in(value.type()->cast<c10::TensorType>());
}

std::vector<const Value*> values_of(const Recording& recording) {
  std::vector<const Value*> values(recording.graph->inputs().begin(),
                                   recording.graph->inputs().end());
  for (const Node* node : recording.graph->nodes()) {
    values.insert(values.end(), node->outputs().begin(), node->outputs().end());
  }
  return values;
}

std::string location_in_words(const Value& value, const ModuleLocations& locations) {
  const auto location = locations.find(value.node());
  if (location == locations.end()) return "an input";
  return str(value.node()->kind().toQualString(), ' ', location->second.text());
}

Extents extents_of(const std::vector<std::int64_t>& sizes) {
  Extents extents;
  for (const std::int64_t size : sizes) extents.push_back(static_extent(size));
  return extents;
}

void require_same_rank(const Value& value, std::size_t rank, std::int64_t batch, const Value& peer,
                       std::int64_t peer_batch, const ModuleLocations& locations) {
  const auto there = sizes_in(peer);
  const std::size_t other = there ? there->size() : 0;
  if (there && other == rank) return;
  throw ConfigError(str("export_onnx: the result of ", location_in_words(value, locations), " has ",
                        rank, " dimensions for batch ", batch, " and ", other, " for batch ",
                        peer_batch,
                        ", and a graph has one number of them; name the dimension, as in "
                        "squeeze(1), or export with dynamic_batch = false"));
}

// "2 for batch 2, 3 for batch 3"
std::string sizes_in_words(std::int64_t batch, std::int64_t size,
                           const std::vector<BatchProbe>& probes,
                           const std::vector<std::int64_t>& sizes) {
  std::vector<std::string> texts = {str(size, " for batch ", batch)};
  for (std::size_t k = 0; k < probes.size(); ++k) {
    texts.push_back(str(sizes[k], " for batch ", probes[k].batch));
  }
  return join(texts);
}

void compare_argument(Argument& first, std::int64_t batch, const std::vector<BatchProbe>& probes,
                      const std::vector<const Argument*>& others) {
  const bool is_alike = std::all_of(others.begin(), others.end(), [&](const Argument* other) {
    return other->is_list == first.is_list && other->origin == first.origin &&
           other->members.size() == first.members.size() && !other->varies;
  });
  if (!is_alike) {
    first.varies = true;
    return;
  }
  for (std::size_t m = 0; m < first.members.size(); ++m) {
    std::vector<const Argument*> members;
    for (const Argument* other : others) members.push_back(&other->members[m]);
    compare_argument(first.members[m], batch, probes, members);
  }
  std::vector<c10::IValue> constants;
  for (const Argument* other : others) constants.push_back(other->constant);
  const bool is_constant = std::all_of(
      constants.begin(), constants.end(),
      [&](const c10::IValue& constant) { return same_constant(first.constant, constant); });
  if (is_constant) return;
  first.extent = line_of(first.constant, batch, probes, constants);
  first.varies = !first.extent;
}

// The graphs are alike, but the tracer has removed operations on which no output depends.
void require_same_calls(const Recording& first, const BatchProbe& probe) {
  const std::vector<Call>& calls = probe.recording->calls;
  const auto [in_first, in_probe] =
      std::mismatch(first.calls.begin(), first.calls.end(), calls.begin(), calls.end(),
                    [](const Call& one, const Call& two) {
                      return one.name == two.name && one.arguments.size() == two.arguments.size();
                    });
  if (in_first == first.calls.end() && in_probe == calls.end()) return;
  throw ConfigError(
      str("export_onnx: with a batch of ", probe.batch,
          ", forward() takes a different path in operations on which no output depends, at ",
          (in_probe == calls.end() ? *in_first : *in_probe).name,
          ": call the same operations for all batches, or export with dynamic_batch = false"));
}

// The sizes of result `k` of call `i`.
std::optional<Extents> sizes_of_result(const Recording& first, std::size_t i, std::size_t k,
                                       std::int64_t batch, const std::vector<BatchProbe>& probes) {
  const auto sizes = sizes_in(first.calls[i].results[k]);
  if (!sizes) return std::nullopt;
  std::vector<std::vector<std::int64_t>> others;
  for (const BatchProbe& probe : probes) {
    const std::vector<Call>& calls = probe.recording->calls;
    const auto there = k < calls[i].results.size() ? sizes_in(calls[i].results[k]) : std::nullopt;
    if (!there || there->size() != sizes->size()) return std::nullopt;
    others.push_back(*there);
  }
  Extents extents = extents_of(*sizes);
  for (std::size_t d = 0; d < extents.size() && !probes.empty(); ++d) {
    std::vector<std::int64_t> seen;
    for (const auto& other : others) seen.push_back(other[d]);
    const auto line = line_through(batch, (*sizes)[d], probes, seen);
    if (!line) return std::nullopt;
    extents[d] = *line;
  }
  return extents;
}

}  // namespace

std::vector<std::vector<std::optional<Extents>>> sizes_of_calls(
    const Recording& first, std::int64_t batch, const std::vector<BatchProbe>& probes) {
  std::vector<std::vector<std::optional<Extents>>> sizes(first.calls.size());
  for (std::size_t i = 0; i < first.calls.size(); ++i) {
    for (std::size_t k = 0; k < first.calls[i].results.size(); ++k) {
      sizes[i].push_back(sizes_of_result(first, i, k, batch, probes));
    }
  }
  return sizes;
}

void compare_arguments_of_calls(Recording& first, std::int64_t batch,
                                const std::vector<BatchProbe>& probes) {
  if (probes.empty()) return;
  for (const BatchProbe& probe : probes) require_same_calls(first, probe);
  for (std::size_t i = 0; i < first.calls.size(); ++i) {
    Call& call = first.calls[i];
    for (std::size_t a = 0; a < call.arguments.size(); ++a) {
      std::vector<const Argument*> others;
      for (const BatchProbe& probe : probes) {
        others.push_back(&probe.recording->calls[i].arguments[a]);
      }
      compare_argument(call.arguments[a], batch, probes, others);
    }
  }
}

bool same_constant(const c10::IValue& a, const c10::IValue& b) {
  if (a.isTensor() && b.isTensor()) return same_tensor(a.toTensor(), b.toTensor());
  if (a.isDouble() && b.isDouble()) {
    return a.toDouble() == b.toDouble() || (std::isnan(a.toDouble()) && std::isnan(b.toDouble()));
  }
  if (a.isInt() && b.isInt()) return a.toInt() == b.toInt();
  return a.tagKind() == b.tagKind() && lockstep::str(a) == lockstep::str(b);
}

bool same_tensor(const at::Tensor& a, const at::Tensor& b) {
  if (a.defined() != b.defined()) return false;
  if (!a.defined() || a.is_same(b)) return true;
  if (a.scalar_type() != b.scalar_type() || a.sizes() != b.sizes()) return false;
  return a.is_floating_point() ? at::allclose(a, b, 0, 0, /*equal_nan=*/true) : at::equal(a, b);
}

const Node* user_of(const Value& constant) {
  const Node* user = nullptr;
  for (const Value* value = &constant; !value->uses().empty();) {
    user = value->uses().front().user;
    if (user->kind() != c10::prim::ListConstruct) break;
    value = user->output();
  }
  return user == nullptr ? constant.node() : user;
}

constexpr std::string_view kContiguous = "aten::contiguous";
constexpr std::string_view kUnpack = "prim::ListUnpack";

void require_same_operations(const Recording& first, const Recording& other,
                             const ModuleLocations& locations, const std::string& condition) {
  const auto a = nodes_in_order(first);
  const auto b = nodes_in_order(other);
  const Numbering of_a(first);
  const Numbering of_b(other);
  const auto [in_a, in_b] = std::mismatch(
      a.begin(), a.end(), b.begin(), b.end(),
      [&](const Node* one, const Node* two) { return same_operation(*one, of_a, *two, of_b); });
  if (in_a == a.end() && in_b == b.end()) return;
  const auto name = [](const Node* node) -> std::string {
    if (node == nullptr) return "";
    const bool is_constant = node->kind() == c10::prim::Constant;
    return (is_constant ? user_of(*node->output()) : node)->kind().toQualString();
  };
  const std::string name_a = name(in_a == a.end() ? nullptr : *in_a);
  const std::string name_b = name(in_b == b.end() ? nullptr : *in_b);
  const char* advice =
      "an exported graph has a single path: compute the condition with operations such as "
      "torch::where()";
  if (name_a == kContiguous || name_b == kContiguous) {
    advice =
        "contiguous() calls no operation where nothing has to be copied, as in a part of one "
        "sample: call clone() instead";
  } else if (name_a == kUnpack && name_b == kUnpack) {
    advice = "the number of pieces varies: cut another dimension";
  }
  const Node* const last = in_a != a.end() ? *in_a : a.empty() ? nullptr : a.back();
  const std::string called_by_b = (in_a == a.end() ? "called " : "") + name_b;
  throw ConfigError(str("export_onnx: forward() takes a different path with ", condition, ", ",
                        last == nullptr ? "at its beginning" : locations.at(last).text(),
                        ": one run ", in_a == a.end() ? "ended" : "called " + name_a, ", another ",
                        in_b == b.end() ? "ended" : called_by_b, "; ", advice));
}

std::vector<BakedConstant> differing_constants(const Recording& first,
                                               const std::vector<const Recording*>& others) {
  std::vector<BakedConstant> baked;
  const auto nodes = nodes_in_order(first);
  for (const Recording* other : others) {
    const auto peers = nodes_in_order(*other);
    for (std::size_t i = 0; i < nodes.size(); ++i) {
      if (nodes[i]->kind() != c10::prim::Constant) continue;
      const c10::IValue value = constant_of(*nodes[i]);
      if (same_constant(value, constant_of(*peers[i]))) continue;
      baked.push_back({.user = user_of(*nodes[i]->output()),
                       .text = constant_text(value),
                       .value = nodes[i]->output()});
    }
    if (!baked.empty()) break;  // each place only once
  }
  return baked;
}

std::vector<BakedConstant> following_constants(const Recording& first, std::int64_t batch,
                                               const std::vector<BatchProbe>& probes) {
  std::vector<BakedConstant> baked;
  std::vector<std::vector<const Node*>> peers;
  for (const BatchProbe& probe : probes) peers.push_back(nodes_in_order(*probe.recording));
  const auto nodes = nodes_in_order(first);
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    if (nodes[i]->kind() != c10::prim::Constant) continue;
    const c10::IValue value = constant_of(*nodes[i]);
    bool differs = false;
    std::vector<c10::IValue> others;
    for (const auto& peer : peers) {
      others.push_back(constant_of(*peer[i]));
      differs = differs || !same_constant(value, others.back());
    }
    if (!differs) continue;
    baked.push_back({.user = user_of(*nodes[i]->output()),
                     .text = constant_text(value),
                     .extent = line_of(value, batch, probes, others),
                     .value = nodes[i]->output()});
  }
  return baked;
}

std::unordered_map<const Value*, Extents> traced_sizes(const Recording& first,
                                                       const std::vector<const Recording*>& others,
                                                       std::int64_t batch,
                                                       const std::vector<BatchProbe>& probes,
                                                       const ModuleLocations& locations) {
  std::unordered_map<const Value*, Extents> result;
  const auto values = values_of(first);
  std::vector<std::vector<const Value*>> peers;
  for (const BatchProbe& probe : probes) peers.push_back(values_of(*probe.recording));
  for (const Recording* other : others) {
    const auto peer = values_of(*other);
    for (std::size_t i = 0; i < values.size(); ++i) {
      if (sizes_in(*values[i]) == sizes_in(*peer[i])) continue;
      throw ConfigError(str("export_onnx: the sizes of the result of ",
                            location_in_words(*values[i], locations),
                            " depend on the values of the inputs, which a graph of fixed sizes "
                            "cannot hold"));
    }
  }
  for (std::size_t i = 0; i < values.size(); ++i) {
    const auto sizes = sizes_in(*values[i]);
    if (!sizes) continue;
    for (std::size_t k = 0; k < peers.size(); ++k) {
      require_same_rank(*values[i], sizes->size(), batch, *peers[k][i], probes[k].batch, locations);
    }
    Extents extents = extents_of(*sizes);
    for (std::size_t d = 0; d < extents.size() && !probes.empty(); ++d) {
      std::vector<std::int64_t> seen;
      for (const auto& peer : peers) {
        seen.push_back(sizes_in(*peer[i])->at(d));
      }
      const auto line = line_through(batch, (*sizes)[d], probes, seen);
      if (!line) {
        throw ConfigError(str("export_onnx: dimension ", d, " of the result of ",
                              location_in_words(*values[i], locations), " is ",
                              sizes_in_words(batch, (*sizes)[d], probes, seen),
                              ", which does not follow the batch by a factor and an addend; export "
                              "with dynamic_batch = false"));
      }
      extents[d] = *line;
    }
    result[values[i]] = std::move(extents);
  }
  return result;
}

}  // namespace lockstep::onnx
