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
  void attach(Task& task, const StepSettings& settings) override;
  std::unique_ptr<RunOptimizer> make_optimizer(const OptimizerOptions& options) override;
  torch::Tensor step(const Batch& batch, const StepPart& part, PhaseSeconds& phases) override;
  void settle_phases(PhaseSeconds& phases) override;
  std::string why_not_captured() override { return {}; }
  double synchronization_seconds() override;
  std::vector<Span> spans() override;
  void begin_evaluation() override { before_forward(); }
  void evaluate(const Batch& batch, Metrics& metrics) override;

 protected:
  /// Collective. Couples this rank's module to those of the others.
  virtual void wrap(torch::nn::Module&) {}
  /// The core that wrap() has made; null where the ranks are not coupled.
  virtual DdpCore* core() { return nullptr; }
  /// Collective. Called before each training forward and before an evaluation. Gives all ranks the
  /// buffers of rank 0.
  virtual void before_forward();
  /// Seconds of communication within backward so far that its computation did not hide.
  virtual double communication_seconds();

  torch::nn::Module& module() { return task_->module(); }

 private:
  const std::string name_;
  ProcessGroup group_;
  Task* task_ = nullptr;
  StepSettings settings_;
  double counted_exposed_ = 0;  // part of communication_seconds() already in phases
};

}  // namespace lockstep::train
