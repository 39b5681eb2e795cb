// When each action of a table begins and ends, from how long each takes: on paper before anything
// runs, and from measured durations afterwards.
#pragma once

#include <cstddef>
#include <functional>
#include <vector>

#include <lockstep/parallel/pipeline/schedule/table.h>

namespace lockstep::pipeline {

struct Interval {
  Action action{};
  double begin = 0;
  double end = 0;
};

struct Timeline {
  std::vector<std::vector<Interval>> workers{};  ///< as in the table
  double end = 0;                                ///< of the last action; the first begins at 0

  /// The share of all workers' time, 0 to 1, in which nothing was computed: messages, reductions
  /// and waits.
  double bubble() const;
  /// The share of the time of one worker.
  double bubble_of(std::size_t worker) const;
};

/// How long an action takes, in any unit.
using Costs = std::function<double(const Action&)>;

/// A forward takes 1, the gradients of inputs and of weights take 1 each, a message or a reduction
/// nothing: what the formulas of the papers assume.
double unit_cost(const Action& action);

/// What each action of a step took, to replay the step without its waits: replay(table,
/// costs_of(measured)) is the best that the table allows with these durations. Messages take
/// nothing, because a receive's duration is mostly a wait, and a send can end after its receive. An
/// action that `measured` does not have takes nothing, either.
Costs costs_of(const Timeline& measured);

/// Every action begins when its worker has done what stands before it and what it needs of others
/// has ended. A receive waits for the send's end; with no messages in the table a stage waits for
/// its neighbour itself. ConfigError where workers wait for each other in a circle, which says who
/// waits for what.
Timeline replay(const Table& table, const Costs& costs = unit_cost);

}  // namespace lockstep::pipeline
