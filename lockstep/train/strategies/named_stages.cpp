#include <lockstep/train/strategies/named_stages.h>

#include <map>
#include <set>
#include <unordered_map>
#include <utility>

#include <lockstep/core/error.h>

namespace lockstep::train {
namespace {

using Named = torch::OrderedDict<std::string, torch::Tensor>;
using Names = std::unordered_map<const torch::TensorImpl*, std::string>;

// Maps each tensor to its first name.
Names names_of(const Named& whole) {
  Names names;
  for (const auto& item : whole) names.emplace(item.value().unsafeGetTensorImpl(), item.key());
  return names;
}

// The stage's tensors, each once, by the whole module's names.
NamedTensors renamed(const Named& of_stage, const Names& names, const std::string& strategy,
                     std::size_t stage) {
  NamedTensors tensors;
  std::set<const torch::TensorImpl*> seen;
  for (const auto& item : of_stage) {
    const auto found = names.find(item.value().unsafeGetTensorImpl());
    if (found == names.end()) {
      throw ConfigError(lockstep::str("strategy ", strategy, ": stage ", stage, " has '",
                                      item.key(),
                                      "', which the model does not have; stages must share the "
                                      "model's submodules"));
    }
    if (seen.insert(found->first).second) tensors.emplace_back(found->second, item.value());
  }
  return tensors;
}

void require_all(const Named& whole, const std::vector<NamedStage>& stages,
                 NamedTensors NamedStage::* member, const std::string& strategy) {
  std::set<const torch::TensorImpl*> present;
  for (const NamedStage& stage : stages) {
    for (const auto& [name, tensor] : stage.*member) present.insert(tensor.unsafeGetTensorImpl());
  }
  for (const auto& item : whole) {
    if (present.contains(item.value().unsafeGetTensorImpl())) continue;
    throw ConfigError(lockstep::str("strategy ", strategy, ": none of the ", stages.size(),
                                    " stages has '", item.key(), "' of the model"));
  }
}

// Autocast is per thread, so the stage sets the precision on the thread that computes it.
pipeline::StageModule in_precision(const pipeline::StageModule& stage,
                                   const StepSettings& settings) {
  if (settings.precision == Precision::k32) return stage;
  return pipeline::StageModule(
      stage.module().shared_from_this(),
      [stage, precision = settings.precision,
       device = settings.device.type()](const Tensors& inputs) -> Tensors {
        const AutocastScope autocast(precision, device);
        return stage.forward(inputs);
      },
      stage.has_whole_backward());
}

// Whether a stage after `stage` has a parameter named `name` or in a module of that name.
bool occurs_behind(const std::vector<NamedStage>& stages, std::size_t stage,
                   const std::string& name) {
  for (std::size_t later = stage + 1; later < stages.size(); ++later) {
    for (const auto& [other, tensor] : stages[later].parameters) {
      if (other == name || other.starts_with(name + '.')) return true;
    }
  }
  return false;
}

// See names_of_cuts().
std::string end_of_stage(const std::vector<NamedStage>& stages, std::size_t stage) {
  const NamedTensors& own = stages[stage].parameters;
  for (auto last = own.rbegin(); last != own.rend(); ++last) {
    const std::string& name = last->first;
    std::size_t dot = 0;
    while (dot != std::string::npos) {
      dot = name.find('.', dot + 1);
      const std::string begin = name.substr(0, dot);  // the whole name if there is no dot
      if (!occurs_behind(stages, stage, begin)) return begin;
    }
  }
  return "(no parameters)";
}

}  // namespace

NamedTensors NamedStage::trainable() const {
  NamedTensors tensors;
  for (const auto& [name, tensor] : parameters) {
    if (tensor.requires_grad()) tensors.emplace_back(name, tensor);
  }
  return tensors;
}

std::vector<NamedStage> named_stages(const detail::OutputTaskBase& task, torch::nn::Module& module,
                                     int count, const StepSettings& settings,
                                     const std::string& strategy) {
  const std::vector<pipeline::StageModule> modules = task.stages(count);
  if (modules.size() != static_cast<std::size_t>(count)) {
    throw ConfigError(lockstep::str("strategy ", strategy, ": the task was asked for ",
                                    amount_of(count, "stage"), " and gave ", modules.size()));
  }
  const Named parameters = module.named_parameters(), buffers = module.named_buffers();
  const Names names_of_parameters = names_of(parameters), names_of_buffers = names_of(buffers);
  std::vector<NamedStage> stages;
  for (std::size_t s = 0; s < modules.size(); ++s) {
    stages.push_back(
        {.module = in_precision(modules[s], settings),
         .parameters =
             renamed(modules[s].module().named_parameters(), names_of_parameters, strategy, s),
         .buffers = renamed(modules[s].module().named_buffers(), names_of_buffers, strategy, s)});
  }
  require_all(parameters, stages, &NamedStage::parameters, strategy);
  require_all(buffers, stages, &NamedStage::buffers, strategy);
  return stages;
}

std::vector<std::string> names_of_cuts(const std::vector<NamedStage>& stages) {
  std::vector<std::string> names;
  for (std::size_t s = 0; s + 1 < stages.size(); ++s) names.push_back(end_of_stage(stages, s));
  return names;
}

bool share_trainable_parameters(const std::vector<NamedStage>& stages) {
  std::set<const torch::TensorImpl*> seen;
  for (const NamedStage& stage : stages) {
    for (const auto& [name, tensor] : stage.trainable()) {
      if (!seen.insert(tensor.unsafeGetTensorImpl()).second) return true;
    }
  }
  return false;
}

pipeline::CopiesByRanks copies_of_ranks(const std::vector<NamedStage>& stages,
                                        const std::vector<int>& worker_of) {
  std::map<std::string, std::set<int>> workers;
  NamedTensors parameters;  // each once
  for (std::size_t s = 0; s < stages.size(); ++s) {
    for (const auto& [name, tensor] : stages[s].trainable()) {
      std::set<int>& those_of_name = workers[name];
      if (those_of_name.empty()) parameters.emplace_back(name, tensor);
      those_of_name.insert(worker_of[s]);
    }
  }
  pipeline::CopiesByRanks copies;
  for (const auto& [name, tensor] : parameters) {
    const std::set<int>& those_of_name = workers.at(name);
    if (those_of_name.size() < 2) continue;
    copies[std::vector<int>(those_of_name.begin(), those_of_name.end())].emplace_back(name, tensor);
  }
  return copies;
}

void refuse_to_share_buffers(const std::vector<NamedStage>& stages,
                             const std::vector<int>& worker_of, const std::string& strategy) {
  std::unordered_map<const torch::TensorImpl*, std::size_t> first_stage_with;
  for (std::size_t s = 0; s < stages.size(); ++s) {
    for (const auto& [name, tensor] : stages[s].buffers) {
      const auto [place, is_new] = first_stage_with.emplace(tensor.unsafeGetTensorImpl(), s);
      const std::size_t first = place->second;
      if (worker_of[first] == worker_of[s]) continue;
      throw ConfigError(lockstep::str("strategy ", strategy, ": stages ", first, " and ", s,
                                      " are on different ranks and share the buffer '", name,
                                      "', of which each rank would update a copy of its own; give "
                                      "each stage a module of its own for it"));
    }
  }
}

}  // namespace lockstep::train
