// A task's module in stages, whose parameters and buffers keep the names that the whole module
// gives them.
#pragma once

#include <string>
#include <vector>

#include <lockstep/optim/parameter_groups.h>
#include <lockstep/parallel/pipeline/stage_module.h>
#include <lockstep/train/strategies/strategy.h>
#include <lockstep/train/task/task.h>

namespace lockstep {

struct NamedStage {
  pipeline::StageModule module;
  NamedTensors parameters{};  ///< each once, under the whole module's name
  NamedTensors buffers{};

  /// The parameters that require a gradient.
  NamedTensors trainable() const;
};

/// The task's module in `count` stages, which share its tensors. A stage's forward runs in the
/// precision of the run. ConfigError, in the name of `strategy`, unless the stages have all of the
/// module's parameters and buffers, and no others.
std::vector<NamedStage> named_stages(const OutputTask& task, torch::nn::Module& module, int count,
                                     const StepSettings& settings, const std::string& strategy);

/// For each of `stages` but the last one, the name of the block of the whole model that it ends
/// with, such as "layer2" or "layer3.1": the shortest part of the name of its last parameter that
/// begins no name in a later stage. A stage without parameters of its own is "(no parameters)".
std::vector<std::string> names_of_cuts(const std::vector<NamedStage>& stages);

/// Whether two of `stages` share a parameter that requires a gradient.
bool share_trainable_parameters(const std::vector<NamedStage>& stages);

/// ConfigError, in the name of `strategy`, where stages of different ranks share a buffer. Each of
/// these ranks would update a copy of its own, such as the running statistics of a normalisation.
/// worker_of[s] is the rank of stage s.
void refuse_to_share_buffers(const std::vector<NamedStage>& stages,
                             const std::vector<int>& worker_of, const std::string& strategy);

}  // namespace lockstep
