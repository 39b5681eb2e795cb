// What threads and ranks have in common when a pipeline is made and when a step begins.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include <torch/types.h>

#include <lockstep/parallel/pipeline/pipeline_options.h>
#include <lockstep/parallel/pipeline/stage_module.h>
#include <lockstep/parallel/pipeline/table.h>
#include <lockstep/parallel/pipeline/tied_parameters.h>

namespace lockstep::pipeline {

/// The devices as tensors name theirs: "cuda" becomes the GPU that is current here.
std::vector<torch::Device> with_indices(std::vector<torch::Device> devices);

/// Moves parameters and buffers, if any is elsewhere.
void move_to(const StageModule& stage, torch::Device device);

/// The parameters that several of `stages` share. `devices` has one device for each worker.
/// ConfigError where two stages on different devices share one: moving the second stage has moved
/// it away from the first.
std::unique_ptr<TiedParameters> tied_parameters_of(const std::vector<StageModule>& stages,
                                                   const Table& table,
                                                   const std::vector<torch::Device>& devices);

/// What the losses of micro-batches of these sizes count in that of the batch.
std::vector<double> loss_weights(const std::vector<std::int64_t>& sizes, LossReduction reduction);

/// One draw of the CPU's default generator.
std::uint64_t draw_step_seed();

}  // namespace lockstep::pipeline
