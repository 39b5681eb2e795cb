// A task's module divided into stages, whose parameters and buffers keep the names of the whole
// module.
#pragma once

#include <string>
#include <vector>

#include <lockstep/optim/parameter_groups.h>
#include <lockstep/parallel/pipeline/stage_module.h>
#include <lockstep/parallel/pipeline/tied_copies.h>
#include <lockstep/train/strategies/strategy.h>
#include <lockstep/train/task/task.h>

namespace lockstep::train {

struct NamedStage {
  pipeline::StageModule module;
  NamedTensors parameters{};  ///< each once, under the whole module's name
  NamedTensors buffers{};

  /// The parameters that require a gradient.
  NamedTensors trainable() const;
};

/// Divides the task's module into `count` stages, which share its tensors. A stage's forward runs
/// in the run's precision. Throws ConfigError, naming `strategy`, unless the stages have exactly
/// the module's parameters and buffers.
std::vector<NamedStage> named_stages(const detail::OutputTaskBase& task, torch::nn::Module& module,
                                     int count, const StepSettings& settings,
                                     const std::string& strategy);

/// For each of `stages` except the last, the name of the block of the whole model that it ends
/// with, such as "layer2" or "layer3.1": the shortest prefix of its last parameter's name that
/// begins no name in a later stage. "(no parameters)" for a stage without its own parameters.
std::vector<std::string> names_of_cuts(const std::vector<NamedStage>& stages);

/// Whether two of `stages` share a parameter that requires a gradient.
bool share_trainable_parameters(const std::vector<NamedStage>& stages);

/// The parameters that require a gradient and that stages of several ranks have. worker_of[s] is
/// the rank of stage s.
pipeline::CopiesByRanks copies_of_ranks(const std::vector<NamedStage>& stages,
                                        const std::vector<int>& worker_of);

/// Throws ConfigError, naming `strategy`, if stages of different ranks share a buffer: each of
/// these ranks would update its own copy, for instance the running statistics of a normalisation.
/// worker_of[s] is the rank of stage s.
void refuse_to_share_buffers(const std::vector<NamedStage>& stages,
                             const std::vector<int>& worker_of, const std::string& strategy);

}  // namespace lockstep::train
