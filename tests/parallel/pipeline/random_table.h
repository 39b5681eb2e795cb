// Random tables beyond those of the schedules, for tests of code that runs any table.
#pragma once

#include <map>
#include <random>
#include <string>
#include <vector>

#include <lockstep/core/strings.h>
#include <lockstep/parallel/pipeline/schedule/table.h>

namespace lockstep::testing_support {

/// A valid table without messages. Stages are on random workers, some with a split backward, and
/// every action is at a random place that its predecessors allow.
inline pipeline::Table random_table(std::mt19937& random, int workers, int stages,
                                    int micro_batches) {
  using pipeline::Action;
  using pipeline::Kind;
  pipeline::Table table{str("random ", workers, " ", stages, " ", micro_batches),
                        micro_batches,
                        {},
                        std::vector<std::vector<Action>>(static_cast<std::size_t>(workers))};
  std::vector<bool> split;
  for (int stage = 0; stage < stages; ++stage) {
    // Each worker gets at least one stage, as long as stages are left.
    const int worker = stage < workers ? stage : static_cast<int>(random() % workers);
    table.worker_of.push_back(worker);
    split.push_back(random() % 2 == 0);
  }
  std::map<Action, bool> done;
  const auto next_of = [&](Kind kind, int stage) {
    int i = 0;
    while (done.contains({kind, stage, i})) ++i;
    return i;
  };
  const auto enabled = [&] {
    std::vector<Action> actions;
    for (int stage = 0; stage < stages; ++stage) {
      const auto s = static_cast<std::size_t>(stage);
      const int forward = next_of(Kind::kForward, stage);
      if (forward < micro_batches &&
          (stage == 0 || done.contains({Kind::kForward, stage - 1, forward}))) {
        actions.push_back({Kind::kForward, stage, forward});
      }
      const Kind gradient = split[s] ? Kind::kBackwardInput : Kind::kBackward;
      const int backward = next_of(gradient, stage);
      const bool next_is_done =
          stage + 1 == stages ||
          done.contains(
              {split[s + 1] ? Kind::kBackwardInput : Kind::kBackward, stage + 1, backward});
      if (backward < micro_batches && done.contains({Kind::kForward, stage, backward}) &&
          next_is_done) {
        actions.push_back({gradient, stage, backward});
      }
      const int weight = next_of(Kind::kBackwardWeight, stage);
      if (split[s] && weight < micro_batches &&
          done.contains({Kind::kBackwardInput, stage, weight})) {
        actions.push_back({Kind::kBackwardWeight, stage, weight});
      }
    }
    return actions;
  };
  for (auto actions = enabled(); !actions.empty(); actions = enabled()) {
    const Action action = actions[random() % actions.size()];
    done[action] = true;
    const int worker = table.worker_of[static_cast<std::size_t>(action.stage)];
    table.workers[static_cast<std::size_t>(worker)].push_back(action);
  }
  return table;
}

}  // namespace lockstep::testing_support
