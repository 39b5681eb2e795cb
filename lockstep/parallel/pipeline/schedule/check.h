// Proves, before anything runs, that a table trains the whole model and terminates.
#pragma once

#include <vector>

#include <lockstep/core/export.h>
#include <lockstep/parallel/pipeline/schedule/table.h>

namespace lockstep::pipeline {

struct LOCKSTEP_API TableFacts {
  /// For each worker, the peak number of activations that it holds: one for each stage and
  /// micro-batch, from its forward to the end of its backward.
  std::vector<int> peak_activations{};
  double bubble = 0;  ///< Timeline::bubble() with unit_cost(), 0 to 1
};

/// Throws a ConfigError that names the worker and the action unless
///   * every stage has, on its own worker, one forward and then one backward for each micro-batch;
///     in a split backward, I comes before W;
///   * the forwards of a stage, and the gradients of its weights, follow the order of the
///     micro-batches, which makes all schedules agree bit for bit;
///   * a reduction comes after its stage's last gradient, and either all stages have one or none;
///   * if there are messages, each message that a stage needs is sent once and received once, by
///     the workers of the two stages, and each worker receives from another in the order of its
///     sends;
///   * no workers wait for each other in a cycle. A send does not wait for its receive, and
///     messages are ordered only between two workers, separately for each direction.
LOCKSTEP_API TableFacts check(const Table& table);

}  // namespace lockstep::pipeline
