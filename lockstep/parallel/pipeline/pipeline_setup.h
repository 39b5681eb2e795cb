// What threads and ranks share when they construct a pipeline and begin a step.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <torch/types.h>

#include <lockstep/parallel/pipeline/pipeline_options.h>
#include <lockstep/parallel/pipeline/schedule/table.h>
#include <lockstep/parallel/pipeline/stage_module.h>
#include <lockstep/parallel/pipeline/tied_parameters.h>

namespace lockstep::pipeline {

/// Returns the devices with explicit indices, as tensors report them: "cuda" becomes the current
/// GPU. Throws ConfigError, whose text begins with `prefix`, for a device that this process does
/// not have.
std::vector<torch::Device> with_indices(std::vector<torch::Device> devices,
                                        const std::string& prefix = "Pipeline: ");

/// Returns `options` with each stage for which `is_whole` is true added to whole_backward.
PipelineOptions with_whole_stages(PipelineOptions options, const std::vector<bool>& is_whole);

/// Moves the stage's parameters and buffers to `device` if any of them is elsewhere.
void move_to(const StageModule& stage, torch::Device device);

/// The parameters that several of `stages` share. `devices` has one device for each worker. Throws
/// ConfigError if stages on different devices share a parameter or a buffer (see
/// require_on_device()).
std::unique_ptr<TiedParameters> tied_parameters_of(const std::vector<StageModule>& stages,
                                                   const Table& table,
                                                   const std::vector<torch::Device>& devices);

/// Throws ConfigError if `options` reduce the gradients of a stage as soon as they are complete
/// while stages share a parameter that now requires a gradient: that gradient is complete only
/// after the last of these stages.
void refuse_to_reduce_ties(const TiedParameters& tied, const PipelineOptions& options);

/// Throws ConfigError if stages of different workers share a LibTorch batch or instance
/// normalisation that tracks statistics: two threads would write to them at once. Stages may share
/// buffers that their forwards only read.
void refuse_to_share_statistics(const std::vector<StageModule>& stages, const Table& table);

/// While it lives, autocast on this thread casts a weight anew at each use. Otherwise micro-batches
/// would share the cast, which would break two things: the cast's node would be part of several
/// graphs, although a backward takes its graph apart; and the recomputation of a forward that ran
/// without a graph would reuse a cast that has no graph.
class CastsPerMicroBatch {
 public:
  CastsPerMicroBatch();
  ~CastsPerMicroBatch();
  CastsPerMicroBatch(const CastsPerMicroBatch&) = delete;
  CastsPerMicroBatch& operator=(const CastsPerMicroBatch&) = delete;

 private:
  bool former_;
};

/// The weight of each micro-batch's loss in the loss of the batch; `sizes` are in samples.
std::vector<double> loss_weights(const std::vector<std::int64_t>& sizes, LossReduction reduction);

/// Draws the seed of a step from the CPU's default generator.
std::uint64_t draw_step_seed();

}  // namespace lockstep::pipeline
