// Performs a table's actions with stages. Threads and ranks both use this class.
#pragma once

#include <map>
#include <memory>
#include <utility>
#include <vector>

#include <torch/types.h>

#include <lockstep/parallel/pipeline/peer_copies.h>
#include <lockstep/parallel/pipeline/pipeline_options.h>
#include <lockstep/parallel/pipeline/schedule/table.h>
#include <lockstep/parallel/pipeline/stage.h>
#include <lockstep/parallel/pipeline/stage_message.h>

namespace lockstep::pipeline {

/// A batch in micro-batches. A rank needs `inputs` only for stage 0, and the rest only for the last
/// stage.
struct StepBatch {
  StepPlan plan{};
  std::vector<Tensors> inputs{};  ///< [micro-batch][tensor], on any device
  Tensors targets{};              ///< [micro-batch]; undefined if the criterion needs none
  std::vector<double> weights{};  ///< [micro-batch]: the weights of the losses
  PipelineLoss loss{};
};

/// One worker, on a dedicated thread whose current device is `device`.
class StageWorker {
 public:
  /// `stages` is indexed by stage, with null for stages of other workers. `channel` must outlive
  /// the worker.
  StageWorker(int worker, torch::Device device, std::vector<std::shared_ptr<Stage>> stages,
              MessageChannel& channel, ReduceStage reduce);

  /// Call it before a step's first action. `table` must contain the messages (with_messages()). It
  /// and `batch` must live until the step ends.
  void begin(const Table& table, const StepBatch& batch);
  /// Performs one action from the worker's row of the table.
  void perform(const Action& action);
  /// Drops the graphs, messages and results of a failed step.
  void clear();

  /// Moves the results of a step out. On the worker of the last stage they are, for each
  /// micro-batch, the loss in training, and the outputs otherwise; on other workers they are empty
  /// lists.
  std::vector<Tensors> take_results() { return std::exchange(results_, {}); }

 private:
  void forward(const Action& action);
  void backward(const Action& action);
  LossOfOutputs loss_of(const StepBatch& batch) const;
  Stage& stage(int index) const { return *stages_[static_cast<std::size_t>(index)]; }
  bool is_last(int stage) const { return stage + 1 == table_->stages(); }
  int worker_of(int stage) const { return table_->worker_of[static_cast<std::size_t>(stage)]; }
  void give(const Action& send, StageMessage message);
  StageMessage take(const Action& action);

  const int worker_;
  const torch::Device device_;
  const std::vector<std::shared_ptr<Stage>> stages_;
  MessageChannel& channel_;
  const ReduceStage reduce_;
  PeerCopies copies_;

  const Table* table_ = nullptr;
  const StepBatch* batch_ = nullptr;
  /// Keyed by the action that sends or receives the message, even if the message stays on this
  /// worker.
  std::map<Action, StageMessage> messages_;
  std::vector<Tensors> results_;
};

}  // namespace lockstep::pipeline
