// The part of DataParallel that does not depend on the module's type.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <vector>

#include <torch/nn/module.h>

#include <lockstep/core/export.h>
#include <lockstep/parallel/data_parallel/step.h>

namespace lockstep {

struct LOCKSTEP_API DataParallelOptions {
  /// The share of the batch for each device, as one positive weight per device: {2, 1} gives the
  /// first device two thirds. Empty: equal parts.
  std::vector<double> weights = {};
  /// Allows a GPU to occur several times among the devices. Its replicas take turns, so this is
  /// slower than one replica; it lets a program for several GPUs be tested on fewer.
  bool share_gpus = false;
};

}  // namespace lockstep

namespace lockstep::detail {

class ThreadTeam;

namespace data_parallel {
class Replicas;
}

/// Refers to the module, which must outlive all calls of begin(). Not thread-safe. The threads of
/// the replicas live as long as the core, or any result of a forward, needs them.
class LOCKSTEP_API DataParallelCore {
 public:
  /// Throws ConfigError for devices that cannot hold replicas, for invalid weights, and for a
  /// module that cannot be cloned or is on another device.
  DataParallelCore(torch::nn::Module& module, std::vector<torch::Device> devices,
                   const DataParallelOptions& options);
  ~DataParallelCore();
  DataParallelCore(DataParallelCore&&) noexcept;
  DataParallelCore& operator=(DataParallelCore&&) noexcept;

  /// False with one device: there are no replicas or threads, and begin() and replica() must not be
  /// called.
  bool has_replicas() const { return replicas_ != nullptr; }
  const std::vector<torch::Device>& devices() const { return devices_; }

  /// Returns `tensors`; autograd copies those on other devices to the first device.
  std::vector<torch::Tensor> on_first_device(std::vector<torch::Tensor> tensors) const;
  /// Synchronizes the replicas with the module and splits `batch`, the tensors of all arguments.
  data_parallel::Step begin(const std::vector<torch::Tensor>& batch);
  torch::nn::Module& replica(std::size_t index) const;
  /// Calls task(replica) on the threads of all replicas at once; see ThreadTeam::run(). Use it for
  /// work other than forward and backward, such as updating a share of the parameters.
  void on_threads(const std::function<void(std::size_t replica)>& task);

 private:
  std::vector<torch::Device> devices_;
  std::vector<double> weights_;  // one for each device
  std::unique_ptr<data_parallel::Replicas> replicas_;
  std::shared_ptr<ThreadTeam> team_;
};

}  // namespace lockstep::detail
