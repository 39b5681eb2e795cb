#include <lockstep/parallel/data_parallel/core.h>

#include <string>
#include <utility>

#include <ATen/Parallel.h>

#include <lockstep/core/error.h>
#include <lockstep/core/options.h>
#include <lockstep/core/process_owned.h>
#include <lockstep/parallel/base/thread_share.h>
#include <lockstep/parallel/base/thread_team.h>
#include <lockstep/parallel/data_parallel/devices.h>
#include <lockstep/parallel/data_parallel/module_parts.h>
#include <lockstep/parallel/data_parallel/replicas.h>

namespace lockstep::detail {
namespace {

std::vector<double> checked_weights(const std::vector<double>& weights, std::size_t devices) {
  if (weights.empty()) return std::vector<double>(devices, 1.0);
  if (weights.size() != devices) {
    throw ConfigError(str("DataParallel: weights must have a number for each of the ", devices,
                          " devices, got ", weights.size()));
  }
  const OptionCheck check("DataParallel");
  for (const double weight : weights) check.positive("weights", weight);
  return weights;
}

std::shared_ptr<ThreadTeam> make_team(const std::vector<torch::Device>& devices) {
  std::vector<std::string> names;
  for (const torch::Device device : devices) {
    names.push_back(lockstep::str("replica ", names.size(), " on ", device));
  }
  // Waiting without sleep pays on CPUs, where a pass of a small net takes less than a millisecond.
  const bool on_cpus = devices.front().is_cpu();
  const std::chrono::microseconds patience(on_cpus ? 200 : 0);
  auto team = make_process_owned<ThreadTeam>(std::move(names), patience);
  const std::vector<int> counts = divided_threads(at::get_num_threads(), devices.size());
  set_threads_of_members(*team, counts);
  if (on_cpus) keep_members_apart(*team, counts);
  return team;
}

}  // namespace

DataParallelCore::DataParallelCore(torch::nn::Module& module, std::vector<torch::Device> devices,
                                   const DataParallelOptions& options)
    : devices_(data_parallel::checked_devices(std::move(devices), options.share_gpus)),
      weights_(checked_weights(options.weights, devices_.size())) {
  if (devices_.size() == 1) {
    data_parallel::require_place(module, data_parallel::parts_of(module), devices_.front());
    return;
  }
  replicas_ = std::make_unique<data_parallel::Replicas>(module, devices_);
  team_ = make_team(devices_);
}

DataParallelCore::~DataParallelCore() = default;
DataParallelCore::DataParallelCore(DataParallelCore&&) noexcept = default;
DataParallelCore& DataParallelCore::operator=(DataParallelCore&&) noexcept = default;

torch::nn::Module& DataParallelCore::replica(std::size_t index) const {
  return replicas_->replica(index);
}

void DataParallelCore::on_threads(const std::function<void(std::size_t replica)>& task) {
  team_->run(task);
}

std::vector<torch::Tensor> DataParallelCore::on_first_device(
    std::vector<torch::Tensor> tensors) const {
  const torch::Device device = devices_.front();
  for (torch::Tensor& tensor : tensors) {
    if (!tensor.defined() || tensor.device() == device) continue;
    // A non-blocking copy to the CPU could be read before it has completed.
    tensor = tensor.to(tensor.options().device(device), /*non_blocking=*/!device.is_cpu());
  }
  return tensors;
}

data_parallel::Step DataParallelCore::begin(const std::vector<torch::Tensor>& batch) {
  team_->refuse_members();  // a member would change replicas that are in use
  replicas_->follow();
  return data_parallel::Step(*replicas_, team_, weights_, batch);
}

}  // namespace lockstep::detail
