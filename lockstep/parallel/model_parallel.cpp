#include <lockstep/parallel/model_parallel.h>

#include <utility>

#include <c10/core/DeviceGuard.h>

#include <lockstep/core/error.h>
#include <lockstep/parallel/base/require_on_device.h>
#include <lockstep/parallel/pipeline/pipeline_setup.h>

namespace lockstep {

ModelParallel::ModelParallel(std::vector<pipeline::StageModule> stages,
                             std::vector<torch::Device> devices)
    : stages_(std::move(stages)), devices_(std::move(devices)) {
  if (stages_.empty() || stages_.size() != devices_.size()) {
    throw ConfigError(
        lockstep::str("ModelParallel: needs at least one stage and a device for each, got ",
                      stages_.size(), " and ", devices_.size()));
  }
  devices_ = pipeline::with_indices(std::move(devices_), "ModelParallel: ");
  for (std::size_t s = 0; s < stages_.size(); ++s) {
    pipeline::move_to(stages_[s], devices_[s]);
    register_module(lockstep::str("stage", s), stages_[s].module().shared_from_this());
  }
  for (std::size_t s = 0; s < stages_.size(); ++s) {
    parallel::require_on_device(stages_[s].module(), s, devices_[s], "ModelParallel: ");
  }
}

Tensors ModelParallel::forward_all(Tensors x) {
  Tensors tensors = std::move(x);
  for (std::size_t s = 0; s < stages_.size(); ++s) {
    const c10::DeviceGuard guard(devices_[s]);
    for (torch::Tensor& tensor : tensors) {
      if (tensor.defined() && tensor.device() != devices_[s]) tensor = tensor.to(devices_[s]);
    }
    tensors = stages_[s].forward(tensors);
  }
  return tensors;
}

torch::Tensor ModelParallel::forward(const torch::Tensor& x) {
  const Tensors outputs = forward_all({x});
  if (outputs.size() == 1) return outputs.front();
  throw ConfigError(lockstep::str("ModelParallel: the last stage returns ", outputs.size(),
                                  " tensors; call forward_all()"));
}

}  // namespace lockstep
