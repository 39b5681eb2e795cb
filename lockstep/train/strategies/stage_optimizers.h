// The optimizer of a model in stages, or in shards for several threads. It combines one optimizer
// for each stage of this rank.
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

namespace lockstep::train {

struct StageOptimizer {
  std::unique_ptr<RunOptimizer> optimizer;
  NamedTensors parameters;  ///< by the whole model's names
};

/// What couples the optimizers of several ranks.
struct StageRanks {
  ProcessGroup pipeline;         ///< the ranks that together hold the model's stages
  ProcessGroup all;              ///< the ranks of all replicas of the pipeline
  bool is_first_replica = true;  ///< whether rank 0 of the run is in `pipeline`
  bool shards = false;           ///< whether each replica has only a shard of a stage's gradients
  torch::Device device = torch::kCPU;  ///< device that the groups can send from
  /// Names of this rank's parameters that another rank of `pipeline` includes in norms and saves
  /// (pipeline::TiedCopies::counted_elsewhere()).
  std::set<std::string> counted_elsewhere{};
  /// Called if a call fails here that other ranks may wait for. Never null.
  EndAll end_all = [](const std::string&) {};
};

/// The parameter that a state belongs to: "exp_avg.layer1.0.conv1.weight" is a state of
/// "layer1.0.conv1.weight".
std::string parameter_of_state(const std::string& name);

/// Calls of(stage) for each stage, on any threads, and returns when all calls have ended.
using ForEachStage = std::function<void(const std::function<void(std::size_t stage)>& of)>;

/// Combines the optimizers of the stages into one; no two on a rank may have the same parameter.
/// Its state is that of an optimizer of the whole model. Without `ranks`, all stages are in this
/// process, possibly on several devices. Each stage's optimizer must already be coupled to those of
/// its replicas. Copies of a parameter on several ranks get equal state and equal scaling. Steps
/// and the zeroing of gradients go through `for_each` if given, otherwise stage by stage.
std::unique_ptr<RunOptimizer> make_stage_optimizers(std::vector<StageOptimizer> stages,
                                                    const OptimizerGroups& groups,
                                                    std::optional<StageRanks> ranks,
                                                    ForEachStage for_each = {});

/// Divides `parameters`, in order, into `count` shards of about equal bytes; fewer if there are
/// fewer parameters.
std::vector<NamedTensors> shares_of(const NamedTensors& parameters, std::size_t count);

}  // namespace lockstep::train
