#include <tests/program/fuzz/program_targets.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include <lockstep/core/error.h>
#include <lockstep/program/graph/expression.h>
#include <lockstep/program/graph/pt2_file.h>
#include <lockstep/program/graph/read_graph.h>
#include <tests/formats/fuzz/harness.h>
#include <tests/formats/torch_bytes.h>

namespace lockstep::testing_support {
namespace {

using program::Argument;
using program::ArgumentList;
using program::evaluate;
using program::ExportedGraph;
using program::Graph;
using program::InputSpec;
using program::NamedArgument;
using program::Node;
using program::NumberName;
using program::only_symbol;
using program::parse_pt2_file;
using program::Pt2File;
using program::read_graph;
using program::scalar_type_info;
using program::ScalarTypeInfo;
using program::Size;
using program::StoredTensor;
using program::Structure;
using program::Subgraph;
using program::Symbols;
using program::TensorName;

std::string_view text_in(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

void touch_size(std::string_view text) {
  if (text.empty()) return;
  const Symbols symbols = {{"s0", 4}, {"s77", 3}};
  const auto symbol = only_symbol(text);
  const auto value = evaluate(text, symbols);
  LOCKSTEP_CHECK(!symbol || value == (symbols.contains(*symbol) ? std::optional(symbols.at(*symbol))
                                                                : std::nullopt),
                 "a symbol and its expression differ");
}

using Names = std::set<std::string>;

// Visits an argument. Names must be in `known`.
void touch_argument(const Argument& argument, const Names& known);

void touch_graph(const Graph& graph) {
  Names known;
  const auto define = [&](const auto& self, const Argument& argument) -> void {
    if (const auto* tensor = std::get_if<TensorName>(&argument.value)) known.insert(tensor->name);
    if (const auto* number = std::get_if<NumberName>(&argument.value)) known.insert(number->name);
    if (const auto* list = std::get_if<ArgumentList>(&argument.value)) {
      for (const Argument& item : list->items) self(self, item);
    }
  };
  for (const Argument& input : graph.inputs) define(define, input);
  for (const Node& node : graph.nodes) {
    for (const NamedArgument& input : node.inputs) touch_argument(input.argument, known);
    for (const Argument& output : node.outputs) define(define, output);
    LOCKSTEP_CHECK(node.source.find('\n') == std::string::npos, "a source has several lines");
  }
  for (const Argument& output : graph.outputs) touch_argument(output, known);
  for (const auto& [name, tensor] : graph.tensors) {
    LOCKSTEP_CHECK(tensor.sizes.size() == tensor.strides.size(), "sizes and strides");
    for (const Size& size : tensor.sizes) touch_size(size.expression);
    for (const Size& stride : tensor.strides) touch_size(stride.expression);
    touch_size(tensor.storage_offset.expression);
  }
}

void touch_argument(const Argument& argument, const Names& known) {
  const auto check = [&](const std::string& name) {
    LOCKSTEP_CHECK(known.contains(name), "an undefined name was accepted");
  };
  if (const auto* tensor = std::get_if<TensorName>(&argument.value)) check(tensor->name);
  if (const auto* number = std::get_if<NumberName>(&argument.value)) check(number->name);
  if (const auto* graph = std::get_if<Subgraph>(&argument.value)) touch_graph(*graph->graph);
  if (const auto* list = std::get_if<ArgumentList>(&argument.value)) {
    for (const Argument& item : list->items) touch_argument(item, known);
  }
}

std::size_t touch_structure(const Structure& structure) {
  using Kind = Structure::Kind;
  if (structure.kind == Kind::kLeaf) {
    LOCKSTEP_CHECK(structure.children.empty(), "a leaf has children");
    return 1;
  }
  const bool has_names = structure.kind == Kind::kDict || structure.kind == Kind::kObject;
  LOCKSTEP_CHECK(structure.names.size() == (has_names ? structure.children.size() : 0), "names");
  std::size_t leaves = 0;
  for (const Structure& child : structure.children) leaves += touch_structure(child);
  return leaves;
}

void touch_program(const ExportedGraph& program) {
  touch_graph(program.graph);
  LOCKSTEP_CHECK(program.inputs.size() == program.graph.inputs.size(), "inputs");
  LOCKSTEP_CHECK(program.outputs.size() == program.graph.outputs.size(), "outputs");
  const auto users =
      std::count_if(program.inputs.begin(), program.inputs.end(), [](const InputSpec& input) {
        return input.kind == InputSpec::Kind::kUser || input.kind == InputSpec::Kind::kFixed;
      });
  LOCKSTEP_CHECK(touch_structure(program.arguments) == static_cast<std::size_t>(users),
                 "arguments");
  touch_structure(program.results);
}

// Reads the first and the last element of each tensor.
void touch_tensors(const std::map<std::string, StoredTensor>& tensors) {
  for (const auto& [name, tensor] : tensors) {
    touch(tensor.storage);
    const ScalarTypeInfo* type = scalar_type_info(tensor.dtype);
    LOCKSTEP_CHECK(type != nullptr && tensor.sizes.size() == tensor.strides.size(), "a tensor");
    if (std::find(tensor.sizes.begin(), tensor.sizes.end(), 0) != tensor.sizes.end()) continue;
    std::int64_t last = tensor.offset;
    for (std::size_t i = 0; i < tensor.sizes.size(); ++i) {
      last += (tensor.sizes[i] - 1) * tensor.strides[i];
    }
    for (const std::int64_t element : {tensor.offset, last}) {
      LOCKSTEP_CHECK(element >= 0, "an element lies before its storage");
      const std::size_t at = static_cast<std::size_t>(element) * type->bytes;
      LOCKSTEP_CHECK(at + type->bytes <= tensor.storage.size(), "an element is outside");
      touch(tensor.storage.subspan(at, type->bytes));
    }
  }
}

void touch_file(const Pt2File& file) {
  touch_program(file.program);
  touch_tensors(file.state);
  touch_tensors(file.constants);
}

}  // namespace

bool fuzz_exported_graph(std::span<const std::byte> bytes) {
  accepts([&] { program::read_payloads(text_in(bytes), "fuzz"); });
  return accepts([&] { touch_program(read_graph(text_in(bytes), "fuzz")); });
}

bool fuzz_pt2_file(std::span<const std::byte> bytes) {
  // Without valid checksums, few inputs would get past them. The copy's size is exact, so that a
  // sanitizer detects an access one byte beyond it.
  const std::string sealed = with_right_crcs(std::string(text_in(bytes)));
  const std::vector<char> copy(sealed.begin(), sealed.end());
  accepts([&] { touch_file(parse_pt2_file(std::as_bytes(std::span(copy)), "fuzz")); });
  return accepts([&] { touch_file(parse_pt2_file(bytes, "fuzz")); });
}

bool fuzz_size_expression(std::span<const std::byte> bytes) {
  touch_size(text_in(bytes));
  return evaluate(text_in(bytes), {{"s0", 4}, {"s77", 3}}).has_value();
}

}  // namespace lockstep::testing_support
