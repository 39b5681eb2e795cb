#include <lockstep/train/strategies/replica_strategy.h>

#include <optional>
#include <utility>

#include <lockstep/train/measuring/phase_scope.h>
#include <lockstep/train/strategies/weighted_loss.h>

namespace lockstep::train {

void ReplicaStrategy::attach(Task& task, const StepSettings& settings) {
  task_ = &task;
  settings_ = settings;
  counted_exposed_ = 0;
  wrap(task.module());
}

std::unique_ptr<RunOptimizer> ReplicaStrategy::make_optimizer(const OptimizerOptions& options) {
  return make_replicated_optimizer(module(), options, group_);
}

void ReplicaStrategy::before_forward() {
  if (DdpCore* const wrapped = core()) wrapped->before_forward();
}

double ReplicaStrategy::synchronization_seconds() {
  const DdpCore* const wrapped = core();
  return wrapped ? wrapped->synchronization_seconds() : 0;
}

double ReplicaStrategy::communication_seconds() {
  const DdpCore* const wrapped = core();
  return wrapped ? wrapped->communication_seconds() : 0;
}

std::vector<Span> ReplicaStrategy::spans() {
  const DdpCore* const wrapped = core();
  return wrapped ? wrapped->spans(name_) : std::vector<Span>();
}

torch::Tensor ReplicaStrategy::step(const Batch& batch, const StepPart& part,
                                    PhaseSeconds& phases) {
  std::optional<DdpCore::NoSync> no_sync;
  if (!part.is_last && core() != nullptr) no_sync.emplace(*core());
  {
    const PhaseScope scope(phases.communication, "broadcast buffers");
    before_forward();
  }
  torch::Tensor loss;
  {
    const PhaseScope scope(phases.forward, "forward");
    const AutocastScope autocast(settings_.precision, settings_.device.type());
    loss = task_->training_step(batch);
  }
  {
    const PhaseScope scope(phases.backward, "backward");
    weighted_loss(loss, part, settings_.scaler).backward();
    loss = loss.detach();  // frees the graph, which is part of the backward pass
  }
  if (settings_.device.is_cpu()) settle_phases(phases);
  return loss;
}

// Exposed communication is contained in the time of backward.
void ReplicaStrategy::settle_phases(PhaseSeconds& phases) {
  if (DdpCore* const wrapped = core()) wrapped->settle_times();
  const double all = communication_seconds();
  const double exposed = all - std::exchange(counted_exposed_, all);
  phases.backward -= exposed;
  phases.communication += exposed;
}

void ReplicaStrategy::evaluate(const Batch& batch, Metrics& metrics) {
  task_->evaluation_step(batch, metrics);
}

}  // namespace lockstep::train
