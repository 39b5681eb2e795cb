#include <lockstep/program/module_tree.h>

#include <algorithm>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include <lockstep/core/strings.h>
#include <lockstep/formats/printable.h>

namespace lockstep::program {
namespace {

struct Part : torch::nn::Module {
  using torch::nn::Module::Module;
};

// "Bottleneck" for the class "torchvision.models.resnet.Bottleneck" of the module; "Part" if the
// graph does not name it.
std::string class_of(const Graph& graph, std::string_view path) {
  const auto found = graph.module_classes.find(path);
  if (found == graph.module_classes.end()) return "Part";
  return formats::printable(found->second.substr(found->second.rfind('.') + 1));
}

std::pair<std::string_view, std::string> split_name(const std::string& name) {
  const std::size_t dot = name.rfind('.');
  if (dot == std::string::npos) return {std::string_view(), name};
  return {std::string_view(name).substr(0, dot), name.substr(dot + 1)};
}

// The modes of `module` and its descendants by their names; "" is `module` itself.
void collect_modes(const torch::nn::Module& module, const std::string& name,
                   std::map<std::string, bool>& modes) {
  modes[name] = module.is_training();
  for (const auto& child : module.named_children()) {
    collect_modes(*child.value(), name.empty() ? child.key() : str(name, '.', child.key()), modes);
  }
}

// A name is less than those that it begins, so that parents come first.
void collect_modules(torch::nn::Module& module, const std::string& name,
                     std::map<std::string, torch::nn::Module*>& modules) {
  modules[name] = &module;
  for (const auto& child : module.named_children()) {
    collect_modules(*child.value(), name.empty() ? child.key() : str(name, '.', child.key()),
                    modules);
  }
}

}  // namespace

void copy_modes(const torch::nn::Module& from, torch::nn::Module& to) {
  std::map<std::string, bool> modes;
  collect_modes(from, "", modes);
  // Parents come before their children, because train() also changes these.
  std::map<std::string, torch::nn::Module*> modules;
  collect_modules(to, "", modules);
  for (const auto& [name, module] : modules) {
    if (const auto found = modes.find(name); found != modes.end()) module->train(found->second);
  }
}

torch::nn::Module& ModuleTree::at(std::string_view path) {
  torch::nn::Module* module = &root_;
  std::size_t begin = 0;
  while (begin < path.size()) {
    const std::size_t end = std::min(path.find('.', begin), path.size());
    const std::string name(path.substr(begin, end - begin));
    const auto children = module->named_children();
    const auto* found = children.find(name);
    if (found == nullptr) {
      const auto made = std::make_shared<Part>(class_of(graph_, path.substr(0, end)));
      module = module->register_module(name, made).get();
    } else {
      module = found->get();
    }
    begin = end + 1;
  }
  return *module;
}

void ModuleTree::add(const InputSpec& input, const torch::Tensor& tensor) {
  const auto [path, name] = split_name(input.target);
  torch::nn::Module& module = at(path);
  if (module.named_parameters(/*recurse=*/false).contains(name) ||
      module.named_buffers(/*recurse=*/false).contains(name)) {
    return;
  }
  if (input.kind == InputSpec::Kind::kParameter) {
    module.register_parameter(name, tensor, tensor.requires_grad());
  } else {
    module.register_buffer(name, tensor);
  }
}

}  // namespace lockstep::program
