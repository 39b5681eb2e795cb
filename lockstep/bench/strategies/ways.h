// The ways to compute a training step that `lockstep bench step --strategy all` compares.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace lockstep::bench {

/// A strategy with its options and its number of processes.
struct StrategyWay {
  std::string name;        ///< a row's name: "pipeline-1f1b"
  std::string strategy;    ///< the name for make_strategy(): "pipeline"
  int ranks = 1;           ///< processes
  int threads = 1;         ///< threads of each process
  int batch_shares = 1;    ///< number of parts of the batch that are loaded by different ranks
  std::string dp_loss{};   ///< for dp: "gathered" or "on-each"
  int replicas = 1;        ///< for dp: copies of the model in the process
  std::string schedule{};  ///< schedule of the pipeline; empty: no pipeline
  int stages = 0;          ///< pipelines only
  int workers = 0;         ///< workers of one pipeline: threads or ranks
  /// Micro-batches of a pipeline, or parts of the batch whose gradients a process accumulates; 0:
  /// the whole batch at once.
  int micro_batches = 0;
  bool recompute = false;  ///< for pipelines: whether each backward recomputes its activations
  bool shard_optimizer = false;

  bool has_pipeline() const { return !schedule.empty(); }
  /// The share of all workers' time in which the schedule leaves them idle; 0 without a pipeline.
  /// It assumes that a forward and either half of a backward take the same time, and that messages
  /// take none. A recomputed forward counts as part of the backward that needs it. Stages in
  /// `whole_backward` do not split their backward into halves.
  double replayed_bubble(const std::vector<int>& whole_backward = {}) const;
};

/// Settings common to all ways.
struct StrategyWork {
  int threads = 2;         ///< sum over all processes; must be even
  std::int64_t batch = 2;  ///< images per step, sum over all processes; must be even
  int micro_batches = 8;
  bool recompute = false;  ///< in all pipelines
};

/// Returns all ways, in the order in which they are measured. Most of them divide the threads
/// equally between two replicas, ranks or pipeline workers. The exceptions and references are:
///   * "single" uses all threads in one process.
///   * "single-half" uses half of them, and shows what the second half gains.
///   * "single-accumulated" uses all of them and accumulates the gradients of micro-batches of the
///     size that a pipeline uses, which shows what small batches cost.
///   * "split" is the naive split of a model: two stages that work in turn.
///   * Each of the four ranks of a hybrid has a quarter of the threads, at least one.
/// If a batch has fewer images than there are micro-batches, pipelines divide it into single
/// images.
std::vector<StrategyWay> strategy_ways(const StrategyWork& work);

}  // namespace lockstep::bench
