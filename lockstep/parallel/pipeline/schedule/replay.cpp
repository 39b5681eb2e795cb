#include <lockstep/parallel/pipeline/schedule/replay.h>

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include <lockstep/core/error.h>

namespace lockstep::pipeline {
namespace {

double busy_time(const std::vector<Interval>& intervals) {
  double busy = 0;
  for (const Interval& each : intervals) {
    if (is_compute(each.action.kind)) busy += each.end - each.begin;
  }
  return busy;
}

// Replays as far as possible: in each round every worker proceeds until it must wait for another.
class Replay {
 public:
  Replay(const Table& table, const Costs& costs)
      : table_(table), costs_(costs), next_(table.workers.size()), now_(table.workers.size()) {
    for (const auto& actions : table.workers) {
      has_.insert(actions.begin(), actions.end());
    }
    timeline_.workers.resize(table.workers.size());
  }

  Timeline run() {
    for (bool moved = true; moved;) {
      moved = false;
      for (std::size_t worker = 0; worker < table_.workers.size(); ++worker) {
        while (next_[worker] < table_.workers[worker].size() && try_next(worker)) moved = true;
      }
    }
    check_through();
    timeline_.end = now_.empty() ? 0 : *std::max_element(now_.begin(), now_.end());
    return std::move(timeline_);
  }

 private:
  bool try_next(std::size_t worker) {
    const Action& action = table_.workers[worker][next_[worker]];
    double begin = now_[worker];
    for (const Action& needed : needs(action)) {
      const auto found = ended_.find(needed);
      if (found == ended_.end()) return false;
      begin = std::max(begin, found->second);
    }
    const double end = begin + costs_(action);
    timeline_.workers[worker].push_back({action, begin, end});
    ended_[action] = now_[worker] = end;
    ++next_[worker];
    return true;
  }

  // The action that computes the gradient of the inputs of `stage`: I, or a whole backward.
  Action gradient(int stage, int micro_batch) const {
    const Action split{Kind::kBackwardInput, stage, micro_batch};
    return has_.contains(split) ? split : Action{Kind::kBackward, stage, micro_batch};
  }

  std::vector<Action> needs(const Action& action) const {
    const auto [kind, stage, i] = action;
    std::vector<Action> needed;
    const auto need = [&](const Action& message, const Action& without_messages) {
      needed.push_back(has_.contains(message) ? message : without_messages);
    };
    switch (kind) {
      case Kind::kForward:
        if (stage > 0) need({Kind::kReceiveForward, stage, i}, {Kind::kForward, stage - 1, i});
        break;
      case Kind::kBackward:
      case Kind::kBackwardInput:
        needed.push_back({Kind::kForward, stage, i});
        if (stage + 1 < table_.stages()) {
          need({Kind::kReceiveBackward, stage, i}, gradient(stage + 1, i));
        }
        break;
      case Kind::kBackwardWeight:
        needed.push_back({Kind::kBackwardInput, stage, i});
        break;
      case Kind::kSendForward:
        needed.push_back({Kind::kForward, stage, i});
        break;
      case Kind::kSendBackward:
        needed.push_back(gradient(stage, i));
        break;
      case Kind::kReceiveForward:
        needed.push_back({Kind::kSendForward, stage - 1, i});
        break;
      case Kind::kReceiveBackward:
        needed.push_back({Kind::kSendBackward, stage + 1, i});
        break;
      case Kind::kReduce:
        for (int each = 0; each < table_.micro_batches; ++each) {
          const Action split{Kind::kBackwardWeight, stage, each};
          needed.push_back(has_.contains(split) ? split : Action{Kind::kBackward, stage, each});
        }
        break;
    }
    return needed;
  }

  void check_through() const {
    std::vector<std::string> waiting;
    for (std::size_t worker = 0; worker < table_.workers.size(); ++worker) {
      if (next_[worker] == table_.workers[worker].size()) continue;
      const Action& action = table_.workers[worker][next_[worker]];
      for (const Action& needed : needs(action)) {
        if (ended_.contains(needed)) continue;
        waiting.push_back(str("worker ", worker, " at ", text(action), " for ", text(needed),
                              has_.contains(needed) ? "" : ", which nobody does"));
        break;
      }
    }
    if (waiting.empty()) return;
    throw ConfigError(
        str("table ", table_.name, " does not come to its end: ", join(waiting, "; ")));
  }

  const Table& table_;
  const Costs& costs_;
  std::set<Action> has_;
  std::map<Action, double> ended_;
  std::vector<std::size_t> next_;
  std::vector<double> now_;
  Timeline timeline_;
};

}  // namespace

double Timeline::bubble() const {
  double busy = 0;
  for (const auto& intervals : workers) busy += busy_time(intervals);
  const double all = end * static_cast<double>(workers.size());
  return all > 0 ? 1 - busy / all : 0;
}

double Timeline::bubble_of(std::size_t worker) const {
  return end > 0 ? 1 - busy_time(workers.at(worker)) / end : 0;
}

double unit_cost(const Action& action) {
  if (action.kind == Kind::kBackward) return 2;
  return is_compute(action.kind) ? 1 : 0;
}

Costs costs_of(const Timeline& measured) {
  std::map<Action, double> durations;
  for (const auto& intervals : measured.workers) {
    for (const Interval& each : intervals) {
      if (is_message(each.action.kind)) continue;
      durations[each.action] = each.end - each.begin;
    }
  }
  return [durations = std::move(durations)](const Action& action) {
    const auto found = durations.find(action);
    return found == durations.end() ? 0.0 : found->second;
  };
}

Timeline replay(const Table& table, const Costs& costs) { return Replay(table, costs).run(); }

}  // namespace lockstep::pipeline
