// Computes, from the durations of the actions, when each action of a table begins and ends. The
// durations are assumed, before anything runs, or measured.
#pragma once

#include <cstddef>
#include <functional>
#include <vector>

#include <lockstep/core/export.h>
#include <lockstep/parallel/pipeline/schedule/table.h>

namespace lockstep::pipeline {

struct LOCKSTEP_API Interval {
  Action action{};
  double begin = 0;
  double end = 0;
};

struct LOCKSTEP_API Timeline {
  std::vector<std::vector<Interval>> workers{};  ///< indexed as in the table
  double end = 0;  ///< end of the last action; the first one begins at 0

  /// The share of all workers' time, 0 to 1, in which nothing was computed: messages, reductions
  /// and waits.
  double bubble() const;
  /// The bubble of one worker, as a share of its time.
  double bubble_of(std::size_t worker) const;
};

/// The duration of an action, in any unit.
using Costs = std::function<double(const Action&)>;

/// The costs assumed by the formulas of the papers: a forward takes 1, the gradients of inputs and
/// of weights take 1 each, a message or a reduction takes 0.
LOCKSTEP_API double unit_cost(const Action& action);

/// The durations of the actions of a measured step, to replay the step without its waits:
/// replay(table, costs_of(measured)) is the shortest step that the table allows with these
/// durations. Messages take 0, because a receive's duration is mostly a wait, and a send can end
/// after its receive. An action that is missing in `measured` also takes 0.
LOCKSTEP_API Costs costs_of(const Timeline& measured);

/// Starts every action as soon as its worker has finished the previous ones and the actions of
/// other workers on which it depends have ended. A receive waits for the send to end; in a table
/// without messages a stage waits directly for its neighbour. Throws ConfigError if workers wait
/// for each other in a cycle; it says which worker waits for what.
LOCKSTEP_API Timeline replay(const Table& table, const Costs& costs = unit_cost);

}  // namespace lockstep::pipeline
