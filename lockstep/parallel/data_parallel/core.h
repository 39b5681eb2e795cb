// The part of DataParallel that does not depend on the module's type.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include <torch/nn/module.h>

#include <lockstep/parallel/base/thread_team.h>
#include <lockstep/parallel/data_parallel/replicas.h>
#include <lockstep/parallel/data_parallel/step.h>

namespace lockstep {

struct DataParallelOptions {
  /// How much of a batch each device gets, in proportion; a positive number for each device. {2, 1}
  /// gives the first one two thirds. Empty: equal parts.
  std::vector<double> weights = {};
};

/// Refers to the module, which must outlive all calls of begin(). Not thread-safe. The threads of
/// the replicas live as long as the core or anything that a forward returned needs them.
class DataParallelCore {
 public:
  /// ConfigError for devices that cannot hold replicas, for wrong weights, and for a module that
  /// cannot be cloned or is elsewhere.
  DataParallelCore(torch::nn::Module& module, std::vector<torch::Device> devices,
                   const DataParallelOptions& options);

  /// With one device there are no replicas and no threads: begin() and replica() must not be
  /// called.
  bool has_replicas() const { return replicas_.has_value(); }
  const std::vector<torch::Device>& devices() const { return devices_; }

  /// `tensors`, of which autograd copies to the first device those that are elsewhere.
  std::vector<torch::Tensor> on_first_device(std::vector<torch::Tensor> tensors) const;
  /// Makes the replicas equal to the module and shares out `batch`, the tensors of all arguments.
  data_parallel::Step begin(const std::vector<torch::Tensor>& batch);
  torch::nn::Module& replica(std::size_t index) const { return replicas_->replica(index); }
  /// Calls task(replica) on the thread of each replica at once; see ThreadTeam::run(). For what a
  /// step does beside forward and backward, such as the update of a share of the parameters.
  void on_threads(const std::function<void(std::size_t replica)>& task) { team_->run(task); }

 private:
  std::vector<torch::Device> devices_;
  std::vector<double> weights_;  // one for each device
  std::optional<data_parallel::Replicas> replicas_;
  std::shared_ptr<ThreadTeam> team_;
};

}  // namespace lockstep
