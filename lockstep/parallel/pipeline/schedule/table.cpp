#include <lockstep/parallel/pipeline/schedule/table.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include <lockstep/core/error.h>

namespace lockstep::pipeline {
namespace {

constexpr std::array<std::pair<Kind, std::string_view>, 9> kNames{{
    {Kind::kForward, "F"},
    {Kind::kBackward, "B"},
    {Kind::kBackwardInput, "I"},
    {Kind::kBackwardWeight, "W"},
    {Kind::kSendForward, "SEND_F"},
    {Kind::kReceiveForward, "RECV_F"},
    {Kind::kSendBackward, "SEND_B"},
    {Kind::kReceiveBackward, "RECV_B"},
    {Kind::kReduce, "REDUCE_GRAD"},
}};

// Far more than any model has, and small enough that no number overflows.
constexpr int kMostStages = 100'000;
constexpr int kMostMicroBatches = 1'000'000;

// Removes the number at the beginning of `text` and returns it; -1 if there is none.
int take_number(std::string_view& text) {
  int number = -1;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || number < 0) return -1;
  text.remove_prefix(static_cast<std::size_t>(end - text.data()));
  return number;
}

std::string_view take_until(std::string_view& text, char separator) {
  const auto end = text.find(separator);
  const std::string_view part = text.substr(0, end);
  text = end == std::string_view::npos ? std::string_view{} : text.substr(end + 1);
  return part;
}

bool crosses_workers(const Table& table, int stage, int neighbour) {
  return neighbour >= 0 && neighbour < table.stages() &&
         table.worker_of[static_cast<std::size_t>(stage)] !=
             table.worker_of[static_cast<std::size_t>(neighbour)];
}

// Empty if no other worker waits for the result of `action`.
std::optional<Action> send_after(const Table& table, const Action& action) {
  const auto [kind, stage, micro_batch] = action;
  if (kind == Kind::kForward && crosses_workers(table, stage, stage + 1)) {
    return Action{Kind::kSendForward, stage, micro_batch};
  }
  if (is_gradient(kind) && crosses_workers(table, stage, stage - 1)) {
    return Action{Kind::kSendBackward, stage, micro_batch};
  }
  return std::nullopt;
}

// Empty if `action` needs nothing from another worker.
std::optional<Action> receive_before(const Table& table, const Action& action) {
  const auto [kind, stage, micro_batch] = action;
  if (kind == Kind::kForward && crosses_workers(table, stage, stage - 1)) {
    return Action{Kind::kReceiveForward, stage, micro_batch};
  }
  if (is_gradient(kind) && crosses_workers(table, stage, stage + 1)) {
    return Action{Kind::kReceiveBackward, stage, micro_batch};
  }
  return std::nullopt;
}

template <class IsWanted>
bool has_action(const Table& table, const IsWanted& is_wanted) {
  return std::any_of(table.workers.begin(), table.workers.end(), [&](const auto& actions) {
    return std::any_of(actions.begin(), actions.end(),
                       [&](const Action& action) { return is_wanted(action.kind); });
  });
}

}  // namespace

const char* kind_name(Kind kind) {
  const auto found = std::find_if(kNames.begin(), kNames.end(),
                                  [&](const auto& each) { return each.first == kind; });
  return found->second.data();  // from a string literal
}

const char* kind_category(Kind kind) {
  if (is_message(kind)) return "message";
  if (kind == Kind::kReduce) return "reduction";
  return kind == Kind::kForward ? "forward" : "backward";
}

Action receive_of(const Action& send) {
  return send.kind == Kind::kSendForward
             ? Action{Kind::kReceiveForward, send.stage + 1, send.micro_batch}
             : Action{Kind::kReceiveBackward, send.stage - 1, send.micro_batch};
}

std::string text(const Action& action) {
  const std::string stage_and_kind = str(action.stage, kind_name(action.kind));
  return action.kind == Kind::kReduce ? stage_and_kind : str(stage_and_kind, action.micro_batch);
}

Action action_of(std::string_view text) {
  std::string_view rest = text;
  Action action;
  action.stage = take_number(rest);
  for (const auto& [kind, name] : kNames) {
    if (action.stage < 0 || !rest.starts_with(name)) continue;
    std::string_view number = rest.substr(name.size());
    action.kind = kind;
    action.micro_batch = kind == Kind::kReduce ? -1 : take_number(number);
    const bool numbered = kind == Kind::kReduce || action.micro_batch >= 0;
    if (!number.empty() || !numbered) continue;
    if (action.stage < kMostStages && action.micro_batch < kMostMicroBatches) return action;
  }
  throw ConfigError(
      str("\"", text,
          "\" is not an action of a pipeline; expected an action such as 2F0, 2B0, 2I0, 2W0, "
          "1SEND_F0, 2RECV_F0, 2SEND_B0, 1RECV_B0 or 2REDUCE_GRAD"));
}

std::string csv(const Table& table) {
  std::string lines;
  for (const auto& actions : table.workers) {
    std::vector<std::string> cells;
    for (const Action& action : actions) cells.push_back(text(action));
    lines += join(cells, ",") + '\n';
  }
  return lines;
}

Table table_of(std::string_view csv, std::string name) {
  Table table{std::move(name), 0, {}, {}};
  while (!csv.empty()) {
    std::string_view line = take_until(csv, '\n');
    const auto worker = static_cast<int>(table.workers.size());
    std::vector<Action>& actions = table.workers.emplace_back();
    while (!line.empty()) {
      const std::string_view cell = trimmed(take_until(line, ','));
      if (cell.empty()) continue;
      const Action action = action_of(cell);
      actions.push_back(action);
      table.micro_batches = std::max(table.micro_batches, action.micro_batch + 1);
      const auto stage = static_cast<std::size_t>(action.stage);
      if (table.worker_of.size() <= stage) table.worker_of.resize(stage + 1, -1);
      int& holder = table.worker_of[stage];
      if (holder != -1 && holder != worker) {
        throw ConfigError(str("table ", table.name, ": stage ", stage,
                              " stands in the lines of workers ", holder, " and ", worker));
      }
      holder = worker;
    }
  }
  while (!table.workers.empty() && table.workers.back().empty()) table.workers.pop_back();
  return table;
}

Table with_messages(const Table& table) {
  // For each pair of workers, the receives in the order of the sends.
  struct Receives {
    std::vector<Action> all;
    std::size_t placed = 0;
  };
  std::map<std::pair<int, int>, Receives> receives;
  for (std::size_t from = 0; from < table.workers.size(); ++from) {
    for (const Action& action : table.workers[from]) {
      LOCKSTEP_CHECK(!is_message(action.kind), "table ", table.name, " has messages already");
      if (const auto send = send_after(table, action)) {
        const Action receive = receive_of(*send);
        const int to = table.worker_of[static_cast<std::size_t>(receive.stage)];
        receives[{static_cast<int>(from), to}].all.push_back(receive);
      }
    }
  }
  Table result = table;
  std::set<Action> received;
  for (std::size_t worker = 0; worker < table.workers.size(); ++worker) {
    std::vector<Action>& actions = result.workers[worker];
    actions.clear();
    for (const Action& action : table.workers[worker]) {
      if (const auto needed = receive_before(table, action)) {
        const bool forward = needed->kind == Kind::kReceiveForward;
        const auto sender =
            static_cast<std::size_t>(forward ? needed->stage - 1 : needed->stage + 1);
        Receives& from = receives[{table.worker_of[sender], static_cast<int>(worker)}];
        while (!received.contains(*needed) && from.placed < from.all.size()) {
          actions.push_back(from.all[from.placed++]);
          received.insert(actions.back());
        }
      }
      actions.push_back(action);
      if (const auto send = send_after(table, action)) actions.push_back(*send);
    }
  }
  return result;
}

Table with_reductions(const Table& table) {
  Table result = table;
  for (auto& actions : result.workers) {
    std::map<int, std::size_t> last;  // index of each stage's last gradient
    for (std::size_t i = 0; i < actions.size(); ++i) {
      const Kind kind = actions[i].kind;
      LOCKSTEP_CHECK(!is_message(kind), "table ", table.name, " has messages already");
      if (is_weight_gradient(kind)) last[actions[i].stage] = i;
    }
    std::vector<Action> with;
    for (std::size_t i = 0; i < actions.size(); ++i) {
      with.push_back(actions[i]);
      const auto found = last.find(actions[i].stage);
      if (found == last.end() || found->second != i) continue;
      with.push_back({Kind::kReduce, actions[i].stage, -1});
    }
    actions = std::move(with);
  }
  return result;
}

bool has_messages(const Table& table) {
  return has_action(table, [](Kind kind) { return is_message(kind); });
}

bool has_reductions(const Table& table) {
  return has_action(table, [](Kind kind) { return kind == Kind::kReduce; });
}

Table forwards_of(const Table& table) {
  Table result = table;
  for (auto& actions : result.workers) {
    std::erase_if(actions, [](const Action& action) { return action.kind != Kind::kForward; });
  }
  return result;
}

Table with_whole_backward(const Table& table, int stage) {
  Table result = table;
  for (auto& actions : result.workers) {
    std::erase_if(actions, [&](const Action& action) {
      return action.stage == stage && action.kind == Kind::kBackwardWeight;
    });
    for (Action& action : actions) {
      if (action.stage == stage && action.kind == Kind::kBackwardInput)
        action.kind = Kind::kBackward;
    }
  }
  return result;
}

}  // namespace lockstep::pipeline
