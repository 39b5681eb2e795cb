#include <lockstep/train/strategies/ddp_strategy.h>

#include <algorithm>
#include <cstddef>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <lockstep/train/optimization/trained_alone.h>
#include <lockstep/train/strategies/replica_strategy.h>

namespace lockstep::train {
namespace {

class DdpStrategy : public ReplicaStrategy {
 public:
  DdpStrategy(const char* name, ProcessGroup group, const DdpOptions& options)
      : ReplicaStrategy(name, std::move(group)), options_(options) {}

  std::string batch_parts() const override {
    return options_.sync_batch_norm ? "normalised over the ranks" : ReplicaStrategy::batch_parts();
  }

  std::string why_not_captured() override {
    if (!options_.find_unused_parameters) return ReplicaStrategy::why_not_captured();
    return "searches for unused parameters on the host in each step, which a graph cannot do; "
           "train without StrategyOptions::find_unused_parameters";
  }

 protected:
  // Each optimizer has a core, which averages the gradients of its parameters alone. The first one
  // also has what belongs to the module as a whole.
  void wrap(torch::nn::Module& module, const StepSettings& settings) override {
    cores_.clear();  // a run that was before may have left its hooks
    const std::vector<Tensors>& optimizers = settings.parameters_of_optimizers;
    for (std::size_t i = 0; i < std::max<std::size_t>(optimizers.size(), 1); ++i) {
      const TrainedAlone scope(optimizers, i);
      DdpOptions options = options_;
      options.broadcast_buffers = options.broadcast_buffers && i == 0;
      options.sync_batch_norm = options.sync_batch_norm && i == 0;
      cores_.push_back(std::make_unique<DdpCore>(module, group(), options));
    }
  }
  const Cores& cores() const override { return cores_; }

 private:
  const DdpOptions options_;
  Cores cores_;
};

class ZeroStrategy final : public DdpStrategy {
 public:
  using DdpStrategy::DdpStrategy;
  bool takes_several_optimizers() const override { return false; }
  std::unique_ptr<RunOptimizer> make_optimizer(const OptimizerGroups& groups) override {
    return make_sharded_optimizer(*cores().front(), module(), trainable_parameters(module()),
                                  groups);
  }
  std::unique_ptr<RunOptimizer> make_own_optimizer(const NamedTensors& parameters,
                                                   const MakeOwnOptimizer& make) override {
    return Strategy::make_own_optimizer(parameters, make);
  }
  bool module_has_gradients() const override { return false; }  // each rank has only its shard
  std::string why_not_captured() override {
    return "takes its learning rate from the host at each step, but a graph would keep the first "
           "one; use strategy ddp";
  }
};

DdpOptions ddp_options_of(const StrategyOptions& options, ParameterMemory memory) {
  DdpOptions ddp{.sync_batch_norm = options.sync_batchnorm,
                 .find_unused_parameters = options.find_unused_parameters,
                 .static_graph = options.static_graph,
                 .parameter_memory = memory};
  if (options.bucket_cap_mb) {
    ddp.bucket_cap_mb = *options.bucket_cap_mb;
    ddp.first_bucket_cap_mb = std::min(ddp.first_bucket_cap_mb, *options.bucket_cap_mb);
  }
  return ddp;
}

}  // namespace

// Uses flat parameters, because an optimizer over a few large tensors is faster than one over many
// (docs/benchmarks/ddp.md).
std::unique_ptr<Strategy> make_ddp_strategy(ProcessGroup group, const StrategyOptions& options) {
  return std::make_unique<DdpStrategy>("ddp", std::move(group),
                                       ddp_options_of(options, ParameterMemory::kFlat));
}

std::unique_ptr<Strategy> make_zero_strategy(ProcessGroup group, const StrategyOptions& options) {
  const ParameterMemory memory =
      group.shares_memory() ? ParameterMemory::kShared : ParameterMemory::kFlat;
  return std::make_unique<ZeroStrategy>("zero1", std::move(group), ddp_options_of(options, memory));
}

}  // namespace lockstep::train
