#include <lockstep/program/module_shapes.h>

#include <map>
#include <set>
#include <string>
#include <string_view>

#include <lockstep/core/strings.h>

namespace lockstep::program {
namespace {

using Shape = std::vector<std::int64_t>;

thread_local ModuleShapes* current_shapes = nullptr;

bool is_inside(std::string_view path, std::string_view module) {
  return module.empty() || path == module ||
         (path.starts_with(module) && path[module.size()] == '.');
}

// The values of a node, as its results are numbered.
std::vector<std::string> results_of(const Node& node) {
  std::vector<std::string> names;
  for (const Argument& output : node.outputs) {
    const auto* const list = std::get_if<ArgumentList>(&output.value);
    const std::size_t count = list == nullptr ? 1 : list->items.size();
    for (std::size_t i = 0; i < count; ++i) {
      names.emplace_back();
      for_each_name(list == nullptr ? output : list->items[i],
                    [&](const std::string& name, bool) { names.back() = name; });
    }
  }
  return names;
}

struct PathShapes {
  std::map<std::string, std::set<Shape>, std::less<>> outputs{};  // by the module's path
  std::map<std::string, Shape, std::less<>> last_operations{};
};

PathShapes shapes_by_path(const Graph& graph, const NodeRecord& record) {
  PathShapes shapes;
  struct Made {
    std::string_view path;
    const Shape* shape;
  };
  std::map<std::string, Made> made;
  const auto use = [&](const Argument& argument, const auto& is_outside) {
    for_each_name(argument, [&](const std::string& name, bool) {
      const auto value = made.find(name);
      if (value == made.end()) return;
      for_each_module(value->second.path, [&](std::string_view module) {
        if (is_outside(module)) shapes.outputs[std::string(module)].insert(*value->second.shape);
      });
    });
  };
  for (std::size_t i = 0; i < graph.nodes.size(); ++i) {
    const Node& node = graph.nodes[i];
    for (const NamedArgument& input : node.inputs) {
      use(input.argument,
          [&](std::string_view module) { return !is_inside(node.module_path, module); });
    }
    if (i >= record.sizes.size()) continue;
    const std::vector<std::string> names = results_of(node);
    const std::size_t count = std::min(names.size(), record.sizes[i].size());
    for (std::size_t j = 0; j < count; ++j) {
      const Shape& shape = record.sizes[i][j];
      if (shape.empty()) continue;
      made[names[j]] = {node.module_path, &shape};
      if (j > 0) continue;
      for_each_module(node.module_path, [&](std::string_view module) {
        shapes.last_operations[std::string(module)] = shape;
      });
    }
  }
  for (const Argument& output : graph.outputs) {
    use(output, [](std::string_view) { return true; });
  }
  return shapes;
}

void assign(const torch::nn::Module& module, const std::string& path, const PathShapes& from,
            ModuleShapes& to) {
  const auto output = from.outputs.find(path);
  const auto last = from.last_operations.find(path);
  if (output != from.outputs.end() && output->second.size() == 1) {
    to.outputs[&module] = *output->second.begin();
  } else if (last != from.last_operations.end()) {
    to.last_operations[&module] = last->second;
  }
  for (const auto& child : module.named_children()) {
    const std::string name = path.empty() ? child.key() : str(path, '.', child.key());
    assign(*child.value(), name, from, to);
  }
}

}  // namespace

void ModuleShapes::add(const torch::nn::Module& program, const Graph& graph,
                       const NodeRecord& record) {
  assign(program, "", shapes_by_path(graph, record), *this);
}

ModuleShapesScope::ModuleShapesScope(ModuleShapes& shapes) : outer_(current_shapes) {
  current_shapes = &shapes;
}

ModuleShapesScope::~ModuleShapesScope() { current_shapes = outer_; }

ModuleShapes* ModuleShapesScope::current() { return current_shapes; }

}  // namespace lockstep::program
