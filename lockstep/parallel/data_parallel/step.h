// One forward through all replicas.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <vector>

#include <torch/types.h>

#include <lockstep/core/export.h>
#include <lockstep/parallel/data_parallel/flattened.h>
#include <lockstep/parallel/data_parallel/scatter.h>

namespace lockstep::detail {
class ThreadTeam;
}

namespace lockstep::detail::data_parallel {

class GatheredTensor;
class Replicas;

/// Made for one batch; call run(), then gather() or mean(), which throw ConfigError if a backward
/// would lose a gradient. Refers to the replicas and must not outlive the call of forward() or
/// loss() that made it.
class LOCKSTEP_API Step {
 public:
  /// `batch` holds the tensors of all arguments. Throws ConfigError if it cannot be split.
  Step(const Replicas& replicas, std::shared_ptr<ThreadTeam> team,
       const std::vector<double>& weights, const std::vector<torch::Tensor>& batch);

  /// The replicas that have a part of the batch, in ascending order.
  const std::vector<std::size_t>& active() const { return scatter_.active(); }
  /// The tensors of the replica's part, in the order of the batch.
  const std::vector<torch::Tensor>& part(std::size_t replica) const {
    return scatter_.part(replica);
  }

  /// Calls task(replica) on the threads of the active replicas, with the caller's thread-local
  /// state, and returns when all have finished. Throws like ThreadTeam::run().
  void run(const std::function<void(std::size_t)>& task) const;

  /// The outputs of the active replicas, each tensor joined separately on the first device, with a
  /// graph if the caller records one. Throws ConfigError if the replicas' outputs do not match.
  std::vector<torch::Tensor> gather(const std::vector<Flattened>& outputs) const;

  /// The mean of the active replicas' losses, weighted by their numbers of samples.
  torch::Tensor mean(const std::vector<torch::Tensor>& losses) const;

 private:
  void attach(std::vector<GatheredTensor>& outputs) const;

  const Replicas& replicas_;
  std::shared_ptr<ThreadTeam> team_;
  Scatter scatter_;
};

}  // namespace lockstep::detail::data_parallel
