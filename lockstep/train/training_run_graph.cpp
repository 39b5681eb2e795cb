// Steps of a run through a CUDA graph: TrainerOptions::cuda_graph.
#include <cstddef>
#include <utility>
#include <vector>

#include <lockstep/core/error.h>
#include <lockstep/core/trace/span_recorder.h>
#include <lockstep/train/training_run.h>

namespace lockstep::train {
namespace {

LoadedBatch copy_of(const LoadedBatch& batch) {
  LoadedBatch copy = batch;
  for (torch::Tensor& tensor : copy.tensors) {
    if (tensor.defined()) tensor = tensor.clone();
  }
  return copy;
}

}  // namespace

// Called once the optimizer has its state.
void TrainingRun::prepare_graph() {
  if (!options_.cuda_graph) return;
  const std::string reason = strategy_.why_not_captured();
  if (!reason.empty()) {
    throw ConfigError(
        lockstep::str("Trainer: cuda_graph: strategy ", strategy_.name(), " ", reason));
  }
  if (plan_.size() > 1) {
    throw ConfigError(lockstep::str(
        "Trainer: cuda_graph records one kind of step, but configure_optimizers() returns ",
        plan_.size(), " optimizers that take turns; remove TrainerOptions::cuda_graph"));
  }
  (*optimizer_)->set_capturable(true);
  kernel_.emplace(train_loader_);
  const auto make_graph =
      options_.make_step_graph ? options_.make_step_graph : detail::make_step_graph;
  captured_.emplace(
      make_graph(options_.device, strategy_.group()), options_.accumulate_grad_batches,
      train_loader_.options().batch_size, options_.device,
      [this](const std::vector<LoadedBatch>& batches) { return computed_step(batches); });
}

// All device work of a step: the loader's kernel, zeroing, forward, backward, reduction, clipping
// and update.
std::vector<torch::Tensor> TrainingRun::computed_step(const std::vector<LoadedBatch>& batches) {
  zero_gradients();
  const double weight = 1.0 / static_cast<double>(batches.size());
  std::vector<torch::Tensor> losses;
  for (std::size_t part = 0; part < batches.size(); ++part) {
    losses.push_back(strategy_step(kernel_->made(batches[part]),
                                   {.weight = weight, .is_last = part + 1 == batches.size()}));
  }
  update_parameters();
  return losses;
}

// If a batch is smaller, as the last one of an epoch may be, or batches are missing, the step runs
// unrecorded.
void TrainingRun::train_through_graph(const LoadedBatch& first, std::int64_t parts) {
  std::vector<LoadedBatch> batches;
  bool is_full = parts == options_.accumulate_grad_batches;
  for (std::int64_t part = 0; part < parts; ++part) {
    const LoadedBatch& batch = require_batch(first, part, parts);
    const bool is_last = part + 1 == parts;
    if (captured_->takes(batch, task_.loaded_batch_size(batch))) {
      batches.push_back(captured_->load(part, batch));
    } else {
      is_full = false;
      batches.push_back(is_last ? moved(batch) : copy_of(moved(batch)));
    }
  }
  const std::vector<torch::Tensor> losses = is_full ? graph_step() : computed_step(batches);
  for (std::size_t part = 0; part < batches.size(); ++part) count_loss(losses[part], batches[part]);
}

// A replay runs all phases at once, and the recording executes none of them.
std::vector<torch::Tensor> TrainingRun::graph_step() {
  if (!captured_->replays()) return captured_->run();
  const SpanScope scope("graph", "phase");
  const PhaseSeconds before = phases_;
  if (recorded_memory_) recorded_memory_->require_unchanged();
  std::vector<torch::Tensor> losses = captured_->run();
  if (!recorded_memory_) recorded_memory_.emplace(task_.module());  // this run() has recorded it
  phases_ = before;
  return losses;
}

}  // namespace lockstep::train
