#include <lockstep/train/task/summarize.h>

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <lockstep/core/error.h>
#include <lockstep/optim/distinct.h>
#include <lockstep/train/task/module_modes.h>
#include <lockstep/train/task/output_shapes.h>

namespace lockstep {
namespace {

// "Conv2d" for "torch::nn::Conv2dImpl": module holders are named without the ending.
std::string short_type(const std::string& type) {
  std::string_view name = std::string_view(type).substr(0, type.find('<'));
  const std::size_t colon = name.rfind(':');
  if (colon != std::string_view::npos) name.remove_prefix(colon + 1);
  constexpr std::string_view kEnding = "Impl";
  if (name.size() > kEnding.size() && name.ends_with(kEnding)) name.remove_suffix(kEnding.size());
  return std::string(name);
}

struct Scalars {
  std::int64_t trainable = 0;
  std::int64_t frozen = 0;
};

Scalars scalars_of(const torch::nn::Module& module) {
  Scalars scalars;
  for (const torch::Tensor& parameter : optim::distinct(module.parameters())) {
    (parameter.requires_grad() ? scalars.trainable : scalars.frozen) += parameter.numel();
  }
  return scalars;
}

std::int64_t bytes_of(const std::vector<torch::Tensor>& tensors) {
  std::int64_t bytes = 0;
  for (const torch::Tensor& tensor : tensors) {
    if (tensor.defined()) bytes += static_cast<std::int64_t>(tensor.nbytes());
  }
  return bytes;
}

OutputShape shape_among(const train::OutputShapes& shapes, const torch::nn::Module& module) {
  const auto found = shapes.find(&module);
  return found == shapes.end() ? OutputShape{} : found->second;
}

void add_modules(const torch::nn::Module& module, const std::string& name, int depth, int max_depth,
                 const train::WatchedShapes& shapes, std::vector<ModuleSummary>& to) {
  const Scalars scalars = scalars_of(module);
  to.push_back({.name = name,
                .type = type_name_of(module),
                .depth = depth,
                .trainable = scalars.trainable,
                .frozen = scalars.frozen,
                .output_shape = shape_among(shapes.outputs, module),
                .last_operation_shape = shape_among(shapes.last_operations, module)});
  if (depth == max_depth) return;
  for (const auto& child : module.named_children()) {
    const std::string child_name = name.empty() ? child.key() : name + "." + child.key();
    add_modules(*child.value(), child_name, depth + 1, max_depth, shapes, to);
  }
}

train::WatchedShapes shapes_of(torch::nn::Module& module, const SummaryForward& forward) {
  if (!forward) return {};
  const torch::NoGradGuard no_grad;
  const train::EvalScope eval(module);
  return train::watch_output_shapes(module, forward);
}

}  // namespace

ModelSummary summarize(torch::nn::Module& module, int max_depth, const SummaryForward& forward) {
  if (max_depth < -1) {
    throw ConfigError(
        lockstep::str("summarize: max_depth must be -1 (all modules) or more, got ", max_depth));
  }
  ModelSummary summary;
  const Scalars scalars = scalars_of(module);
  summary.trainable = scalars.trainable;
  summary.frozen = scalars.frozen;
  summary.parameter_bytes = bytes_of(optim::distinct(module.parameters()));
  summary.buffer_bytes = bytes_of(optim::distinct(module.buffers()));
  add_modules(module, "", 0, max_depth, shapes_of(module, forward), summary.modules);
  return summary;
}

std::string type_name_of(const torch::nn::Module& module) { return short_type(module.name()); }

}  // namespace lockstep
