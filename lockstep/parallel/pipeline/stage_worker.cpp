#include <lockstep/parallel/pipeline/stage_worker.h>

#include <utility>

#include <c10/core/GradMode.h>

#include <lockstep/core/error.h>
#include <lockstep/parallel/pipeline/micro_batches.h>

namespace lockstep::pipeline {
namespace {

// The criterion has changed the targets of micro-batch `i` in place. Throws ConfigError if it must
// not.
void require_changeable_target(const StepBatch& batch, std::size_t i) {
  if (!c10::GradMode::is_enabled()) {
    throw ConfigError(
        "the criterion changes y in place, so that recompute cannot call it again with what y was; "
        "let its first operation make a new tensor");
  }
  if (batch.inputs.empty()) return;  // the first stage is on another rank
  for (const torch::Tensor& input : batch.inputs[i]) {
    if (!share_memory(input, batch.targets[i])) continue;
    throw ConfigError(
        "the criterion changes y in place, which shares memory with x, the input of the first "
        "stage; let its first operation make a new tensor, or give a clone of y");
  }
}

}  // namespace

StageWorker::StageWorker(int worker, torch::Device device,
                         std::vector<std::shared_ptr<Stage>> stages, MessageChannel& channel,
                         ReduceStage reduce)
    : worker_(worker),
      device_(device),
      stages_(std::move(stages)),
      channel_(channel),
      reduce_(std::move(reduce)),
      copies_(device) {}

void StageWorker::begin(const Table& table, const StepBatch& batch) {
  table_ = &table;
  batch_ = &batch;
  messages_.clear();
  results_.assign(static_cast<std::size_t>(table.micro_batches), {});
  for (const auto& each : stages_) {
    if (!each) continue;
    const bool with_loss = batch.plan.training && is_last(each->index());
    each->begin(batch.plan, with_loss ? loss_of(batch) : nullptr);
  }
}

void StageWorker::clear() {
  messages_.clear();
  results_.clear();
  for (const auto& each : stages_) {
    if (each) each->clear();
  }
}

LossOfOutputs StageWorker::loss_of(const StepBatch& batch) const {
  return [&batch, device = device_](const Tensors& outputs, int micro_batch) {
    const auto i = static_cast<std::size_t>(micro_batch);
    torch::Tensor target = batch.targets[i];
    if (target.defined()) target = target.to(target.options().device(device));
    // Targets with a graph keep it, and with it their version.
    const bool has_graph = target.defined() && target.requires_grad();
    const Tensors own = has_graph ? Tensors{target} : with_own_versions({target});
    const torch::Tensor loss = batch.loss(outputs, own[0]);
    const bool is_callers = target.is_same(batch.targets[i]);
    if (!has_graph && pass_changes_on(own, {target}) && is_callers) {
      require_changeable_target(batch, i);
    }
    const bool is_whole = batch.weights[i] == 1 || !loss.defined();  // the stage refuses the latter
    return is_whole ? loss : loss * batch.weights[i];
  };
}

void StageWorker::perform(const Action& action) {
  switch (action.kind) {
    case Kind::kForward:
      return forward(action);
    case Kind::kBackward:
    case Kind::kBackwardInput:
      return backward(action);
    case Kind::kBackwardWeight:
      return stage(action.stage).backward_weight(action.micro_batch);
    case Kind::kSendForward:
    case Kind::kSendBackward:
      return channel_.send(worker_of(receive_of(action).stage), take(action));
    case Kind::kReceiveForward:
      messages_[action] = copies_.bring(channel_.receive(worker_of(action.stage - 1)));
      return;
    case Kind::kReceiveBackward:
      messages_[action] = copies_.bring(channel_.receive(worker_of(action.stage + 1)));
      return;
    case Kind::kReduce:
      LOCKSTEP_CHECK(reduce_, text(action), " without a reduction");
      return reduce_(action.stage, stage(action.stage).module().parameters());
  }
}

void StageWorker::forward(const Action& action) {
  const auto [kind, index, i] = action;
  StageMessage inputs =
      index == 0 ? copies_.bring({.tensors = batch_->inputs[static_cast<std::size_t>(i)]})
                 : take({Kind::kReceiveForward, index, i});
  wait_until_ready(inputs, device_);
  StageMessage outputs = stage(index).forward(i, std::move(inputs));
  if (is_last(index)) {
    results_[static_cast<std::size_t>(i)] = std::move(outputs.tensors);
  } else {
    give({Kind::kSendForward, index, i}, std::move(outputs));
  }
}

void StageWorker::backward(const Action& action) {
  const auto [kind, index, i] = action;
  StageMessage gradients;
  if (!is_last(index)) gradients = take({Kind::kReceiveBackward, index, i});
  wait_until_ready(gradients, device_);
  Tensors of_inputs = kind == Kind::kBackward
                          ? stage(index).backward(i, std::move(gradients.tensors))
                          : stage(index).backward_input(i, std::move(gradients.tensors));
  if (index > 0) give({Kind::kSendBackward, index, i}, {.tensors = std::move(of_inputs)});
}

// Keeps the message for the action that sends it, or for the next stage if it is on this worker.
void StageWorker::give(const Action& send, StageMessage message) {
  const Action receive = receive_of(send);
  if (worker_of(receive.stage) == worker_) {
    messages_[receive] = std::move(message);
    return;
  }
  mark_ready(message, device_);
  messages_[send] = std::move(message);
}

StageMessage StageWorker::take(const Action& action) {
  auto found = messages_.extract(action);
  LOCKSTEP_CHECK(!found.empty(), "nothing is there for ", text(action));
  return std::move(found.mapped());
}

}  // namespace lockstep::pipeline
