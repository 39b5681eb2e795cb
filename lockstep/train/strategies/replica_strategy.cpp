#include <lockstep/train/strategies/replica_strategy.h>

#include <cstddef>
#include <optional>
#include <utility>

#include <lockstep/core/strings.h>
#include <lockstep/train/measuring/phase_scope.h>
#include <lockstep/train/strategies/own_run_optimizer.h>
#include <lockstep/train/strategies/weighted_loss.h>

namespace lockstep::train {

void ReplicaStrategy::attach(detail::TaskBase& task, const StepSettings& settings) {
  task_ = &task;
  settings_ = settings;
  counted_exposed_ = 0;
  wrap(task.module(), settings);
}

const ReplicaStrategy::Cores& ReplicaStrategy::cores() const {
  static const Cores none;
  return none;
}

std::unique_ptr<RunOptimizer> ReplicaStrategy::make_optimizer(const OptimizerGroups& groups) {
  return make_replicated_optimizer(trainable_parameters(module()), groups, group_);
}

std::unique_ptr<RunOptimizer> ReplicaStrategy::make_own_optimizer(const NamedTensors& parameters,
                                                                  const MakeOwnOptimizer& make) {
  return run_own_optimizer(parameters, make, group_, settings_.device);
}

// The first core has the buffers, of the whole module.
void ReplicaStrategy::before_forward(const StepPart& part) {
  if (cores().empty()) return;
  if (part.optimizer > 0 && part.is_last) cores().front()->broadcast_buffers();
  cores().at(part.optimizer)->before_forward();
}

void ReplicaStrategy::share_buffers() {
  if (cores().size() == 1) cores().front()->before_forward();
  if (cores().size() > 1) cores().front()->broadcast_buffers();
}

double ReplicaStrategy::synchronization_seconds() {
  double seconds = 0;
  for (const auto& core : cores()) seconds += core->synchronization_seconds();
  return seconds;
}

double ReplicaStrategy::communication_seconds() const {
  double seconds = 0;
  for (const auto& core : cores()) seconds += core->communication_seconds();
  return seconds;
}

std::vector<Span> ReplicaStrategy::spans() {
  std::vector<Span> all;
  for (std::size_t i = 0; i < cores().size(); ++i) {
    const std::string name = cores().size() == 1 ? name_ : lockstep::str(name_, " optimizer ", i);
    for (Span& span : cores()[i]->spans(name)) all.push_back(std::move(span));
  }
  return all;
}

torch::Tensor ReplicaStrategy::step(const LoadedBatch& batch, const StepPart& part,
                                    PhaseSeconds& phases) {
  std::optional<DdpCore::NoSync> no_sync;
  if (!part.is_last && !cores().empty()) no_sync.emplace(*cores().at(part.optimizer));
  {
    const PhaseScope scope(phases.communication, "broadcast buffers");
    before_forward(part);
  }
  torch::Tensor loss;
  {
    const PhaseScope scope(phases.forward, "forward");
    const AutocastScope autocast(settings_.precision, settings_.device.type());
    loss = task_->loaded_training_step(batch);
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
  for (const auto& core : cores()) core->settle_times();
  const double all = communication_seconds();
  const double exposed = all - std::exchange(counted_exposed_, all);
  phases.backward -= exposed;
  phases.communication += exposed;
}

void ReplicaStrategy::evaluate(const LoadedBatch& batch, Metrics& metrics) {
  task_->loaded_evaluation_step(batch, metrics);
}

}  // namespace lockstep::train
