// The ways to compute a training step that `lockstep bench step --strategy all` compares.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace lockstep {

/// A strategy with its options and its number of processes.
struct StrategyWay {
  std::string name;        ///< a row's name: "pipeline-1f1b"
  std::string strategy;    ///< the name for make_strategy(): "pipeline"
  int ranks = 1;           ///< processes
  int threads = 1;         ///< threads of each process
  int batch_shares = 1;    ///< number of parts of the batch that different ranks load
  std::string dp_loss{};   ///< dp: "gathered" or "on-each"
  int replicas = 1;        ///< dp: copies of the model in the process
  std::string schedule{};  ///< schedule of the pipeline; empty: no pipeline
  int stages = 0;          ///< of a pipeline
  int workers = 0;         ///< workers of one pipeline: threads or ranks
  /// Micro-batches of one pipeline, or parts of the batch that one process computes in turn; 0: the
  /// whole batch at once.
  int micro_batches = 0;
  bool recompute = false;  ///< pipelines: forwards run again before the backward
  bool shard_optimizer = false;

  bool has_pipeline() const { return !schedule.empty(); }
  /// The share of all workers' time in which the schedule leaves them idle, assuming that a forward
  /// and either half of a backward take equal time and messages none; 0 without a pipeline. A
  /// recomputed forward counts with the backward that needs it. The backward of the stages in
  /// `whole_backward` is not split.
  double replayed_bubble(const std::vector<int>& whole_backward = {}) const;
};

/// Settings common to all ways.
struct StrategyWork {
  int threads = 2;         ///< sum over the processes; even
  std::int64_t batch = 2;  ///< images per step, over all processes; even
  int micro_batches = 8;
  bool recompute = false;  ///< in all pipelines
};

/// Most ways divide the threads in two: among replicas, ranks or the workers of a pipeline.
/// "single" has all of them in one process. "single-half" has one half, as a reference for the gain
/// from the second one. "single-accumulated" adds up the gradients of a pipeline's micro-batches,
/// as a reference for the cost of small batches. Each of the four ranks of a hybrid has a quarter,
/// at least one thread. "split" is the naive split of a model: two stages that work in turn. A
/// pipeline divides a batch with fewer images than micro-batches into single images.
std::vector<StrategyWay> strategy_ways(const StrategyWork& work);

}  // namespace lockstep
