// One replica of the module on each rank, which runs the forward and backward of the rank's own
// batch.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <lockstep/parallel/distributed_data_parallel.h>
#include <lockstep/train/strategies/strategy.h>

namespace lockstep::train {

/// Without overrides this is strategy "single", one process that trains alone. Strategies that
/// couple the ranks override the protected functions.
class ReplicaStrategy : public Strategy {
 public:
  ReplicaStrategy(std::string name, ProcessGroup group)
      : name_(std::move(name)), group_(std::move(group)) {}

  const std::string& name() const override { return name_; }
  ProcessGroup& group() override { return group_; }
  void attach(detail::TaskBase& task, const StepSettings& settings) override;
  bool takes_several_optimizers() const override { return true; }
  std::unique_ptr<RunOptimizer> make_optimizer(const OptimizerGroups& groups) override;
  std::unique_ptr<RunOptimizer> make_own_optimizer(const NamedTensors& parameters,
                                                   const MakeOwnOptimizer& make) override;
  torch::Tensor step(const LoadedBatch& batch, const StepPart& part, PhaseSeconds& phases) override;
  void settle_phases(PhaseSeconds& phases) override;
  std::string why_not_captured() override { return {}; }
  double synchronization_seconds() override;
  std::vector<Span> spans() override;
  void begin_evaluation() override { share_buffers(); }
  void evaluate(const LoadedBatch& batch, Metrics& metrics) override;

 protected:
  /// Collective. Couples this rank's module to those of the others.
  virtual void wrap(torch::nn::Module&, const StepSettings&) {}
  using Cores = std::vector<std::unique_ptr<DdpCore>>;
  /// The cores that wrap() has made, one for each optimizer; empty where the ranks are not coupled.
  virtual const Cores& cores() const;

  torch::nn::Module& module() { return task_->module(); }
  /// Collective. Gives all ranks the buffers that the forward of `part` reads.
  virtual void before_forward(const StepPart& part);

 private:
  void share_buffers();
  double communication_seconds() const;

  const std::string name_;
  ProcessGroup group_;
  detail::TaskBase* task_ = nullptr;
  StepSettings settings_;
  double counted_exposed_ = 0;  // part of communication_seconds() already in phases
};

}  // namespace lockstep::train
