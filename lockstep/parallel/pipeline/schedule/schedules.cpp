#include <lockstep/parallel/pipeline/schedule/schedules.h>

#include <algorithm>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include <lockstep/core/error.h>
#include <lockstep/core/options.h>
#include <lockstep/parallel/pipeline/schedule/replay.h>

namespace lockstep::pipeline {
namespace {

void check_sizes(const char* name, int workers, int micro_batches) {
  const OptionCheck check(str("pipeline ", name));
  check.at_least("workers", workers, 1);
  check.at_least("micro_batches", micro_batches, 1);
}

// Builds one worker's actions in order: each kind goes through the micro-batches of its stage.
class Row {
 public:
  explicit Row(int micro_batches) : micro_batches_(micro_batches) {}

  /// No-op once all micro-batches have had it.
  void next(Kind kind, int stage) {
    int& count = counts_[{kind, stage}];
    if (count < micro_batches_) actions_.push_back({kind, stage, count++});
  }
  void split_backward(int stage) {
    next(Kind::kBackwardInput, stage);
    next(Kind::kBackwardWeight, stage);
  }
  void add(const Action& action) { actions_.push_back(action); }
  bool is_through(Kind kind, int stage) { return counts_[{kind, stage}] == micro_batches_; }
  std::vector<Action> take() { return std::move(actions_); }

 private:
  const int micro_batches_;
  std::map<std::pair<Kind, int>, int> counts_;
  std::vector<Action> actions_;
};

Table one_stage_each(const char* name, int workers, int micro_batches) {
  check_sizes(name, workers, micro_batches);
  Table table{name, micro_batches, {}, {}};
  for (int worker = 0; worker < workers; ++worker) table.worker_of.push_back(worker);
  return table;
}

// Keeps only the first `micro_batches` micro-batches of a row. The result waits for less than
// before, in the same order, so it is still free of deadlocks.
std::vector<Action> first_of(std::vector<Action> actions, int micro_batches) {
  std::erase_if(actions, [&](const Action& action) { return action.micro_batch >= micro_batches; });
  return actions;
}

}  // namespace

Table gpipe(int workers, int micro_batches) {
  Table table = one_stage_each("gpipe", workers, micro_batches);
  for (int worker = 0; worker < workers; ++worker) {
    Row row(micro_batches);
    for (int i = 0; i < micro_batches; ++i) row.next(Kind::kForward, worker);
    for (int i = 0; i < micro_batches; ++i) row.next(Kind::kBackward, worker);
    table.workers.push_back(row.take());
  }
  return table;
}

Table one_forward_one_backward(int workers, int micro_batches) {
  Table table = one_stage_each("1f1b", workers, micro_batches);
  for (int worker = 0; worker < workers; ++worker) {
    Row row(micro_batches);
    for (int i = 0; i < workers - worker; ++i) row.next(Kind::kForward, worker);
    for (int i = 0; i < micro_batches; ++i) {
      row.next(Kind::kBackward, worker);
      row.next(Kind::kForward, worker);
    }
    table.workers.push_back(row.take());
  }
  return table;
}

// The last worker is the first to run out of forwards, so it leaves most gradients of weights to
// the end.
Table zero_bubble_h1(int workers, int micro_batches) {
  Table table = one_stage_each("zb-h1", workers, micro_batches);
  for (int worker = 0; worker < workers; ++worker) {
    Row row(micro_batches);
    for (int i = 0; i < workers - worker; ++i) row.next(Kind::kForward, worker);
    for (int i = 0; i < micro_batches; ++i) {
      row.next(Kind::kBackwardInput, worker);
      if (i >= worker) row.next(Kind::kBackwardWeight, worker);
      row.next(Kind::kForward, worker);
    }
    while (!row.is_through(Kind::kBackwardWeight, worker)) row.next(Kind::kBackwardWeight, worker);
    table.workers.push_back(row.take());
  }
  return table;
}

// Micro-batches go through in groups whose size is the number of workers: a group passes through
// the worker's first stage, then its second and so on; backwards visit the stages in reverse order.
Table interleaved(int workers, int stages_per_worker, int micro_batches) {
  check_sizes("interleaved", workers, micro_batches);
  OptionCheck("pipeline interleaved").at_least("stages_per_worker", stages_per_worker, 1);
  Table table{"interleaved", micro_batches, {}, {}};
  for (int stage = 0; stage < workers * stages_per_worker; ++stage) {
    table.worker_of.push_back(stage % workers);
  }
  const int rounded = (micro_batches + workers - 1) / workers * workers;
  for (int worker = 0; worker < workers; ++worker) {
    std::vector<Action> forwards, backwards;
    for (int first = 0; first < rounded; first += workers) {
      for (int turn = 0; turn < stages_per_worker; ++turn) {
        for (int i = first; i < first + workers; ++i) {
          const int reverse = stages_per_worker - 1 - turn;
          forwards.push_back({Kind::kForward, turn * workers + worker, i});
          backwards.push_back({Kind::kBackward, reverse * workers + worker, i});
        }
      }
    }
    const auto ahead = static_cast<std::size_t>(2 * (workers - 1 - worker) +
                                                (stages_per_worker - 1) * workers + 1);
    Row row(rounded);
    for (std::size_t i = 0; i < forwards.size() + ahead; ++i) {
      if (i >= ahead) row.add(backwards[i - ahead]);
      if (i < forwards.size()) row.add(forwards[i]);
    }
    table.workers.push_back(first_of(row.take(), micro_batches));
  }
  return table;
}

namespace {

// Worker w has the stages w and 2 * workers - 1 - w, as in the letter V.
Table v_shaped(int workers, int micro_batches) {
  Table table{"zbv", micro_batches, {}, {}};
  for (int stage = 0; stage < 2 * workers; ++stage) {
    table.worker_of.push_back(std::min(stage, 2 * workers - 1 - stage));
  }
  return table;
}

// The paper's table, cut to `micro_batches` if it has more.
Table full_v(int workers, int micro_batches) {
  Table table = v_shaped(workers, micro_batches);
  const int enough = std::max(micro_batches, 2 * workers - 1);  // enough to fill the pipeline
  for (int worker = 0; worker < workers; ++worker) {
    const int down = worker, up = 2 * workers - 1 - worker;
    Row row(enough);
    // Until the first backward arrives.
    for (int i = 0; i < 2 * (workers - worker) - 1; ++i) row.next(Kind::kForward, down);
    for (int i = 0; i < worker; ++i) {
      row.next(Kind::kForward, up);
      row.next(Kind::kForward, down);
    }
    for (int i = 0; i < workers - worker; ++i) {
      row.next(Kind::kForward, up);
      row.split_backward(up);
    }
    while (!row.is_through(Kind::kForward, up)) {
      row.next(Kind::kForward, down);
      row.split_backward(down);
      row.next(Kind::kForward, up);
      row.split_backward(up);
    }
    // The rest: other workers wait only for the gradients of inputs.
    for (int i = 0; i < worker; ++i) {
      row.next(Kind::kBackwardInput, down);
      row.next(Kind::kBackwardInput, up);
    }
    while (!row.is_through(Kind::kBackwardInput, down)) row.split_backward(down);
    while (!row.is_through(Kind::kBackwardWeight, up)) row.next(Kind::kBackwardWeight, up);
    while (!row.is_through(Kind::kBackwardWeight, down)) row.next(Kind::kBackwardWeight, down);
    table.workers.push_back(first_of(row.take(), micro_batches));
  }
  return table;
}

// Every action takes one slot. In each slot a worker does the first of these that is ready: the
// gradients of inputs, for which others wait, a forward, the gradients of weights. Returns nullopt
// if no worker can continue with the activations that it may hold.
std::optional<Table> eager_v(int workers, int micro_batches) {
  Table table = v_shaped(workers, micro_batches);
  table.workers.resize(static_cast<std::size_t>(workers));
  const int last = 2 * workers - 1;
  std::map<std::pair<Kind, int>, int> done;  // micro-batches that have ended before this slot
  const auto is_ready = [&](Kind kind, int stage, int i) {
    if (kind == Kind::kForward) return stage == 0 || done[{kind, stage - 1}] > i;
    if (kind == Kind::kBackwardWeight) return done[{Kind::kBackwardInput, stage}] > i;
    return done[{Kind::kForward, stage}] > i && (stage == last || done[{kind, stage + 1}] > i);
  };
  for (int left = 3 * 2 * workers * micro_batches; left > 0;) {
    std::vector<Action> slot;
    for (int worker = 0; worker < workers; ++worker) {
      const int down = worker, up = last - worker;
      const int held = done[{Kind::kForward, down}] + done[{Kind::kForward, up}] -
                       done[{Kind::kBackwardWeight, down}] - done[{Kind::kBackwardWeight, up}];
      const std::pair<Kind, int> by_urgency[] = {
          {Kind::kBackwardInput, down}, {Kind::kBackwardInput, up},    {Kind::kForward, up},
          {Kind::kForward, down},       {Kind::kBackwardWeight, down}, {Kind::kBackwardWeight, up}};
      for (const auto& [kind, stage] : by_urgency) {
        const int i = done[{kind, stage}];
        if (i == micro_batches || !is_ready(kind, stage, i)) continue;
        if (kind == Kind::kForward && held == 2 * workers) continue;
        slot.push_back({kind, stage, i});
        break;
      }
    }
    if (slot.empty()) return std::nullopt;
    for (const Action& action : slot) {
      const int worker = std::min(action.stage, last - action.stage);
      table.workers[static_cast<std::size_t>(worker)].push_back(action);
      ++done[{action.kind, action.stage}];
      --left;
    }
  }
  return table;
}

}  // namespace

// The paper's table is the shortest one if there are enough micro-batches to fill the pipeline.
// With fewer, workers would wait in places where the missing ones are left out.
Table zero_bubble_v(int workers, int micro_batches) {
  check_sizes("zbv", workers, micro_batches);
  Table full = full_v(workers, micro_batches);
  if (micro_batches >= 2 * workers - 1) return full;
  std::optional<Table> eager = eager_v(workers, micro_batches);
  return eager && replay(*eager).end < replay(full).end ? *std::move(eager) : full;
}

namespace {

using MakeSchedule = Table (*)(int workers, int micro_batches, int stages_per_worker);

const lockstep::detail::NamedValues<MakeSchedule>& named_schedules() {
  static const lockstep::detail::NamedValues<MakeSchedule> all = {
      {"gpipe", [](int workers, int micro_batches, int) { return gpipe(workers, micro_batches); }},
      {"1f1b", [](int workers, int micro_batches,
                  int) { return one_forward_one_backward(workers, micro_batches); }},
      {"interleaved",
       [](int workers, int micro_batches, int stages_per_worker) {
         return interleaved(workers, stages_per_worker, micro_batches);
       }},
      {"zb-h1",
       [](int workers, int micro_batches, int) { return zero_bubble_h1(workers, micro_batches); }},
      {"zbv",
       [](int workers, int micro_batches, int) { return zero_bubble_v(workers, micro_batches); }},
  };
  return all;
}

}  // namespace

const std::vector<std::string>& schedule_names() { return named_schedules().names(); }

Table schedule_of(std::string_view name, int workers, int micro_batches, int stages_per_worker) {
  const MakeSchedule make = named_schedules().value_of("Pipeline", "schedule", name);
  return make(workers, micro_batches, stages_per_worker);
}

}  // namespace lockstep::pipeline
