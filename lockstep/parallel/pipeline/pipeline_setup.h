// What threads and ranks have in common when a pipeline is made and when a step begins.
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

/// The devices as tensors name theirs: "cuda" becomes the GPU that is current here. ConfigError,
/// whose text begins with `prefix`, for one that this process does not have.
std::vector<torch::Device> with_indices(std::vector<torch::Device> devices,
                                        const std::string& prefix = "Pipeline: ");

/// `options`, whose whole_backward also names each stage for which `is_whole` is true.
PipelineOptions with_whole_stages(PipelineOptions options, const std::vector<bool>& is_whole);

/// Moves the stage's parameters and buffers to `device`, if any is elsewhere.
void move_to(const StageModule& stage, torch::Device device);

/// The parameters that several of `stages` share. `devices` has one device for each worker.
/// ConfigError where stages on different devices share a parameter or a buffer (see
/// require_on_device()).
std::unique_ptr<TiedParameters> tied_parameters_of(const std::vector<StageModule>& stages,
                                                   const Table& table,
                                                   const std::vector<torch::Device>& devices);

/// ConfigError where `options` reduce the gradients of a stage as soon as they are complete and
/// stages share a parameter that now requires one: its gradient is complete when the last of these
/// stages has ended, not with each of them.
void refuse_to_reduce_ties(const TiedParameters& tied, const PipelineOptions& options);

/// ConfigError where stages of different workers share a batch or instance normalisation of
/// LibTorch's that tracks statistics: two threads would write to these at once. Stages may share
/// buffers that their forwards only read.
void refuse_to_share_statistics(const std::vector<StageModule>& stages, const Table& table);

/// While it lives, autocast on this thread casts a weight anew at each use. Otherwise micro-batches
/// would share the cast. Its node would be a part of several graphs, and a backward takes its own
/// graph apart; and a forward without a graph would leave its recomputation a cast without a graph.
class CastsPerMicroBatch {
 public:
  CastsPerMicroBatch();
  ~CastsPerMicroBatch();
  CastsPerMicroBatch(const CastsPerMicroBatch&) = delete;
  CastsPerMicroBatch& operator=(const CastsPerMicroBatch&) = delete;

 private:
  bool former_;
};

/// The factors of the micro-batches' losses in the loss of the batch; `sizes` are their samples.
std::vector<double> loss_weights(const std::vector<std::int64_t>& sizes, LossReduction reduction);

/// Draws the seed of a step from the CPU's default generator.
std::uint64_t draw_step_seed();

}  // namespace lockstep::pipeline
