// Proves, before anything runs, that a table trains the whole model and comes to its end.
#pragma once

#include <vector>

#include <lockstep/parallel/pipeline/schedule/table.h>

namespace lockstep::pipeline {

struct TableFacts {
  /// For each worker the most activations that it holds at once, one for each stage and micro-batch
  /// between its forward and the end of its backward.
  std::vector<int> peak_activations{};
  double bubble = 0;  ///< With unit_cost(), 0 to 1.
};

/// Throws a ConfigError that names the worker and the action unless
///   * every stage has, on its own worker, one forward and then one backward for each micro-batch;
///     a split backward has I before W;
///   * the forwards of a stage, and the gradients of its weights, are in the order of the
///     micro-batches, which makes all schedules agree bit for bit;
///   * a reduction comes after its stage's last gradient, and all stages have one or none has;
///   * if there are messages, each one that a stage needs is sent once and received once, by the
///     workers of the two stages, and each worker receives from another in the order of its sends;
///   * no workers wait for each other in a circle. A send does not wait for its receive, and the
///     order of messages matters only between two workers, for each direction by itself.
TableFacts check(const Table& table);

}  // namespace lockstep::pipeline
