// How the ranks work together on one model. The training loop asks, and does not know which it is.
#pragma once

#include <memory>
#include <string>

#include <torch/nn/module.h>

#include <lockstep/comm/process_group.h>
#include <lockstep/train/run_optimizer.h>

namespace lockstep {

/// Not thread-safe. The destructor does not communicate.
class Strategy {
 public:
  virtual ~Strategy() = default;
  virtual const std::string& name() const = 0;
  virtual ProcessGroup& group() = 0;
  /// Collective. Once, when the module is on its device with the state of rank 0 loaded: afterwards
  /// all ranks hold rank 0's parameters and buffers. The module must outlive the strategy's use.
  virtual void attach(torch::nn::Module& module) = 0;
  /// After attach(), of the same module. The strategy must outlive it.
  virtual std::unique_ptr<RunOptimizer> make_optimizer(const torch::nn::Module& module,
                                                       const OptimizerOptions& options) = 0;
  /// Collective. Before each forward in training, and before an evaluation: buffers become rank
  /// 0's.
  virtual void before_forward() = 0;
  /// Seconds of communication within backward that were not hidden behind it, since the beginning.
  virtual double communication_seconds() const = 0;
};

/// "single" trains in one process (ConfigError in a larger group), "ddp" replicates the model and
/// averages gradients, "zero1" shards the optimizer beside that, with parameters that all ranks
/// share where they can (ZeroRedundancyOptimizer). ConfigError for another name.
std::unique_ptr<Strategy> make_strategy(const std::string& name, ProcessGroup group);

}  // namespace lockstep
