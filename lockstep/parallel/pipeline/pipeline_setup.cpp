#include <lockstep/parallel/pipeline/pipeline_setup.h>

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/autocast_mode.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/instancenorm.h>

#include <algorithm>
#include <map>
#include <mutex>
#include <numeric>

#include <lockstep/core/error.h>
#include <lockstep/parallel/base/existing_device.h>
#include <lockstep/parallel/base/require_on_device.h>

namespace lockstep::pipeline {
namespace {

// The running mean of a module that is one of `Norms` and tracks statistics; otherwise undefined.
template <class... Norms>
torch::Tensor running_mean_of(const torch::nn::Module& module) {
  torch::Tensor running_mean;
  const auto look_at = [&](const auto* norm) {
    if (norm != nullptr) running_mean = norm->running_mean;
  };
  (look_at(module.as<Norms>()), ...);
  return running_mean;
}

torch::Tensor tracked_mean_of(const torch::nn::Module& module) {
  namespace nn = torch::nn;
  return running_mean_of<nn::BatchNorm1dImpl, nn::BatchNorm2dImpl, nn::BatchNorm3dImpl,
                         nn::InstanceNorm1dImpl, nn::InstanceNorm2dImpl, nn::InstanceNorm3dImpl>(
      module);
}

}  // namespace

std::vector<torch::Device> with_indices(std::vector<torch::Device> devices,
                                        const std::string& prefix) {
  for (torch::Device& device : devices) device = parallel::existing_device(device, prefix);
  return devices;
}

PipelineOptions with_whole_stages(PipelineOptions options, const std::vector<bool>& is_whole) {
  std::vector<int>& named = options.whole_backward;
  for (int stage = 0; stage < static_cast<int>(is_whole.size()); ++stage) {
    if (!is_whole[static_cast<std::size_t>(stage)]) continue;
    if (std::find(named.begin(), named.end(), stage) == named.end()) named.push_back(stage);
  }
  return options;
}

void move_to(const StageModule& stage, torch::Device device) {
  const auto elsewhere = [&](const torch::Tensor& tensor) { return tensor.device() != device; };
  const Tensors parameters = stage.module().parameters();
  const Tensors buffers = stage.module().buffers();
  if (std::any_of(parameters.begin(), parameters.end(), elsewhere) ||
      std::any_of(buffers.begin(), buffers.end(), elsewhere)) {
    stage.module().to(device);
  }
}

std::unique_ptr<TiedParameters> tied_parameters_of(const std::vector<StageModule>& stages,
                                                   const Table& table,
                                                   const std::vector<torch::Device>& devices) {
  std::vector<Tensors> parameters;
  for (std::size_t s = 0; s < stages.size(); ++s) {
    const torch::Device device = devices[static_cast<std::size_t>(table.worker_of[s])];
    parallel::require_on_device(stages[s].module(), s, device, "Pipeline: ");
    parameters.push_back(stages[s].module().parameters());
  }
  return std::make_unique<TiedParameters>(parameters);
}

void refuse_to_reduce_ties(const TiedParameters& tied, const PipelineOptions& options) {
  if (!options.reduce || !tied.any_requires_grad()) return;
  throw ConfigError(
      "PipelineOptions: stages share a parameter, whose gradient is complete only when the last of "
      "them has ended; do not set options.reduce, and reduce the gradients after step()");
}

void refuse_to_share_statistics(const std::vector<StageModule>& stages, const Table& table) {
  std::map<const c10::TensorImpl*, std::size_t> first_stage_with;
  for (std::size_t s = 0; s < stages.size(); ++s) {
    for (const auto& module : stages[s].module().modules()) {
      const torch::Tensor mean = tracked_mean_of(*module);
      if (!mean.defined()) continue;
      const auto [place, is_new] = first_stage_with.emplace(mean.unsafeGetTensorImpl(), s);
      const std::size_t first = place->second;
      if (table.worker_of[first] == table.worker_of[s]) continue;
      throw ConfigError(lockstep::str("Pipeline: stages ", first, " and ", s, " share a ",
                                      module->name(),
                                      ", whose running statistics their workers would write to at "
                                      "the same time; give each stage one of its own"));
    }
  }
}

CastsPerMicroBatch::CastsPerMicroBatch() : former_(at::autocast::is_autocast_cache_enabled()) {
  at::autocast::set_autocast_cache_enabled(false);
}

CastsPerMicroBatch::~CastsPerMicroBatch() { at::autocast::set_autocast_cache_enabled(former_); }

std::vector<double> loss_weights(const std::vector<std::int64_t>& sizes, LossReduction reduction) {
  std::vector<double> weights(sizes.size(), 1.0);
  if (reduction == LossReduction::kSum) return weights;
  const auto samples = std::accumulate(sizes.begin(), sizes.end(), std::int64_t{0});
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    weights[i] = static_cast<double>(sizes[i]) / static_cast<double>(samples);
  }
  return weights;
}

std::uint64_t draw_step_seed() {
  at::Generator generator = at::detail::getDefaultCPUGenerator();
  const std::scoped_lock lock(generator.mutex());
  return generator.get<at::CPUGeneratorImpl>()->random64();
}

}  // namespace lockstep::pipeline
