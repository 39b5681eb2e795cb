#include <lockstep/parallel/pipeline/schedule/check.h>

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include <lockstep/core/error.h>
#include <lockstep/parallel/pipeline/schedule/replay.h>

namespace lockstep::pipeline {
namespace {

[[noreturn]] void refuse(const Table& table, std::size_t worker, const std::string& what) {
  throw ConfigError(str("table ", table.name, ", worker ", worker, ": ", what));
}

void check_shape(const Table& table) {
  if (table.micro_batches < 1 || table.worker_of.empty() || table.workers.empty()) {
    throw ConfigError(str("table ", table.name, " has ", table.micro_batches, " micro-batches, ",
                          table.worker_of.size(), " stages and ", table.workers.size(),
                          " workers; at least one of each is needed"));
  }
  for (int stage = 0; stage < table.stages(); ++stage) {
    const int worker = table.worker_of[static_cast<std::size_t>(stage)];
    if (worker >= 0 && worker < static_cast<int>(table.workers.size())) continue;
    throw ConfigError(str("table ", table.name, ": nobody holds stage ", stage));
  }
}

// Each action occurs at most once, on the worker of its stage, for an existing micro-batch.
void check_places(const Table& table) {
  for (std::size_t worker = 0; worker < table.workers.size(); ++worker) {
    std::set<Action> seen;
    for (const Action& action : table.workers[worker]) {
      const bool known = action.stage >= 0 && action.stage < table.stages();
      if (!known ||
          table.worker_of[static_cast<std::size_t>(action.stage)] != static_cast<int>(worker)) {
        refuse(table, worker, text(action) + " names a stage that this worker does not hold");
      }
      const int first = action.kind == Kind::kReduce ? -1 : 0;
      const int end = action.kind == Kind::kReduce ? 0 : table.micro_batches;
      if (action.micro_batch < first || action.micro_batch >= end) {
        refuse(table, worker,
               str(text(action), " names none of the ", table.micro_batches, " micro-batches"));
      }
      if (!seen.insert(action).second) refuse(table, worker, text(action) + " occurs twice");
    }
  }
}

// Every action follows those of its stage that it needs, and the micro-batches are in order.
// Returns all actions.
std::set<Action> check_stages(const Table& table) {
  std::set<Action> all;
  for (std::size_t worker = 0; worker < table.workers.size(); ++worker) {
    std::map<int, int> next_forward, next_gradient;
    for (const Action& action : table.workers[worker]) {
      const auto [kind, stage, i] = action;
      const auto require = [&](Kind before) {
        const Action needed{before, action.stage, action.micro_batch};
        if (all.contains(needed)) return;
        refuse(table, worker,
               str(text(action), " needs ", text(needed), " before it, in the same line"));
      };
      if (is_gradient(kind)) require(Kind::kForward);
      if (kind == Kind::kBackwardWeight) require(Kind::kBackwardInput);
      const bool in_order = kind == Kind::kForward     ? next_forward[stage]++ == i
                            : is_weight_gradient(kind) ? next_gradient[stage]++ == i
                                                       : true;
      if (!in_order) {
        refuse(table, worker, str(text(action), " is out of the order of the micro-batches"));
      }
      if (kind == Kind::kReduce && next_gradient[stage] != table.micro_batches) {
        refuse(table, worker, str(text(action), " stands before the last gradient of its stage"));
      }
      all.insert(action);
    }
  }
  return all;
}

// Every stage and micro-batch has a forward and a backward, and all stages or none a reduction.
void check_complete(const Table& table, const std::set<Action>& all) {
  const bool reduces = has_reductions(table);
  for (int stage = 0; stage < table.stages(); ++stage) {
    const auto worker = static_cast<std::size_t>(table.worker_of[static_cast<std::size_t>(stage)]);
    const Action reduction{Kind::kReduce, stage, -1};
    if (reduces && !all.contains(reduction)) {
      refuse(table, worker, text(reduction) + " is missing, which other stages have");
    }
    for (int i = 0; i < table.micro_batches; ++i) {
      const bool whole = all.contains({Kind::kBackward, stage, i});
      const bool inputs = all.contains({Kind::kBackwardInput, stage, i});
      const bool weights = all.contains({Kind::kBackwardWeight, stage, i});
      if (!all.contains({Kind::kForward, stage, i})) {
        refuse(table, worker, text({Kind::kForward, stage, i}) + " is missing");
      }
      if (whole == inputs || inputs != weights) {
        refuse(table, worker,
               str("the backward of stage ", stage, " for micro-batch ", i,
                   " must be whole, or split into inputs and weights"));
      }
    }
  }
}

// Every stage and micro-batch has one forward, then one backward. Returns all actions.
std::set<Action> check_compute(const Table& table) {
  std::set<Action> all = check_stages(table);
  check_complete(table, all);
  return all;
}

// The messages between `stage` and the next one for one micro-batch, as (send, receive).
struct Message {
  Action send;
  Action receive;
};

void check_message(const Table& table, const std::set<Action>& all, const Message& message,
                   bool needed) {
  for (const Action& action : {message.send, message.receive}) {
    if (all.contains(action) == needed) continue;
    const auto worker =
        static_cast<std::size_t>(table.worker_of[static_cast<std::size_t>(action.stage)]);
    if (needed) refuse(table, worker, text(action) + " is missing");
    refuse(table, worker,
           str(text(action), ": stages ", message.send.stage, " and ", message.receive.stage,
               " are on one worker, where nothing is sent; remove this action"));
  }
}

// Messages must be received in order, because a transport may deliver only in order.
void check_order(const Table& table) {
  std::map<std::pair<int, int>, std::vector<Action>> sent, received;  // as receives, by (from, to)
  for (const auto& actions : table.workers) {
    for (const Action& action : actions) {
      const auto worker_of = [&](int stage) {
        return table.worker_of[static_cast<std::size_t>(stage)];
      };
      const Kind kind = action.kind;
      const int stage = action.stage;
      if (kind == Kind::kSendForward || kind == Kind::kSendBackward) {
        const Action receive = receive_of(action);
        sent[{worker_of(stage), worker_of(receive.stage)}].push_back(receive);
      } else if (kind == Kind::kReceiveForward) {
        received[{worker_of(stage - 1), worker_of(stage)}].push_back(action);
      } else if (kind == Kind::kReceiveBackward) {
        received[{worker_of(stage + 1), worker_of(stage)}].push_back(action);
      }
    }
  }
  for (const auto& [pair, order] : sent) {
    const std::vector<Action>& other = received[pair];
    const auto [first, second] =
        std::mismatch(order.begin(), order.end(), other.begin(), other.end());
    if (first == order.end() && second == other.end()) continue;
    refuse(table, static_cast<std::size_t>(pair.second),
           str(text(*second), " is out of the order in which worker ", pair.first,
               " sends, whose next is ", text(*first)));
  }
}

void check_messages(const Table& table, const std::set<Action>& all) {
  if (!has_messages(table)) return;
  for (int stage = 0; stage < table.stages(); ++stage) {
    const bool last = stage + 1 == table.stages();
    const bool crosses = !last && table.worker_of[static_cast<std::size_t>(stage)] !=
                                      table.worker_of[static_cast<std::size_t>(stage) + 1];
    for (int i = 0; i < table.micro_batches; ++i) {
      if (!last) {
        check_message(table, all,
                      {{Kind::kSendForward, stage, i}, {Kind::kReceiveForward, stage + 1, i}},
                      crosses);
        check_message(table, all,
                      {{Kind::kSendBackward, stage + 1, i}, {Kind::kReceiveBackward, stage, i}},
                      crosses);
      }
      // The first and last stages have no neighbour beyond the model.
      for (const Action& beyond :
           {Action{Kind::kSendForward, table.stages() - 1, i},
            Action{Kind::kReceiveBackward, table.stages() - 1, i},
            Action{Kind::kSendBackward, 0, i}, Action{Kind::kReceiveForward, 0, i}}) {
        if (!all.contains(beyond)) continue;
        const auto worker =
            static_cast<std::size_t>(table.worker_of[static_cast<std::size_t>(beyond.stage)]);
        refuse(table, worker, text(beyond) + " has nobody on the other side");
      }
    }
  }
  check_order(table);
}

std::vector<int> peak_activations(const Table& table) {
  std::vector<int> peaks;
  for (const auto& actions : table.workers) {
    int held = 0, peak = 0;
    for (const Action& action : actions) {
      if (action.kind == Kind::kForward) peak = std::max(peak, ++held);
      if (is_weight_gradient(action.kind)) --held;
    }
    peaks.push_back(peak);
  }
  return peaks;
}

}  // namespace

TableFacts check(const Table& table) {
  check_shape(table);
  check_places(table);
  check_messages(table, check_compute(table));
  return {peak_activations(table), replay(table).bubble()};
}

}  // namespace lockstep::pipeline
