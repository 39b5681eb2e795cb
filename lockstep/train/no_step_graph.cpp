// Replaces step_graph_cuda.cpp if LibTorch is a CPU build.
#include <lockstep/core/error.h>
#include <lockstep/train/step_graph.h>

namespace lockstep::detail {

std::unique_ptr<StepGraph> make_cuda_graph(torch::Device) {
  throw ConfigError(
      "Trainer: cuda_graph needs the CUDA build of LibTorch, and this one is for CPUs; remove "
      "TrainerOptions::cuda_graph");
}

}  // namespace lockstep::detail
