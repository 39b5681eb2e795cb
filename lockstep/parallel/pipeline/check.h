// Proves, before anything runs, that a table trains the whole model and comes to its end.
#pragma once

#include <vector>

#include <lockstep/parallel/pipeline/table.h>

namespace lockstep::pipeline {

struct TableFacts {
  /// For each worker the most activations that it holds at once, one for each stage and micro-batch
  /// between its forward and the end of its backward.
  std::vector<int> peak_activations{};
  double bubble = 0;  ///< With unit_cost(), 0 to 1.
};

/// ConfigError, with the worker and the action, unless
///   * every stage has, on its own worker, one forward and one backward for each micro-batch, whole
///   or
///     split, the latter in this order;
///   * the forwards of a stage, and the gradients of its weights, come in the order of the
///     micro-batches, which makes all schedules agree bit for bit;
///   * a reduction comes after a stage's last gradient, and there is one for each stage or for
///   none;
///   * with messages in the table, each that a stage needs is sent and received once, by the
///   workers of
///     the two stages, and each worker receives from another in the order in which that one sends;
///   * no workers wait for each other in a circle, where no send waits for its receive. The order
///   of
///     messages is compared for each direction between two workers by itself.
TableFacts check(const Table& table);

}  // namespace lockstep::pipeline
