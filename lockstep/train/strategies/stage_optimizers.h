// The optimizer of a model in stages, or in shares for several threads: one optimizer for each that
// this rank has, or one for all of them.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include <lockstep/comm/group/process_group.h>
#include <lockstep/train/optimization/run_optimizer.h>
#include <lockstep/train/strategies/end_all.h>

namespace lockstep {

struct StageOptimizer {
  std::unique_ptr<RunOptimizer> optimizer;
  NamedTensors parameters;  ///< under the whole model's names
};

/// What couples the optimizers of several ranks.
struct StageRanks {
  ProcessGroup pipeline;               ///< the ranks that have the model's stages between them
  ProcessGroup all;                    ///< the ranks of all replicas of the pipeline
  bool is_first_replica = true;        ///< whether rank 0 of the run is in `pipeline`
  bool shards = false;                 ///< whether the replicas have shares of a stage's gradients
  torch::Device device = torch::kCPU;  ///< what the groups can send from
  /// Names of this rank's parameters that another rank of `pipeline` counts in norms and saves
  /// (TiedCopies::counted_elsewhere()).
  std::set<std::string> counted_elsewhere{};
  /// Called when a call fails here for which other ranks may wait. Never null.
  EndAll end_all = [](const std::string&) {};
};

/// The parameter that a state belongs to: "exp_avg.layer1.0.conv1.weight" is a state of
/// "layer1.0.conv1.weight".
std::string parameter_of_state(const std::string& name);

/// Calls of(stage) for each stage, on whatever threads, and returns when all have ended.
using ForEachStage = std::function<void(const std::function<void(std::size_t stage)>& of)>;

/// Makes one optimizer of those of the stages, of which no two on a rank have the same parameter.
/// Its state is that of an optimizer of the whole model. Without `ranks` all stages are in this
/// process, perhaps on several devices. Each stage's optimizer is already coupled to those of its
/// replicas. Copies of a parameter on several ranks get the same state and are scaled alike. Steps
/// and zeroes of gradients go through `for_each`, if it is there, else one after another.
std::unique_ptr<RunOptimizer> make_stage_optimizers(std::vector<StageOptimizer> stages,
                                                    const OptimizerOptions& options,
                                                    std::optional<StageRanks> ranks,
                                                    ForEachStage for_each = {});

/// `parameters` in `count` shares of about as many bytes, in their order; fewer where there are
/// fewer parameters.
std::vector<NamedTensors> shares_of(const NamedTensors& parameters, std::size_t count);

}  // namespace lockstep
