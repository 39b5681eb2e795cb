#include <lockstep/train/step_graph.h>

#include <lockstep/core/error.h>

namespace lockstep::detail {

std::unique_ptr<StepGraph> make_step_graph(torch::Device device, const ProcessGroup& group) {
  if (!device.is_cuda()) {
    throw ConfigError(lockstep::str("Trainer: cuda_graph needs a GPU, and this run is on ", device,
                                    "; remove TrainerOptions::cuda_graph, or set "
                                    "TrainerOptions::device to cuda"));
  }
  const std::string reason = group.why_not_capturable();
  if (!reason.empty()) throw ConfigError("Trainer: cuda_graph " + reason);
  return make_cuda_graph(device);
}

}  // namespace lockstep::detail
